"""A process dies whose queue repeats lost frames (messages/native/decorators/arq_dead.c): another one goes on with the
session from what it finds in shared memory, over a wire that loses frames, and as often as that happens."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator

import pytest
from beds.examples import examples
from beds.queued_links import EPOCH
from hypothesis import given
from hypothesis import strategies as st
from unit.messages.test_arq import drain
from unit.messages.test_arq_moves import Ends
from xts_messages._native import ffi, lib
from xts_messages.queues.queue import Frame, Queue
from xts_messages.queues.queue_kinds import PROXY, QueueEnd
from xts_messages.queues.shm import create_shm

WINDOW = 16
_ADDRESSES = 12  # bytes of an Ethernet header
STEPS = st.lists(
    st.sampled_from(["to_host", "to_proxy", "to_proxy", "time", "time", "time", "hold", "hold", "give_back", "die"]),
    min_size=20,
    max_size=80,
)


def struct_of(native: object, length: int) -> object:
    """A copy, as it is found in shared memory."""
    found = ffi.new("uint8_t[]", length)
    ffi.memmove(found, native, length)
    return found


def session_of(queue: Queue, below: object, dead: object, length: int, epoch: int = EPOCH) -> bytes:
    addresses = (int(ffi.cast("uintptr_t", one)) for one in (below, dead))
    return queue.dead_session(*addresses, length, epoch)


class Dying(Ends):
    """The proxy holds frames for a while. They come again to the next one, in order and before all others: the last
    ones at least, since this kind of queue gives back those before a frame that has been given back."""

    def __init__(self, seed: int, loss: float) -> None:
        self.held: list[tuple[Frame, bytes]] = []
        self.again: list[bytes] = []
        self.holds = False
        self.dead: list[Queue] = []
        super().__init__(seed, loss)

    def check(self, frame: bytes, sent: bytes) -> None:
        """What the next process sends again has the addresses of the queue, as a link writes them."""
        assert frame[_ADDRESSES:] == sent[_ADDRESSES:]
        assert frame[:_ADDRESSES] in (sent[:_ADDRESSES], self.host.local_mac + self.host.peer_mac)

    def receive(self) -> None:
        while (frame := self.host.receive()) is not None:
            self.check(bytes(frame), self.sent["host"].pop(0))
            frame.recycle()
        while (frame := self.proxy.receive()) is not None:
            data = bytes(frame)
            if data in self.again:
                del self.again[: self.again.index(data) + 1]
            else:
                assert data == self.sent["proxy"].pop(0)
                self.again.clear()
            if self.holds:
                self.held.append((frame, data))
            else:
                frame.recycle()

    def die(self) -> None:
        below = self.proxy.native.inner
        kept = struct_of(below, below.ops.struct_bytes)
        length = self.proxy.native.ops.struct_bytes
        dead = struct_of(self.proxy.native, length)
        descriptors = tuple(os.dup(fd) for fd in self.area.end(PROXY).descriptors)
        end = QueueEnd(self.area.geometry, descriptors)
        queue = end.resume_dead(PROXY, int(ffi.cast("uintptr_t", kept)), len(kept))
        session = session_of(queue, kept, dead, length)
        assert session
        assert session_of(queue, kept, dead, length) == b"", "nobody takes it twice"
        made = queue.repeating(lib.XTS_ARQ_PROXY)
        self.dead.append(self.proxy)
        self.proxy = made
        self.resume(session)
        self.again = [data for _, data in self.held] + self.again
        self.held.clear()
        self.tick()

    def resume(self, session: bytes) -> None:
        for _ in range(400):
            try:
                return self.proxy.resume_dead_session(session)
            except BlockingIOError:  # its host, which has them, is awake
                while (frame := self.host.receive()) is not None:
                    assert bytes(frame) == self.sent["host"].pop(0)
                    frame.recycle()
                self.wire()
        pytest.fail("slots do not come back")

    def step(self, what: str) -> None:
        match what:
            case "hold":
                self.holds = True
            case "give_back":
                self.holds = False
                self.random.shuffle(self.held)
                while self.held:
                    self.held.pop()[0].recycle()
            case "die" if self.loss and self.sent["proxy"]:
                pass  # frames may have come early, and this kind of queue gives some of them back
            case "die":
                self.die()
            case _:
                super().step(what)

    def close(self) -> None:
        super().close()
        for queue in self.dead:
            queue.close()


@given(steps=STEPS, seed=st.integers(0, 2**32), loss=st.sampled_from([0.0, 0.05, 0.3]))
@examples(60)
def test_nothing_is_lost_whenever_it_dies(steps: list[str], seed: int, loss: float) -> None:
    ends = Dying(seed, loss)
    try:
        for step in [*steps, "die", "time", "give_back"]:
            ends.step(step)
        for _ in range(3000):
            if not ends.sent["host"] and not ends.sent["proxy"]:
                break
            ends.time()
        assert ends.sent == {"host": [], "proxy": []}
        assert ends.host.stats.violations == ends.proxy.stats.violations == 0
    finally:
        ends.close()


@pytest.fixture
def ends() -> Iterator[Dying]:
    made = Dying(1, 0.0)
    yield made
    made.close()


def arrive(ends: Dying, numbers: list[int], frames: list[bytes]) -> None:
    """Of what the host has sent, these arrive, in this order, and others are lost."""
    for number in numbers:
        ends.proxy_wire.submit(frames[number])
    ends.proxy_wire.kick()
    ends.receive()


def sent_by_host(ends: Dying, count: int) -> list[bytes]:
    """Frames as they are on the wire."""
    for _ in range(count):
        ends.step("to_proxy")
    ends.host.kick()
    return drain(ends.host_wire)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [1, 2, 0, 3], [3, 2, 1, 0]])
@pytest.mark.parametrize("deaths", [1, 3])
def test_what_had_gone_up_goes_up_again(ends: Dying, order: list[int], deaths: int) -> None:
    """In the order of its numbers, however it had come."""
    frames = sent_by_host(ends, 4)
    sent = list(ends.sent["proxy"])
    ends.step("hold")
    arrive(ends, order, frames)
    assert [data for _, data in ends.held] == sent
    for _ in range(deaths):
        ends.die()
        assert ends.again == sent
        ends.receive()
        assert [data for _, data in ends.held] == sent


def test_what_had_come_early_is_early_again(ends: Dying) -> None:
    """It has been acknowledged, and its host does not send it again."""
    frames = sent_by_host(ends, 4)
    arrive(ends, [1, 3], frames)
    ends.proxy.arm()
    assert ends.proxy.stats.rx_early == 2
    assert len(ends.sent["proxy"]) == 4
    ends.die()
    ends.receive()
    assert len(ends.sent["proxy"]) == 4
    arrive(ends, [0], frames)
    assert len(ends.sent["proxy"]) == 2
    arrive(ends, [2], frames)
    assert ends.sent["proxy"] == []


def test_what_was_not_acknowledged_is_sent_again(ends: Dying) -> None:
    """Once each, whether it had left or not."""
    for number in range(6):
        ends.step("to_host")
        if number == 3:
            ends.proxy.kick()
            drain(ends.proxy_wire)
    ends.die()
    for _ in range(100):
        ends.time()
    assert ends.sent["host"] == []


def test_another_epoch_is_none(ends: Dying) -> None:
    length = ends.proxy.native.ops.struct_bytes
    for epoch in (0, EPOCH + 1):
        dead = struct_of(ends.proxy.native, length)
        assert session_of(ends.proxy_wire, dead, dead, length, epoch) == b""
    assert session_of(ends.proxy_wire, dead, dead, length - 1) == b""


def test_whatever_is_there(ends: Dying) -> None:
    """The dead process may have been broken into: any of these is a session, or none, and nothing else happens."""
    drawn, taken = random.Random(33), 0
    below, length = ends.proxy.native.inner, ends.proxy.native.ops.struct_bytes
    for _ in range(4):
        ends.step("to_host")
    for _ in range(400):
        dead = struct_of(ends.proxy.native, length)
        for _ in range(drawn.randrange(1, 40)):
            at = drawn.randrange(length) if drawn.random() < 0.5 else length - 1 - drawn.randrange(60_000) % length
            dead[at] = drawn.choice([0, 1, 255, drawn.randrange(256)])
        area = create_shm(frame_window=WINDOW)
        with area.open(PROXY) as queue:
            session = session_of(queue, struct_of(below, below.ops.struct_bytes), dead, length)
            with queue.repeating(lib.XTS_ARQ_PROXY) as made:
                result = lib.xts_arq_resume_dead(made.native, session, len(session)) if session else 0
                assert result in (0, -errno.EINVAL, -errno.EAGAIN)
                taken += bool(session) and not result
                made.kick()
        area.close()
    assert taken > 20
