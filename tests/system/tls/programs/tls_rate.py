"""TLS connections, with the identity "own", until standard input ends. `serve`: prints its port, and sends back what
comes. `connect PORT`: one after the other. Prints at the end how many there were, and each failure."""

from __future__ import annotations

import json
import sys
import threading

import xts_socket
from xts_socket import Tls

DEADLINE_S = 20.0
failures: list[str] = []
done: list[bool] = []


def served(sock: xts_socket.socket) -> None:
    try:
        with sock:
            sock.settimeout(DEADLINE_S)
            while data := sock.recv(100):
                sock.sendall(data)
        done.append(True)
    except OSError as error:
        failures.append(repr(error))


def accept(server: xts_socket.socket) -> None:
    while True:
        try:
            sock, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=served, args=(sock,), daemon=True).start()


def connect(port: int, ended: threading.Event) -> None:
    while not ended.is_set():
        try:
            tls = Tls(server_hostname="localhost", identity="own")
            with xts_socket.create_connection(("127.0.0.1", port), DEADLINE_S, tls=tls) as sock:
                sock.sendall(b"x")
                if sock.recv(1) != b"x":
                    raise EOFError("no answer")
            done.append(True)
        except (OSError, EOFError) as error:
            failures.append(repr(error))


def main() -> None:
    if sys.argv[1] == "serve":
        server = xts_socket.create_server(("127.0.0.1", 0), backlog=100, tls=Tls(identity="own"))
        print(server.getsockname()[1], flush=True)
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        sys.stdin.read()
    else:
        ended = threading.Event()
        thread = threading.Thread(target=connect, args=(int(sys.argv[2]), ended))
        thread.start()
        sys.stdin.read()
        ended.set()
        thread.join(DEADLINE_S)
    print(json.dumps({"done": len(done), "failures": failures}), flush=True)


main()
