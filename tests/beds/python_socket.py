"""A connection with one end on `xts_socket`, and what its tests share."""

from __future__ import annotations

import random
import select
import socket as kernel
import struct
from contextlib import suppress
from typing import Any

import xts_socket as socket

from beds.patience import SLOWER

DEADLINE_S = 10.0 * SLOWER
LOOPBACK = {kernel.AF_INET: "127.0.0.1", kernel.AF_INET6: "::1"}
LARGE = 16 << 20
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset


class Pair:
    """A connection: the offloaded end and the kernel's."""

    def __init__(self, offloaded: socket.socket, peer: kernel.socket) -> None:
        self.offloaded, self.peer = offloaded, peer
        self.peer.settimeout(DEADLINE_S)

    def close(self) -> None:
        self.offloaded.close()
        self.peer.close()

    def peer_receives(self, count: int) -> bytes:
        data = b""
        while len(data) < count and (more := self.peer.recv(count - len(data))):
            data += more
        return data


def data_of(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def receive_all(sock: Any, size: int = 65536) -> bytes:
    parts = []
    while part := sock.recv(size):
        parts.append(part)
    return b"".join(parts)


def fill(sock: socket.socket) -> None:
    """Sends until nothing more is taken, also after what is on its way has gone as far as it can."""
    sock.setblocking(False)
    while select.select([], [sock], [], 0.2)[1]:
        with suppress(BlockingIOError):
            sock.send(bytes(65536))
