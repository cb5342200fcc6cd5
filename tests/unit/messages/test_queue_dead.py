"""A queue over shared memory whose process has died, and what is found of it where another queue may have been."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack, closing

import pytest
from xts_messages.native import ffi
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import HOST, PROXY, QueueEnd
from xts_messages.queues.shm import ShmArea, create_shm
from xts_messages.wire.wire_table import ETHERTYPE


def struct_of(queue: Queue) -> bytes:
    return bytes(ffi.buffer(queue.native, queue.native.ops.struct_bytes))


def struct_of_innermost(queue: Queue) -> bytes:
    native = queue.native
    while native.inner:
        native = native.inner
    return bytes(ffi.buffer(native, native.ops.struct_bytes))


def goes_on(area: ShmArea, dead: bytes) -> Queue:
    kept = ffi.from_buffer(dead)
    end = QueueEnd(area.geometry, tuple(os.dup(fd) for fd in area.end(PROXY).descriptors))
    return end.resume_dead(PROXY, int(ffi.cast("uintptr_t", kept)), len(dead))


def passes(sender: Queue, receiver: Queue, count: int) -> None:
    for number in range(count):
        sender.send(b"%d" % number)
        sender.kick()
        frame = receiver.receive()
        assert frame is not None
        assert bytes(frame) == b"%d" % number
        frame.recycle()
        receiver.kick()


@pytest.mark.parametrize("count", [0, 1, 3, 300])
def test_what_another_queue_has_left_is_none_of_this_one(count: int) -> None:
    """It had the same number, and the process died before it had this one."""
    before, area = create_shm(), create_shm()
    with closing(before), closing(area), before.open(HOST) as other, before.open(PROXY) as left:
        passes(other, left, count)
        passes(left, other, count)
        with area.open(HOST) as host, goes_on(area, struct_of(left)) as proxy:
            passes(host, proxy, 400)
            passes(proxy, host, 400)


@pytest.mark.parametrize("count", [0, 1, 3, 300])
def test_its_own_goes_on(count: int) -> None:
    area = create_shm()
    with closing(area), area.open(HOST) as host, area.open(PROXY) as dead:
        passes(host, dead, count)
        passes(dead, host, count)
        with goes_on(area, struct_of(dead)) as proxy:
            passes(host, proxy, 400)
            passes(proxy, host, 400)


@pytest.mark.parametrize("before", [0, 1, 250, 300])
@pytest.mark.parametrize("kept", [{0, 1, 4, 6, 7}, {0}, {7}, {0, 7}, set(range(8)), set()])
def test_what_was_not_given_back_comes_again_with_gaps(before: int, kept: set[int]) -> None:
    """Channels behind a relay give frames back each in its own time. Those that wait come behind."""
    area = create_shm()
    with closing(area), area.open(HOST) as host, area.open(PROXY) as dead:
        passes(host, dead, before)
        for number in range(10):
            host.send(b"frame %d" % number)
        host.kick()
        frames = [dead.receive() for _ in range(8)]
        for number, frame in enumerate(frames):
            assert frame is not None
            if number not in kept:
                frame.recycle()
        dead.kick()
        with goes_on(area, struct_of(dead)) as proxy:
            for number in sorted(kept | {8, 9}):
                frame = proxy.receive()
                assert frame is not None and bytes(frame) == b"frame %d" % number
                frame.recycle()
            assert proxy.receive() is None
            passes(host, proxy, 400)
            passes(proxy, host, 400)


SECRET = 0x1122334455667788
HEADS = bytes([1, 1]) + SECRET.to_bytes(8, "big")


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_what_it_had_taken_comes_again_with_heads(taken: int) -> None:
    """It has taken the head off these. Two die, and the third hears all, in order."""
    area = create_shm()
    with closing(area), area.open(HOST).headed(SECRET) as host, ExitStack() as dead:
        addresses = host.peer_mac + host.local_mac + ETHERTYPE.to_bytes(2, "big")
        frames = [addresses + bytes([7, number]) + bytes(60) for number in range(8)]
        for frame in frames:
            host.send(frame)
        proxy = dead.enter_context(area.open(PROXY).headed(state=HEADS))
        for _ in range(2):
            for frame in frames[:taken]:
                held = proxy.receive()
                assert held is not None
                assert bytes(held) == frame
            proxy = dead.enter_context(goes_on(area, struct_of_innermost(proxy)).headed(state=HEADS, died=True))
        for frame in frames:
            held = proxy.receive()
            assert held is not None
            assert bytes(held) == frame
            held.recycle()
        assert proxy.receive() is None
        assert proxy.stats.rx_foreign == 0


def test_one_that_contradicts_itself_is_not_taken_for_the_end_of_the_workers() -> None:
    """Whose calls end with EPIPE: the supervisor would end the proxy."""
    area = create_shm()
    with closing(area), area.open(HOST), area.open(PROXY) as dead:
        said = struct_of(dead)
        number = os.fstat(area.memfd).st_ino.to_bytes(8, "little")
        known = said.index(number)
        with pytest.raises(OSError, match="going on with") as refused:
            goes_on(area, b"\xff" * known + number + b"\xff" * (len(said) - known - 8))
        assert refused.value.errno == errno.EBADMSG
