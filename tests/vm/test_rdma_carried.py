"""A worker's end of a queue over RDMA: shared memory, whose frames another process has (native/rdma/rdma_carrier.c)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.rdma import PATIENCE_S, Acceptor, CarriedEnd, CarriedPair, Device, frame_of, take, until_readable
from beds.slots import submit_when_free
from xts_messages._native import ffi, lib
from xts_messages.queues import rdma
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import QueueOptions

SIZES = [60, 250, 2048, 3840, 4096, 20_000, 61_440]
SMALL = QueueOptions(16)


@pytest.fixture
def acceptor(device: Device) -> Iterator[Acceptor]:
    with Acceptor(device.address) as made:
        yield made


@pytest.fixture
def pair(device: Device, acceptor: Acceptor) -> Iterator[CarriedPair]:
    with CarriedPair(device, acceptor, SMALL) as made:
        yield made


def ends(queue: Queue) -> None:
    """It says so, and brings nothing before."""
    with pytest.raises(BrokenPipeError):
        while queue.receive() is None:
            until_readable(queue)


def test_every_size_crosses_both_ways(pair: CarriedPair) -> None:
    for size in SIZES:
        for sender, receiver in ((pair.host, pair.proxy), (pair.proxy, pair.host)):
            sender.send(frame_of(size))
            assert take(receiver, 1) == [frame_of(size)], size


def test_windows_cross_again_and_again(pair: CarriedPair) -> None:
    """As much as there are slots for, in both directions at a time. None is lost, none comes in another order. The
    worker is the first, for a credit is a frame: what it has given back is there for its peer before that arrives. On
    iWARP a peer that does not wait for it ends the queue."""
    for turn in range(20):
        frames = [frame_of(60 + 200 * turn, number) for number in range(16 + int(lib.XTS_CONTROL_RESERVE))]
        came = []
        for sender in (pair.proxy, pair.host):
            for frame in frames:
                submit_when_free(sender, frame)
            sender.kick()
            came += take(pair.host, 1) if not came else []
        assert take(pair.proxy, len(frames)) == frames
        assert came + take(pair.host, len(frames) - 1) == frames


def test_frames_are_where_the_device_reads_and_writes_them(pair: CarriedPair) -> None:
    """What a worker receives lies in the memory that the queue pair has, and so does what it sends."""
    number, areas = f" {os.fstat(pair.end.memory_fd).st_ino} ", []
    for line in Path("/proc/self/maps").read_text(encoding="ascii").splitlines():
        if "memfd:" in line and number in line:
            first, end = (int(word, 16) for word in line.split()[0].split("-"))
            areas.append(range(first, end))
    assert len(areas) == 2, "that of the worker, and that of the carrier"
    pair.host.send(frame_of(20_000))
    frame = pair.proxy.wait(30_000)
    at = int(ffi.cast("uintptr_t", frame._native.segment[0].iov_base))
    assert any(at in area for area in areas) and frame._native.segments == 1
    frame.recycle()
    slot = ffi.new("struct xts_tx_slot *")
    assert lib.xts_queue_acquire(pair.proxy.native, slot) == 0
    assert any(int(ffi.cast("uintptr_t", slot.data)) in area for area in areas)
    lib.xts_queue_abandon(pair.proxy.native, slot)


def test_traits_are_those_of_what_carries_it(pair: CarriedPair) -> None:
    assert pair.proxy.traits == pair.host.traits


# --- who ends ----------------------------------------------------------------------------------------------


def test_the_host_ends(pair: CarriedPair) -> None:
    """What it had sent arrives, and the worker hears of the end."""
    pair.host.send(frame_of(5000))
    assert take(pair.proxy, 1) == [frame_of(5000)]
    pair.disconnect()
    assert pair.end.ended()
    ends(pair.proxy)


def test_the_worker_ends(pair: CarriedPair) -> None:
    """Its last words leave."""
    for number in range(10):
        pair.proxy.submit(frame_of(60_000, number))
    pair.proxy.kick()
    pair.proxy.close()
    assert take(pair.host, 10) == [frame_of(60_000, number) for number in range(10)]
    assert pair.end.ended()


def test_a_word_for_the_process_ends_what_it_carries(pair: CarriedPair) -> None:
    """That the other one's socket is closed is a word, too: nobody needs it any more."""
    pair.end.word.close()
    assert pair.end.ended()
    ends(pair.proxy)


def test_the_next_connection_has_memory_of_its_own(device: Device, acceptor: Acceptor) -> None:
    with CarriedPair(device, acceptor, SMALL) as pair:
        pair.host.send(b"secret" * 100)
        take(pair.proxy, 1)
    with CarriedPair(device, acceptor, SMALL) as pair:
        assert b"secret" not in os.pread(pair.end.memory_fd, 1 << 24, 0)


# --- hostile peers -----------------------------------------------------------------------------------------


def test_a_hostile_peer_ends_its_queue_alone(device: Device, acceptor: Acceptor) -> None:
    """What is no frame is passed over. It sends without credits until its own device gives up, or something that is
    too long; with the right key and address it reads and writes nothing."""
    if device.kind != "rxe":
        pytest.skip("the attacker does the steps of RoCE")
    import pyverbs.enums as e
    from beds.rdma_attacker import Attacker

    for attack in ("flood", "too long", "write"):
        with CarriedEnd(device, SMALL) as end:
            came: list[int] = []
            accepting = threading.Thread(target=lambda end=end, came=came: came.append(acceptor.accept(end)))
            accepting.start()
            attacker = Attacker(device, acceptor.service)
            accepting.join(PATIENCE_S)
            end.start(came[0])
            with attacker:
                attacker.post(e.IBV_WR_SEND, 0, flags=e.IBV_SEND_SOLICITED)
                assert attacker.outcome() == e.IBV_WC_SUCCESS
                attacker.post(e.IBV_WR_SEND, 100, flags=e.IBV_SEND_SOLICITED)
                assert attacker.outcome() == e.IBV_WC_SUCCESS
                frame = end.queue.wait(60_000)
                assert len(frame) == 100
                there = int(ffi.cast("uintptr_t", frame._native.segment[0].iov_base))
                if attack == "flood":
                    buffers = 16 + int(lib.XTS_CONTROL_RESERVE)
                    for _ in range(buffers):
                        attacker.post(e.IBV_WR_SEND, 60)
                    outcomes = [attacker.outcome() for _ in range(buffers)]
                    assert outcomes == [e.IBV_WC_SUCCESS] * (buffers - 1) + [e.IBV_WC_RNR_RETRY_EXC_ERR]
                elif attack == "too long":
                    attacker.post(e.IBV_WR_SEND, 61_441 + 4096, flags=e.IBV_SEND_SOLICITED)
                    assert attacker.outcome() != e.IBV_WC_SUCCESS
                else:
                    before, key = bytes(frame), int(rdma._numbers(end.carrier._events_fd).rkey)
                    attacker.memory.write(b"\xff" * 100, 100)
                    attacker.post(e.IBV_WR_RDMA_WRITE, 100, to=(key, there))
                    assert attacker.outcome() != e.IBV_WC_SUCCESS
                    assert bytes(frame) == before
                frame.recycle()
            assert end.ended(), attack
        while acceptor.hear() != b"ended":
            pass
