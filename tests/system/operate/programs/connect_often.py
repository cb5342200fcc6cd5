"""Connects with TLS again and again: PORT THREADS CONNECTS. Prints how often each outcome was there, as JSON."""

from __future__ import annotations

import collections
import json
import sys
import threading

import xts_socket
from xts_socket import Tls

PATIENCE_S = 8


def outcome(port: int) -> str:
    try:
        with xts_socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, tls=Tls(verify=False)) as s:
            s.sendall(b"x" * 20_000)
            while s.recv(65536):
                pass
            return "done"
    except TimeoutError:
        return "no answer"
    except OSError:
        return "failed"


def main() -> None:
    port, threads, connects = map(int, sys.argv[1:])
    seen: collections.Counter[str] = collections.Counter()

    def run() -> None:
        for _ in range(connects):
            seen[outcome(port)] += 1

    started = [threading.Thread(target=run) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    print(json.dumps(seen))


main()
