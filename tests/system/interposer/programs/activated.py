"""A service that is started for a socket (activator.py): answers one connection with its peer's address, and ends.
With "at-once" it does not wait for the connection."""

from __future__ import annotations

import os
import socket
import sys

FIRST_FD = 3


def main() -> None:
    assert os.environ["LISTEN_FDS"] == "1" and os.environ["LISTEN_PID"] == str(os.getpid())
    with socket.socket(fileno=FIRST_FD) as passed:
        is_listener = passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if "at-once" in sys.argv:
            passed.setblocking(False)
        connection = passed.accept()[0] if is_listener else passed
        with connection:
            connection.setblocking(True)
            request = connection.recv(100)
            connection.sendall(b"%s for %d" % (request, connection.getpeername()[1]))


if __name__ == "__main__":
    main()
