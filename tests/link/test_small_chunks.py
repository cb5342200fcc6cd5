"""AF_XDP queues whose chunks are half as large, for wires on which each frame fits into one: what is refused, what they
take of memory, what is found when their process dies, and what a library gets that does not know them."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from beds.patience import SLOWER
from beds.running_agent import start_agent, stop, until
from beds.veth_wire import Wire, make_wire
from xts_bpf.device import open_device_queues
from xts_bpf.program import SteerProgram
from xts_messages.attaching.attach import Attachment, attach, list_queues
from xts_messages.native import ffi, lib
from xts_messages.queues.afxdp import (
    CHUNK,
    SMALL_CHUNK,
    SMALL_CHUNK_MTU,
    SMALL_CHUNKS_SAID,
    XskSocket,
    has_huge_pages,
    open_socket,
)
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import HOST, QueueEnd, QueueOptions

pytestmark = [pytest.mark.root, pytest.mark.afxdp]
ETHERTYPE = b"\x85\x5b"
OLDER = "struct xts_attach_request *"


@pytest.fixture
def short() -> Iterator[Wire]:
    yield from make_wire(1500)


def frame_for(queue: Queue, number: int, size: int = 1514) -> bytes:
    head = queue.peer_mac + queue.local_mac + ETHERTYPE + bytes([7, number % 256])
    return head + number.to_bytes(4) * ((size - len(head)) // 4)


def take(queue: Queue) -> bytes:
    frame = queue.wait(2000)
    data = bytes(frame)
    frame.recycle()
    return data


def copy_of(xsk: XskSocket, geometry: Any = None) -> QueueEnd:
    return QueueEnd(geometry or xsk.geometry, (os.dup(xsk.xsk_fd), os.dup(xsk.umem_fd)))


@pytest.mark.parametrize("mtu", [SMALL_CHUNK_MTU, SMALL_CHUNK_MTU + 1])
def test_the_largest_mtu(mtu: int) -> None:
    """A frame fits with two tags and the checksum; what does not fit is refused, and says what to do."""
    fits = mtu == SMALL_CHUNK_MTU
    for wire in make_wire(mtu):
        with wire.inside(wire.host):
            with open_socket(wire.host_if, 0) as xsk:
                assert xsk.geometry.chunk_bytes == (SMALL_CHUNK if fits else CHUNK)
            with open_socket(wire.host_if, 1, QueueOptions(chunk_bytes=CHUNK)) as xsk:
                assert xsk.geometry.chunk_bytes == CHUNK
            try:
                with open_socket(wire.host_if, 2, QueueOptions(chunk_bytes=SMALL_CHUNK)) as xsk:
                    assert fits and xsk.geometry.chunk_bytes == SMALL_CHUNK
            except OSError as error:
                assert not fits and error.errno == errno.EOVERFLOW
                assert "the MTU is above 1766" in str(error) and 'set chunk_bytes = "auto"' in str(error)
            for size in (1, 1024, 8192):
                with pytest.raises(OSError) as refused:
                    open_socket(wire.host_if, 3, QueueOptions(chunk_bytes=size))
                assert refused.value.errno == errno.EINVAL


@pytest.mark.parametrize("kept_max", [0, 33])
def test_half_the_memory(short: Wire, kept_max: int) -> None:
    """Also where that is no whole number of pages."""
    with short.inside(short.host):
        sizes = []
        for number, chunk_bytes in enumerate((CHUNK, SMALL_CHUNK)):
            options = QueueOptions(chunk_bytes=chunk_bytes, kept_max=kept_max)
            with open_socket(short.host_if, number, options) as xsk, copy_of(xsk).adopt(HOST):
                sizes.append(os.fstat(xsk.umem_fd).st_size)
    assert sizes == [(448 + kept_max) * CHUNK, (448 + kept_max) * SMALL_CHUNK]


@pytest.mark.parametrize(
    "wrong",
    [
        {"chunk_bytes": 0},
        {"chunk_bytes": 1},
        {"chunk_bytes": 1024},
        {"chunk_bytes": 2047},
        {"chunk_bytes": 8192},
        {"chunk_bytes": 2**31},
        {"chunk_bytes": CHUNK},
        {"slot_bytes": CHUNK},
        {"slot_bytes": 0},
        {"slot_bytes": 61440},
        {"largest_message": 1793},
        {"largest_message": 2048},
        {"rx_chunks": 8192},
        {"tx_slots": 225},
    ],
    ids=str,
)
def test_a_geometry_that_cannot_be(short: Wire, wrong: dict[str, int]) -> None:
    with short.inside(short.host), open_socket(short.host_if, 0) as xsk:
        geometry = ffi.new("struct xts_attach_reply *")
        geometry[0] = xsk.geometry[0]
        for name, value in wrong.items():
            setattr(geometry, name, value)
        end = copy_of(xsk, geometry)
        with pytest.raises(OSError) as refused:
            end.adopt(HOST)
        end.close()
        assert refused.value.errno in (errno.EINVAL, errno.EBADF)


@pytest.mark.parametrize("chunk_bytes", [CHUNK, SMALL_CHUNK])
@pytest.mark.parametrize("given_back", [set(), {0}, {1, 2}, {0, 1, 2, 3, 4}])
def test_a_queue_whose_process_has_died(short: Wire, chunk_bytes: int, given_back: set[int]) -> None:
    """What it had received and not given back comes again, what it had written and not published is sent, and no chunk
    is lost."""
    options = QueueOptions(frame_window=4, chunk_bytes=chunk_bytes)
    with ExitStack() as stack:
        with short.inside(short.device):
            device = stack.enter_context(open_device_queues(short.device_if, 1, short.host_mac, options=options))
        with short.inside(short.host):
            program = stack.enter_context(SteerProgram(short.host_if, short.device_mac))
            xsk = stack.enter_context(open_socket(short.host_if, 0, options))
            program.admit(0, xsk.xsk_fd)
        xsk.set_addresses(short.host_mac, short.device_mac)
        source, dead = device.queues[0], copy_of(xsk).adopt(HOST)
        for number in range(8):
            source.send(frame_for(source, number))
        held = [dead.wait(2000) for _ in range(5)]
        for number in given_back:
            held[number].recycle()
        dead.submit(frame_for(dead, 77))
        left = bytes(ffi.buffer(dead.native, dead.native.ops.struct_bytes))
        kept = ffi.from_buffer(left)
        queue = copy_of(xsk).resume_dead(HOST, int(ffi.cast("uintptr_t", kept)), len(left))
        stack.enter_context(queue)
        again = [number for number in range(8) if number not in given_back]
        assert [take(queue) for _ in again] == [frame_for(source, number) for number in again]
        queue.kick()
        assert take(source) == frame_for(queue, 77)
        for number in range(3 * int(xsk.geometry.rx_chunks)):
            source.send(frame_for(source, number))
            assert take(queue) == frame_for(source, number)
        for number in range(int(xsk.geometry.tx_slots) + 4):
            queue.send(frame_for(queue, number))
            assert take(source) == frame_for(queue, number)
        assert queue.stats.rx_dropped == queue.stats.rx_invalid == 0
        dead.close()


def attached_as_before(endpoint: str) -> tuple[Any, list[int], socket.socket]:
    """The reply to the request of an older library, whose program's name goes on where ours says what it knows."""
    request = ffi.new(OLDER, {"magic": lib.XTS_ATTACH_MAGIC, "version": lib.XTS_ATTACH_VERSION})
    request.waits = lib.XTS_ATTACH_WAITS
    ffi.memmove(ffi.addressof(request.program), b"a program whose name is as long as it may be, and no longer", 59)
    way = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    way.settimeout(20)
    way.connect(endpoint)
    way.send(bytes(ffi.buffer(request)))
    reply = ffi.new("struct xts_attach_reply *")
    while True:
        answer, fds, _, _ = socket.recv_fds(way, 8192, 8)
        if len(answer) == ffi.sizeof(reply[0]):
            break
    ffi.memmove(reply, answer, len(answer))
    assert reply.error == 0, ffi.string(reply.reason)
    return reply, fds, way


def attached_soon(endpoint: str) -> Attachment:
    """The kernel may take its time to close the queue of the one before, which is the only one."""
    deadline = time.monotonic() + 10 * SLOWER
    while True:
        try:
            return attach(endpoint)
        except OSError as error:
            if error.errno != errno.EUSERS or time.monotonic() > deadline:
                raise


def echoed(queue: Queue, device: Queue) -> None:
    while (old := device.receive()) is not None:  # a predecessor's GOODBYE
        old.recycle()
    for number in range(300):
        queue.send(frame_for(queue, number))
        assert take(device) == frame_for(queue, number)
        device.send(frame_for(device, number))
        assert take(queue) == frame_for(device, number)


@pytest.mark.parametrize("options", [["--queues", "1"], ["--queues", "3", "--spares", "1"], ["--chunk-bytes", "2048"]])
def test_a_library_that_does_not_know_them_gets_others(short: Wire, folder: str, options: list[str]) -> None:
    """As often as it asks, and whoever has had the queue; all others get small ones."""
    endpoint = f"{folder}/endpoint.sock"
    agent = start_agent(short, endpoint, *options, "--relayed-max", "0")
    try:
        with short.inside(short.device):
            device = open_device_queues(short.device_if, 8, short.host_mac)
        with device:
            for _ in range(2):
                with attached_soon(endpoint) as attachment:
                    assert attachment.queue.largest_message == 1514
                    assert attachment.chunk_bytes == SMALL_CHUNK
                    until(lambda: all(one.copying.endswith(SMALL_CHUNKS_SAID) for one in list_queues(endpoint)))
                    echoed(attachment.queue, device.queues[attachment.queue_id])
                reply, (xsk, memory, status), way = attached_as_before(endpoint)
                os.close(status)
                assert (reply.chunk_bytes, reply.slot_bytes, reply.largest_message) == (CHUNK, CHUNK, 1514)
                with way, QueueEnd(reply, (xsk, memory)).adopt(HOST) as queue:
                    echoed(queue, device.queues[int(reply.queue_id)])
    finally:
        assert stop(agent) == 0


def test_an_agent_that_is_to_have_them_where_they_do_not_fit(wire: Wire, folder: str) -> None:
    command = [sys.executable, "-m", "xts_agent", "--interface", wire.host_if, "--peer-mac", wire.device_mac.hex(":")]
    command += ["--endpoint", f"{folder}/endpoint.sock", "--chunk-bytes", "2048"]
    with wire.inside(wire.host):
        done = subprocess.run(command, capture_output=True, text=True, timeout=20 * SLOWER, check=False)
    assert done.returncode and "the MTU is above 1766, and such frames do not fit" in done.stderr


def test_in_huge_pages(short: Wire) -> None:
    """As far as there are free ones; with them the memory's end is no matter of chunks."""
    with short.inside(short.host):
        for number, chunk_bytes in enumerate((CHUNK, SMALL_CHUNK)):
            options = QueueOptions(chunk_bytes=chunk_bytes, huge_pages=True)
            with open_socket(short.host_if, number, options) as xsk, copy_of(xsk).adopt(HOST) as queue:
                assert queue.largest_message == 1514
                assert os.fstat(xsk.umem_fd).st_size == (2 << 20 if has_huge_pages(xsk.umem_fd) else 448 * chunk_bytes)
