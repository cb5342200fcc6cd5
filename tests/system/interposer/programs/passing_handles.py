"""`passing_handles.py`: multiprocessing's ways to give a connection to another process, which is spawned."""

from __future__ import annotations

import multiprocessing
import os
import socket
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle

CLIENTS = 3


def serve(pipe: Connection) -> None:
    for _ in range(CLIENTS):
        with socket.socket(fileno=recv_handle(pipe)) as by_handle:
            by_handle.sendall(by_handle.recv(100).upper())
        with pipe.recv() as pickled:
            pickled.sendall(pickled.recv(100).upper())


def main() -> None:
    ways = multiprocessing.get_context("spawn")
    here, there = ways.Pipe()
    child = ways.Process(target=serve, args=(there,))
    child.start()
    assert child.pid is not None
    with socket.create_server((os.environ.get("LISTEN_AT", "127.0.0.1"), 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        for _ in range(CLIENTS):
            connection, _ = listener.accept()
            send_handle(here, connection.fileno(), child.pid)
            connection.close()
            connection, _ = listener.accept()
            here.send(connection)
            connection.close()
        child.join(30)
        assert child.exitcode == 0, child.exitcode


if __name__ == "__main__":
    main()
