"""Orders to the process with the private keys (dpu_proxy/xts_proxy/tls/keys.py): one that is late, stopped or gone."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from xts_proxy.tls.keys import Orders

PATIENCE_S = 0.2
LOADED = struct.Struct("=iI160sI")  # struct key_loaded, without the public key


class Process:
    """The other end, which answers when it is told to."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def ordered(self) -> tuple[int, int]:
        """The next order: which key it shall forget, and how many files came with it."""
        data, descriptors, _, _ = socket.recv_fds(self._end, 4, 1)
        for descriptor in descriptors:
            os.close(descriptor)
        return struct.unpack("=I", data)[0], len(descriptors)

    def answers(self, number: int, error: int = 0) -> None:
        self._end.send(LOADED.pack(error, number, b"why", 0))


@pytest.fixture
def both() -> Iterator[tuple[Orders, Process]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.settimeout(10)
    with ours, theirs:
        yield Orders(ours, PATIENCE_S), Process(theirs)


def number_of(answer: bytes) -> int:
    return int(LOADED.unpack_from(answer)[1])


def late(order: Callable[[], object]) -> None:
    with pytest.raises(OSError, match="has not answered within") as refused:
        order()
    assert refused.value.errno == errno.ETIMEDOUT


def test_a_process_that_is_stopped_is_given_up(both: tuple[Orders, Process]) -> None:
    orders, _ = both
    late(lambda: orders.load(0))
    late(lambda: orders.load(0))


def test_a_late_answer_is_no_answer_to_the_next_order(both: tuple[Orders, Process]) -> None:
    """And the key that nobody has waited for is forgotten."""
    orders, process = both
    late(lambda: orders.load(0))
    assert process.ordered() == (0, 1)
    for number in (7, 0, 8):  # the late one; that of "forget"; that of the order below
        process.answers(number)
    assert number_of(orders.load(0)) == 8
    assert [process.ordered(), process.ordered()] == [(7, 0), (0, 1)]


def test_a_late_refusal_leaves_nothing_to_forget(both: tuple[Orders, Process]) -> None:
    orders, process = both
    late(lambda: orders.load(0))
    process.answers(0, -errno.EINVAL)
    process.answers(8)
    assert number_of(orders.load(0)) == 8
    assert [process.ordered(), process.ordered()] == [(0, 1), (0, 1)]


def test_an_order_to_forget_that_is_late(both: tuple[Orders, Process]) -> None:
    orders, process = both
    """It is told again: nobody knows whether the first one will be carried out."""
    late(lambda: orders.forget(7))
    for number in (0, 0, 8):
        process.answers(number)
    assert number_of(orders.load(0)) == 8
    assert [process.ordered() for _ in range(3)] == [(7, 0), (7, 0), (0, 1)]


def test_a_process_that_has_ended(both: tuple[Orders, Process]) -> None:
    orders, process = both
    process._end.close()
    with pytest.raises(OSError, match="the process with the keys"):
        orders.load(0)
