"""Queues over RDMA, on software devices of the kernel: in the machine of `tests/vm/run`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from beds.rdma import Acceptor, Device, Pair
from xts_messages._native import lib
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import QueueOptions

SIZES = [60, 250, 2048, 3840, 4096, 20_000, 61_440]


@pytest.fixture
def pair(device: Device, acceptor: Acceptor) -> Iterator[Pair]:
    with Pair(device, acceptor, QueueOptions(16)) as made:
        yield made


def frame_of(size: int, number: int = 0) -> bytes:
    return random.Random(size * 1_000_003 + number).randbytes(size)


def take(queue: Queue, count: int) -> list[bytes]:
    frames = []
    while len(frames) < count:
        frame = queue.wait(30_000)
        frames.append(bytes(frame))
        frame.recycle()
    queue.kick()
    return frames


@pytest.mark.parametrize("size", SIZES)
def test_every_size_crosses_both_ways(pair: Pair, size: int) -> None:
    for sender, receiver in ((pair.host, pair.proxy), (pair.proxy, pair.host)):
        sender.send(frame_of(size))
        assert take(receiver, 1) == [frame_of(size)]


def test_a_window_and_the_reserve_find_slots_again_and_again(pair: Pair) -> None:
    for turn in range(10):
        frames = [frame_of(60 + turn, number) for number in range(16 + 32)]
        for frame in frames:
            pair.host.submit(frame)
        pair.host.kick()
        assert take(pair.proxy, len(frames)) == frames
    assert pair.host.stats.kicks == 10, "each kick is one list"


def test_traits_are_what_the_page_says(pair: Pair) -> None:
    names = ("KICK_COSTS", "PACKETS", "FRAGMENTS", "DEATH_SHOWS", "PEER_MEMORY", "RETAINS", "CLOCK")
    has = {name for name in names if pair.host.traits & int(getattr(lib, f"XTS_QUEUE_{name}"))}
    assert has == {"KICK_COSTS", "PACKETS", "FRAGMENTS", "RETAINS"}
