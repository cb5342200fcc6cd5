"""Children connect to a peer. When a line comes each sends, and then ends or sleeps in its own way, and is not heard of
again. It answers with a line when the first have ended, or sleep.

    last_words.py PEER PORT WAYS [VERSION]

WAYS: of the children, with commas. VERSION: the connections have TLS of this version in the proxy, 772 or 771.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

SENT = b"0123456789" * 500


def connected(server: tuple[str, int], version: int) -> Any:
    if not version:
        return socket.create_connection(server)
    import xts_socket

    tls = xts_socket.Tls(server_hostname="localhost", min_version=version, max_version=version)
    return xts_socket.create_connection(server, tls=tls)


def leave(connection: Any, how: str, told: Callable[[], object]) -> None:
    connection.sendall(SENT)
    if how.startswith("close"):
        connection.close()
    elif how.startswith("shutdown"):
        connection.shutdown(socket.SHUT_WR)
    if how.endswith("sleep"):
        told()
        time.sleep(600)
    elif how == "return":
        sys.exit()
    elif how == "exec":
        os.execv("/bin/true", ["/bin/true"])
    elif how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)


def child(server: tuple[str, int], how: str, version: int, start: int, told: int) -> None:
    connection = connected(server, version)
    os.write(told, b"1")
    if not os.read(start, 1):
        os._exit(1)
    leave(connection, how, lambda: os.write(told, b"1"))


def main(peer: str, port: str, ways: str, version: str = "0") -> None:
    starts, ready = [], []
    for how in ways.split(","):
        start, begin = os.pipe()
        hear, told = os.pipe()
        if os.fork() == 0:
            os.close(begin)
            os.close(hear)
            child((peer, int(port)), how, int(version), start, told)
        os.close(start)
        os.close(told)
        starts.append(begin)
        ready.append(hear)
        os.read(hear, 1)
    print("connected", flush=True)
    sys.stdin.readline()
    for begin in starts:
        os.write(begin, b"1")
    for hear in ready:
        os.read(hear, 1)  # it sleeps, or has ended
    print("left", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
