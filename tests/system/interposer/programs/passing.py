"""Programs that pass a socket on: `passing.py give PATH connection|listener|wildcard|datagrams`, and `take PATH`.

`give` listens, says at which port, and sends a connection or the listener to who connects to the Unix socket PATH.
`take` serves what it gets, and answers in capitals.
"""

from __future__ import annotations

import os
import select
import socket
import sys

HERE = os.environ["LISTEN_AT"]
PATIENCE_S = 20.0


def serve(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data.upper())


def give(path: str, what: str) -> None:
    with socket.create_server(path, family=socket.AF_UNIX) as way:
        if what == "datagrams":
            give_datagrams(way)
            return
        listener = socket.create_server(("" if what == "wildcard" else HERE, 0))
        print(listener.getsockname()[1], flush=True)
        with way.accept()[0] as taker:
            given = listener.accept()[0] if what == "connection" else listener
            assert what != "connection" or given.recv(6) == b"first "
            assert socket.send_fds(taker, [b"it"], [given.fileno()]) == 2
            given.close()
            listener.close()
            assert taker.recv(4) == b"done"


def give_datagrams(way: socket.socket) -> None:
    """It has been seen to be readable, and is read by who gets it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as given:
        given.bind((HERE, 0))
        print(given.getsockname()[1], flush=True)
        assert select.select([given], [], [], PATIENCE_S)[0]
        with way.accept()[0] as taker:
            assert socket.send_fds(taker, [b"it"], [given.fileno()]) == 2
            given.close()
            assert taker.recv(4) == b"done"


def answer_datagrams(given: socket.socket) -> None:
    given.settimeout(PATIENCE_S)
    for _ in range(2):
        data, sender = given.recvfrom(100)
        given.sendto(data.upper(), sender)


def take(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as way:
        way.connect(path)
        said, fds, _, _ = socket.recv_fds(way, 10, 4)
        assert said == b"it" and len(fds) == 1
        given = socket.socket(fileno=fds[0])
        assert given.family == socket.AF_INET and given.getsockname()[0] in (HERE, "0.0.0.0"), given
        if given.type == socket.SOCK_DGRAM:
            answer_datagrams(given)
        elif given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            with given:
                for _ in range(2):
                    serve(given.accept()[0])
        else:
            serve(given)
        way.sendall(b"done")


if __name__ == "__main__":
    {"give": give, "take": take}[sys.argv[1]](*sys.argv[2:])
