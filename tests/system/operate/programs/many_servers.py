"""many_servers.py ADDRESS PORT COUNT: so many processes, each with a listener of its own on the port, that sleep."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time

PR_SET_PDEATHSIG, SIGKILL = 1, 9


def serve(address: str, port: int) -> None:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((address, port))
    listener.listen(4)
    os.write(1, b"ready\n")
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"served\n")


def main() -> None:
    for _ in range(int(sys.argv[3])):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
            serve(sys.argv[1], int(sys.argv[2]))
    while True:
        time.sleep(1000)


main()
