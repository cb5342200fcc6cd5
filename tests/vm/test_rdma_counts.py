"""What a message costs over RDMA next to AF_XDP, by counts, in one guest: system calls of its sender and its receiver,
wake-ups, and copies by the kernel. They are the same on each machine, which times under emulation are not. The table is
printed (`-rP`)."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest
from beds import counted_copies
from beds.counted_calls import CountedCalls
from beds.rdma import PATIENCE_S, Acceptor, CarriedPair, Device, Pair
from beds.ready import readable
from beds.veth_wire import make_wire
from xts_bpf.device import open_device_queues
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import QueueOptions

#: No larger than a chunk: Linux 6.1 has no frames over several buffers.
SIZES = (64, 3000)
BATCHES = (1, 16)
MESSAGES = 160
OPTIONS = QueueOptions(32, single_chunk=True)


@dataclass(frozen=True)
class Costs:
    """Of a message."""

    send_calls: float
    receive_calls: float
    wakeups: float


@contextmanager
def over_afxdp() -> Iterator[tuple[Queue, Queue]]:
    for wire in make_wire(9000):
        with ExitStack() as stack:
            ends = []
            for end, name, peer in (
                (wire.host, wire.host_if, wire.device_mac),
                (wire.device, wire.device_if, wire.host_mac),
            ):
                with wire.inside(end):
                    made = stack.enter_context(open_device_queues(name, 1, peer, options=OPTIONS))
                ends.append(made.queues[0])
            yield ends[0], ends[1]


def measured(source: Queue, sink: Queue, size: int, batch: int) -> Costs:
    """Messages of this size, so many at a time, to a receiver that is about to sleep."""
    draw, wakeups = random.Random(size), 0
    with CountedCalls() as sending, CountedCalls() as receiving:
        for turn in range(MESSAGES // batch):
            head = source.peer_mac + source.local_mac + b"\x85\x5b"
            frames = [head + bytes([7, turn % 256]) + draw.randbytes(size - 16) for _ in range(batch)]
            with receiving.counting():
                assert not sink.arm()
            with sending.counting():
                for frame in frames:
                    source.submit(frame)
                while not source.kick():
                    pass
            came: list[bytes] = []
            sleeps = True
            while len(came) < batch:
                with receiving.counting():
                    if sleeps:
                        assert readable(sink, PATIENCE_S)
                        wakeups += 1
                    sink.disarm()
                    while (found := sink.receive()) is not None:
                        came.append(bytes(found))
                        found.recycle()
                    sink.kick()
                    sleeps = len(came) < batch and not sink.arm()
            assert came == frames
        return Costs(sending.calls() / MESSAGES, receiving.calls() / MESSAGES, wakeups / MESSAGES)


def table(name: str, pair: tuple[Queue, Queue]) -> dict[tuple[int, int], Costs]:
    found = {}
    for size in SIZES:
        for batch in BATCHES:
            costs = found[size, batch] = measured(*pair, size, batch)
            what = f"{name}: {size} bytes, {batch} at a time"
            print(f"{what}: {costs.send_calls:.2f} calls to send, {costs.receive_calls:.2f} to receive, ", end="")
            print(f"{costs.wakeups:.2f} wake-ups")
    return found


@pytest.mark.parametrize("device", ["rxe"], indirect=True)
def test_calls_of_a_message(device: Device, acceptor: Acceptor) -> None:
    """To send it is one call over either, which a batch shares. A wake-up over RDMA costs some calls more: the
    completion channel is asked, read and armed."""
    with over_afxdp() as ends:
        ethernet = table("AF_XDP (veth)", ends)
    with Pair(device, acceptor, OPTIONS) as pair:
        over = table("RDMA (rxe)", (pair.host, pair.proxy))
    for key, costs in over.items():
        assert costs.send_calls <= 1.1 * ethernet[key].send_calls, (key, costs, ethernet[key])
        assert costs.receive_calls <= ethernet[key].receive_calls + 5 * BATCHES[0] / key[1], (key, costs, ethernet[key])
    for costs in (ethernet[64, 16], over[64, 16]):
        assert costs.send_calls < 0.1 and costs.receive_calls < 0.5, "a batch is not one call"


@pytest.mark.parametrize("device", ["rxe"], indirect=True)
def test_calls_of_a_message_that_another_process_carries(device: Device, acceptor: Acceptor) -> None:
    """The worker's own are no more than at a queue pair of its own, and the process between has some for each batch."""
    with CarriedPair(device, acceptor, OPTIONS) as pair:
        carried = table("RDMA (rxe), carried for a worker", (pair.host, pair.proxy))
    rounds = len(SIZES) * sum(MESSAGES // batch for batch in BATCHES)
    print(f"the process that carries: {pair.end.calls / rounds:.1f} calls for a batch")
    with Pair(device, acceptor, OPTIONS) as direct:
        own = table("RDMA (rxe)", (direct.host, direct.proxy))
    for key, costs in carried.items():
        assert costs.send_calls <= 1.1 * own[key].send_calls, (key, costs, own[key])
        assert costs.receive_calls <= own[key].receive_calls, (key, costs, own[key])
    assert pair.end.calls < 12 * rounds


@pytest.mark.parametrize("device", ["rxe"], indirect=True)
def test_copies_of_a_message(device: Device, acceptor: Acceptor) -> None:
    """Software RoCE copies a frame at each end: into a packet of the kernel's, and out of it. The process that carries
    frames for a worker adds none."""
    found = {}
    with Pair(device, acceptor, OPTIONS) as pair:
        found["RDMA (rxe)"] = copies(counted_copies.RXE, pair.host, pair.proxy)
    with CarriedPair(device, acceptor, OPTIONS) as carried:
        found["RDMA (rxe), carried for a worker"] = copies(counted_copies.RXE, carried.host, carried.proxy)
    for name, count in found.items():
        print(f"{name}: {count:.2f} copies by the kernel")
        assert count == pytest.approx(2, abs=0.05), found


@pytest.mark.skipif(not os.environ.get("XTS_VM"), reason="this is not the virtual machine (tests/vm/run)")
def test_copies_of_a_message_over_afxdp() -> None:
    """The same in copy mode. With Linux 7.3 veth makes one more."""
    with over_afxdp() as ends:
        count = copies(counted_copies.AFXDP, *ends)
    print(f"AF_XDP (veth): {count:.2f} copies by the kernel")
    assert round(count) in (2, 3) and count == pytest.approx(round(count), abs=0.05)


def copies(functions: dict[str, str], source: Queue, sink: Queue) -> float:
    """Of a message, in this direction."""
    size, batch = SIZES[-1], BATCHES[-1]
    measured(source, sink, size, batch)  # whatever is done at first
    with counted_copies.counted(functions) as copied:
        measured(source, sink, size, batch)
    return copied.bytes / (MESSAGES * size)
