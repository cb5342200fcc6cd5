"""Queues on virtio network cards, whose driver says that it has zero copy: in the machine of `tests/vm/run --nics`."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from beds import card_queues
from beds.card_queues import ENDS, Cards
from xts_lab import netns

#: MTU -> whether virtio-net has zero copy with it (Linux 7.3): a packet has to fit into a buffer.
MTUS = {1280: True, 1500: True, 3804: True, 3826: False}
#: linux/if_xdp.h
AF_XDP, SOL_XDP = 44, 283
RX_RING, TX_RING, UMEM_REG, FILL_RING, COMPLETION_RING, OPTIONS = 2, 3, 4, 5, 6, 8
ZERO_COPY, WAKE_UP, SEVERAL_BUFFERS = 1 << 2, 1 << 3, 1 << 4
OPTIONS_ZERO_COPY = 1 << 0
ENTRIES = 64


@pytest.fixture(scope="module")
def cards() -> Iterator[Cards]:
    if reason := card_queues.missing("virtio"):
        pytest.skip(reason)
    with card_queues.in_namespaces("virtio") as made:
        yield made


@pytest.mark.parametrize("mtu", MTUS)
def test_frames_cross_whatever_the_driver_does(cards: Cards, mtu: int) -> None:
    """With zero copy, or in copy mode after the driver has refused it."""
    cards.set_mtu(mtu)
    with ExitStack() as stack:
        host, device = (cards.opened(end, stack, "auto", MTUS[mtu]) for end in ENDS)
        card_queues.cross(host, device, (60, 600, 1000, mtu + 14) * 8)


def bound(interface: str, flags: int) -> tuple[int, int]:
    """The errno of bind() with these flags, and what the kernel then says of the socket (XDP_OPTIONS): nothing of ours
    is asked."""
    memory = mmap.mmap(-1, ENTRIES * 4096)
    with socket.socket(AF_XDP, socket.SOCK_RAW) as xsk:
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        xsk.setsockopt(SOL_XDP, UMEM_REG, struct.pack("QQIIII", address, ENTRIES * 4096, 4096, 0, 0, 0))
        for ring in (FILL_RING, COMPLETION_RING, RX_RING, TX_RING):
            xsk.setsockopt(SOL_XDP, ring, ENTRIES)
        where = struct.pack("HHIII", AF_XDP, flags, socket.if_nametoindex(interface), 0, 0)
        libc, deadline = ctypes.CDLL(None, use_errno=True), time.monotonic() + card_queues.BACK_S
        while failed := libc.bind(xsk.fileno(), where, len(where)):  # a queue is busy for a moment after its socket
            if ctypes.get_errno() != errno.EBUSY or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return ctypes.get_errno() if failed else 0, xsk.getsockopt(SOL_XDP, OPTIONS)


def test_the_driver_has_zero_copy_of_single_buffers(cards: Cards) -> None:
    """A frame over several is refused with zero copy, and not without a word bound in copy mode."""
    cards.set_mtu(1500)
    with netns.inside("host"):
        name = cards.names["host"]
        assert bound(name, ZERO_COPY | WAKE_UP) == (0, OPTIONS_ZERO_COPY)
        assert bound(name, ZERO_COPY | WAKE_UP | SEVERAL_BUFFERS) == (errno.EOPNOTSUPP, 0), os.uname().release
