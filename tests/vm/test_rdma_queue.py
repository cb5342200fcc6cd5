"""Queues over RDMA, on software devices of the kernel: in the machine of `tests/vm/run`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.rdma import Acceptor, Device, Pair, frame_of, take
from xts_messages._native import ffi, lib
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import QueueOptions

SIZES = [60, 250, 2048, 3840, 4096, 20_000, 61_440]


@pytest.fixture
def pair(device: Device, acceptor: Acceptor) -> Iterator[Pair]:
    with Pair(device, acceptor, QueueOptions(16)) as made:
        yield made


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


def registered(queue: Queue, geometry: Any) -> range:
    """The memory of an end: the only one of its size that no child gets (madvise(2), MADV_DONTFORK)."""
    size = int((geometry.rx_chunks + geometry.tx_slots) * geometry.slot_bytes)
    found, area = [], range(0)
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            area = range(int(match[1], 16), int(match[2], 16))
        elif line.startswith("VmFlags:") and " dc" in line and len(area) >= size:
            found.append(area)
    slot = slot_of(queue)
    [area] = [area for area in found if slot in area]
    return area


def slot_of(queue: Queue) -> int:
    """Where the next slot is. It is given back."""
    slot = ffi.new("struct xts_tx_slot *")
    assert lib.xts_queue_acquire(queue.native, slot) == 0
    lib.xts_queue_abandon(queue.native, slot)
    return int(ffi.cast("uintptr_t", slot.data))


def test_frames_are_where_the_device_reads_and_writes_them(pair: Pair) -> None:
    """No copy in between: a slot is in the registered memory, and so is a frame that has come."""
    for sender, receiver, end in ((pair.host, pair.proxy, pair.ends[1]), (pair.proxy, pair.host, pair.ends[0])):
        area = registered(receiver, end.geometry)
        sender.send(frame_of(20_000))
        frame = receiver.wait(30_000)
        at = int(ffi.cast("uintptr_t", frame._native.segment[0].iov_base))
        assert at in area and at + 20_000 in area and at != slot_of(receiver)
        assert frame._native.segments == 1
        frame.recycle()


def test_traits_are_what_the_page_says(pair: Pair) -> None:
    names = ("KICK_COSTS", "PACKETS", "FRAGMENTS", "DEATH_SHOWS", "PEER_MEMORY", "RETAINS", "CLOCK")
    has = {name for name in names if pair.host.traits & int(getattr(lib, f"XTS_QUEUE_{name}"))}
    assert has == {"KICK_COSTS", "PACKETS", "FRAGMENTS", "RETAINS"}
