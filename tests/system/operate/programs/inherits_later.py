"""Has a connection, and gives it to a new process when its input says how: "fork" or "exec". Says with what status that
has ended. Arguments: address and port of an echo server."""

from __future__ import annotations

import os
import socket
import sys

USES = """
import socket, sys
connection = socket.socket(fileno=int(sys.argv[1]))
connection.settimeout(20)
connection.sendall(b"of the next")
assert connection.recv(64) == b"of the next"
"""


def main() -> None:
    connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
    connection.sendall(b"first")
    assert connection.recv(64) == b"first"
    print("connected", flush=True)
    how = sys.stdin.readline().strip()
    if how == "exec":
        os.set_inheritable(connection.fileno(), True)
        command = ["-c", USES + "print(0, flush=True)", str(connection.fileno())]
        os.execv(sys.executable, [sys.executable, *command])
    if not (child := os.fork()):
        connection.sendall(b"of the child")
        os._exit(connection.recv(64) != b"of the child")
    print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
