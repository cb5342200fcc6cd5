"""An echo server in the network of a place (restarts.py)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from xts_lab import topology

from beds.restarts import Place


def address_of(place: Place) -> str:
    """Where programs of the host reach it."""
    return place.address if place.address == "127.0.0.1" else str(topology.NET.addresses[0].ip)


@contextmanager
def echo_peer(place: Place) -> Iterator[int]:
    """Its port."""
    with place.network():
        server = socket.create_server((address_of(place), 0), backlog=512)

    def echo(connection: socket.socket) -> None:
        with connection, suppress(OSError):  # who uses it says what it has seen
            while data := connection.recv(1 << 18):
                connection.sendall(data)

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
