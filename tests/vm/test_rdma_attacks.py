"""Peers of an RDMA queue that keep to no rule, and peers that go: the queue ends, and nothing else happens."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from beds.patience import SLOWER
from beds.rdma import PATIENCE_S, Acceptor, Device, Pair, until_readable
from xts_messages._native import ffi, lib
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import HOST, PROXY, RDMA, QueueEnd, QueueOptions
from xts_messages.queues.rdma import RdmaEnd
from xts_messages.queues.rdma_cm import Options, connect

#: The attacker does the steps of RoCE.
pytestmark = pytest.mark.parametrize("device", ["rxe"], indirect=True)
PROGRAMS = Path(__file__).with_name("programs")
SMALL = QueueOptions(16)
#: An attacker, the queue that it is connected to, and its numbers.
Attacked = tuple[Any, Queue, Any]


def ends_with(queue: Queue) -> list[bytes]:
    """What still comes, until the queue says that it has ended."""
    frames = []
    with pytest.raises(BrokenPipeError):
        while True:
            frame = queue.receive()
            if frame is None:
                until_readable(queue)
                continue
            frames.append(bytes(frame))
            frame.recycle()
    return frames


@contextmanager
def accepted(device: Device, acceptor: Acceptor) -> Iterator[tuple[RdmaEnd, list[int]]]:
    """An end that is accepted for while inside, and is the caller's then; the list has its life at the end."""
    end, came = RdmaEnd(device.ifindex, SMALL), list[int]()
    accepting = threading.Thread(target=lambda: came.append(acceptor.accept(end)))
    accepting.start()
    yield end, came
    accepting.join(PATIENCE_S)


@pytest.fixture
def acceptor(device: Device) -> Iterator[Acceptor]:
    """One for each test, so that a peer that misbehaves spoils no other."""
    with Acceptor(device.address) as made:
        yield made


# --- requests ----------------------------------------------------------------------------------------------


@pytest.fixture
def attacked(device: Device, acceptor: Acceptor) -> Iterator[Attacked]:
    """An attacker, and the queue that it is connected to."""
    from beds.rdma_attacker import Attacker

    with accepted(device, acceptor) as (end, came):
        attacker = Attacker(device, acceptor.service)
    numbers = end.numbers
    with end.adopt(PROXY, came[0]) as queue, attacker:
        yield attacker, queue, numbers
    while acceptor.hear() != b"ended":
        pass


def test_nothing_is_open_to_a_peers_writes_and_reads(attacked: Attacked) -> None:
    """The attacker has everything: the key, and an address that is a buffer's."""
    import pyverbs.enums as e

    attacker, queue, numbers = attacked
    attacker.post(e.IBV_WR_SEND, 100, flags=e.IBV_SEND_SOLICITED)
    frame = queue.wait(60_000)
    there = frame._native.segment[0].iov_base
    before = bytes(frame)
    attacker.memory.write(b"\xff" * 100, 100)
    attacker.outcome()
    attacker.post(e.IBV_WR_RDMA_WRITE, 100, to=(int(numbers.rkey), int(ffi.cast("uintptr_t", there))))
    assert attacker.outcome() in (e.IBV_WC_REM_ACCESS_ERR, e.IBV_WC_REM_INV_REQ_ERR)
    assert bytes(frame) == before
    frame.recycle()
    assert ends_with(queue) == []


def test_nothing_is_open_to_a_peers_reads(attacked: Attacked) -> None:
    import pyverbs.enums as e

    attacker, queue, numbers = attacked
    attacker.post(e.IBV_WR_SEND, 100, flags=e.IBV_SEND_SOLICITED)
    frame = queue.wait(60_000)
    there = int(ffi.cast("uintptr_t", frame._native.segment[0].iov_base))
    attacker.outcome()
    attacker.post(e.IBV_WR_RDMA_READ, 100, to=(int(numbers.rkey), there))
    assert attacker.outcome() in (e.IBV_WC_REM_ACCESS_ERR, e.IBV_WC_REM_INV_REQ_ERR)
    frame.recycle()
    assert ends_with(queue) == []


def test_what_is_no_frame_is_counted_and_its_buffer_is_there_again(attacked: Attacked) -> None:
    import pyverbs.enums as e

    attacker, queue, _ = attacked
    for turn in range(100):  # more than there are buffers
        attacker.post(e.IBV_WR_SEND, 0, flags=e.IBV_SEND_SOLICITED)
        assert attacker.outcome() == e.IBV_WC_SUCCESS
        while queue.stats.rx_invalid <= turn:
            assert queue.receive() is None
        queue.kick()
    attacker.post(e.IBV_WR_SEND_WITH_IMM, 60, flags=e.IBV_SEND_SOLICITED, imm=7)
    frame = queue.wait(60_000)
    assert len(frame) == 60
    frame.recycle()


def test_a_peer_that_sends_without_credits_ends_itself(attacked: Attacked) -> None:
    """Its hardware is told to wait, some times. What it had sent stays, and no more than there are buffers for."""
    import pyverbs.enums as e

    attacker, queue, _ = attacked
    for _ in range(16 + 32 + 1):
        attacker.post(e.IBV_WR_SEND, 60)
    outcomes = [attacker.outcome() for _ in range(16 + 32 + 1)]
    assert outcomes == [e.IBV_WC_SUCCESS] * 48 + [e.IBV_WC_RNR_RETRY_EXC_ERR]
    for _ in range(48):
        frame = queue.receive()
        assert frame is not None
        frame.recycle()


def test_an_oversize_message_ends_the_queue(device: Device, acceptor: Acceptor) -> None:
    with Pair(device, acceptor, SMALL, QueueOptions(16, single_chunk=True)) as pair:
        pair.host.send(bytes(3000))
        pair.host.send(bytes(20_000))
        assert ends_with(pair.proxy) == [bytes(3000)]
        assert pair.proxy.stats.rx_invalid == 1 and pair.proxy.stats.rx_frames == 1
        with pytest.raises(OSError, match="kick"):
            while True:
                pair.host.send(bytes(60))
        with pytest.raises(OSError, match="kick"):
            pair.proxy.send(bytes(60))


# --- connecting --------------------------------------------------------------------------------------------


def test_who_connects_while_another_is_connected_is_refused(device: Device, acceptor: Acceptor) -> None:
    with Pair(device, acceptor, SMALL) as pair:
        with RdmaEnd(device.ifindex, SMALL) as third, pytest.raises(ConnectionError, match="REJECTED"):
            connect(device.address, acceptor.service, third.qp_number, third.step)
        pair.host.send(bytes(60))
        pair.proxy.wait(60_000).recycle()


def test_nobody_listens_there(device: Device) -> None:
    with RdmaEnd(device.ifindex, SMALL) as end, pytest.raises(OSError, match="RDMA peer"):
        connect(device.address, 7, end.qp_number, end.step)


def test_the_time_out_of_acknowledgements_is_what_was_asked_for(device: Device, acceptor: Acceptor) -> None:
    steps: list[int] = []
    with accepted(device, acceptor) as (end, came), RdmaEnd(device.ifindex, SMALL) as mine:

        def step(data: bytes) -> None:
            steps.append(int(ffi.from_buffer("struct xts_rdma_step *", data).timeout))
            mine.step(data)

        connection = connect(device.address, acceptor.service, mine.qp_number, step, Options(15))
    with end.adopt(PROXY, came[0]), connection:
        assert steps[-1] == 15
    while acceptor.hear() != b"ended":
        pass


# --- ends --------------------------------------------------------------------------------------------------


def test_a_killed_peer_shows_while_we_sleep(device: Device, acceptor: Acceptor) -> None:
    """No GOODBYE: its kernel says it."""
    with accepted(device, acceptor) as (end, came):
        ours, theirs = socket.socketpair()
        with theirs:
            words = [str(device.ifindex), device.address, str(acceptor.service), str(theirs.fileno())]
            program = [sys.executable, str(PROGRAMS / "rdma_sender.py")]
            peer = subprocess.Popen([*program, *words], pass_fds=(theirs.fileno(),))
    with end.adopt(PROXY, came[0]) as queue, ours:
        frame = queue.wait(60_000)
        assert bytes(frame) == b"here" * 20
        frame.recycle()
        peer.send_signal(signal.SIGKILL)
        peer.wait()
        assert ends_with(queue) == []
    while acceptor.hear() != b"ended":
        pass


def test_a_peer_that_is_cut_off_shows_by_time(device: Device, acceptor: Acceptor) -> None:
    """The hardware gives up repeating. Nothing says so but the queue itself."""
    with Pair(device, acceptor, SMALL, how=Options(ack_timeout=8)) as pair:
        with device.cut():
            pair.host.send(bytes(60))
            assert ends_with(pair.host) == []


def test_an_end_is_this_processes(device: Device, acceptor: Acceptor) -> None:
    with accepted(device, acceptor) as (end, came), RdmaEnd(device.ifindex, SMALL) as mine:
        with pytest.raises(OSError, match="not connected"):
            mine.adopt(HOST, 0)
        connection = connect(device.address, acceptor.service, mine.qp_number, mine.step)
    child = os.fork()
    if not child:
        status = 0
        try:
            end.adopt(PROXY, came[0])
        except OSError as error:
            status = error.errno or 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == errno.EBADF
    with end.adopt(PROXY, came[0]), connection:
        pass
    while acceptor.hear() != b"ended":
        pass


@pytest.mark.parametrize("field, value", [("frame_window", 3), ("largest_message", 61_441), ("tx_slots", 200)])
def test_a_geometry_that_lies_is_refused(device: Device, field: str, value: int) -> None:
    with RdmaEnd(device.ifindex, SMALL) as end:
        setattr(end.geometry, field, value)
        with pytest.raises(OSError, match="adopting"):
            end.adopt(HOST, 0)


def test_a_descriptor_of_another_kind_is_refused(device: Device) -> None:
    with RdmaEnd(device.ifindex, SMALL) as end, pytest.raises(OSError, match="Bad file"):
        QueueEnd(end.geometry, (0, 1)).adopt(HOST)


def test_the_limit_of_locked_memory_is_named(device: Device) -> None:
    words = [sys.executable, str(PROGRAMS / "rdma_locked.py"), str(device.ifindex)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=12 * SLOWER, check=False)
    assert "a limit of 65536 bytes (LimitMEMLOCK)" in done.stdout, done.stdout + done.stderr


def test_no_such_device(device: Device) -> None:
    with pytest.raises(OSError, match="no RDMA device at this interface"):
        RdmaEnd(socket.if_nametoindex("lo"), SMALL)
    assert lib.xts_queue_kind(RDMA).number == RDMA
