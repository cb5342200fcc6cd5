"""Programs that pass a socket on: `passing.py give PATH connection|listener|wildcard`, `passing.py take PATH`.

`give` listens, says at which port, and sends a connection or the listener to who connects to the Unix socket PATH.
`take` serves what it gets, and answers in capitals.
"""

from __future__ import annotations

import socket
import sys


def serve(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data.upper())


def give(path: str, what: str) -> None:
    with socket.create_server(path, family=socket.AF_UNIX) as way:
        listener = socket.create_server(("" if what == "wildcard" else "127.0.0.1", 0))
        print(listener.getsockname()[1], flush=True)
        with way.accept()[0] as taker:
            given = listener.accept()[0] if what == "connection" else listener
            assert what != "connection" or given.recv(6) == b"first "
            assert socket.send_fds(taker, [b"it"], [given.fileno()]) == 2
            given.close()
            listener.close()
            assert taker.recv(4) == b"done"


def take(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as way:
        way.connect(path)
        said, fds, _, _ = socket.recv_fds(way, 10, 4)
        assert said == b"it" and len(fds) == 1
        given = socket.socket(fileno=fds[0])
        assert given.family == socket.AF_INET and given.getsockname()[0] in ("127.0.0.1", "0.0.0.0"), given
        if given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            with given:
                for _ in range(2):
                    serve(given.accept()[0])
        else:
            serve(given)
        way.sendall(b"done")


if __name__ == "__main__":
    {"give": give, "take": take}[sys.argv[1]](*sys.argv[2:])
