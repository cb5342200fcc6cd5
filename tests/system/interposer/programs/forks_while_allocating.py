"""Forks again and again while other threads allocate, with connections to the port of argument 1. Each child makes a
socket and ends. Prints "done"; a child that hangs ends the program with status 1."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

FORKS = 20
CHILD_S = 20.0


def allocate() -> None:
    while True:
        for size in range(1, 60_000, 977):
            bytearray(size)


def waits_for(child: int) -> None:
    until = time.monotonic() + CHILD_S
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, 9)
            sys.exit("a child hangs")
        time.sleep(0.001)


def main() -> None:
    for _ in range(2):
        threading.Thread(target=allocate, daemon=True).start()
    listener = socket.create_server(("127.0.0.1", 0))
    clients = [socket.create_connection(listener.getsockname()) for _ in range(4)]
    for _ in range(FORKS):
        child = os.fork()
        if not child:
            socket.socket().close()
            os._exit(0)
        waits_for(child)
    assert len(clients) == 4
    print("done", flush=True)
    os._exit(0)


main()
