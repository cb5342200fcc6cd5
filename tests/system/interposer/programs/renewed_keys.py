"""A server with a child that is killed when it has written a new key of the listener, and before the proxy heard of it.
It prints how many clients were served, of one before and one after."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

HERE = os.environ["LISTEN_AT"]
PATIENCE_S = 10.0
KEY_AT = 16  # in a deed (host_lib/native/processes/deed.c)


def serve(listener: socket.socket, says: int) -> None:
    """A child: it answers clients until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    listener.settimeout(0)
    with suppress(BlockingIOError):
        listener.accept()
    os.write(says, b".")
    listener.settimeout(PATIENCE_S)
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"served")


def child(listener: socket.socket) -> int:
    """Once it has joined the listener, or cannot."""
    reads, says = os.pipe()
    if not (made := os.fork()):
        try:
            serve(listener, says)
        finally:
            os._exit(1)
    os.close(says)
    os.read(reads, 1)
    os.close(reads)
    return made


def end(one: int) -> None:
    os.kill(one, signal.SIGTERM)
    os.waitpid(one, 0)


def is_served(listener: socket.socket) -> bool:
    with socket.create_connection(listener.getsockname(), timeout=PATIENCE_S) as client:
        try:
            return client.recv(6, socket.MSG_WAITALL) == b"served"
        except OSError:
            return False


def deeds() -> list[int]:
    found = []
    for place in Path("/proc/self/fd").iterdir():
        if place.is_symlink() and "xts-deed" in str(place.readlink()):
            found.append(os.open(place, os.O_RDWR))
    return found


def main() -> None:
    with socket.create_server((HERE, 0), backlog=64) as listener:
        first = child(listener)
        served = is_served(listener)
        for deed in deeds():
            os.pwrite(deed, os.urandom(8), KEY_AT)
        second = child(listener)
        end(first)
        served += is_served(listener)
        end(second)
    print(served)


if __name__ == "__main__":
    main()
