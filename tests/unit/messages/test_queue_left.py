"""A queue that one process leaves, and another goes on with."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest
from beds.examples import examples
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.native import lib
from xts_messages.queues.queue import Frame, Queue, split_state
from xts_messages.queues.queue_kinds import HOST, PROXY, QueueEnd
from xts_messages.queues.shm import ShmArea, create_shm
from xts_messages.wire.wire_table import ETHERTYPE

WINDOW = 16
STEPS = st.lists(st.sampled_from(["to_proxy", "to_host", "read", "hold", "give_back", "move"]), max_size=200)


@pytest.fixture
def area() -> Iterator[ShmArea]:
    made = create_shm(frame_window=WINDOW)
    yield made
    made.close()


def moved(queue: Queue, area: ShmArea) -> Queue:
    """The same end in other hands."""
    state, descriptors = queue.leave()
    queue.close()
    return QueueEnd(area.geometry, descriptors).resume(PROXY, state)


class Ends:
    """Both ends, and what is on its way: nothing may be lost, changed, or come twice."""

    def __init__(self, area: ShmArea) -> None:
        self.area = area
        self.host, self.proxy = area.open(HOST), area.open(PROXY)
        self.sent: dict[str, list[bytes]] = {"host": [], "proxy": []}
        self.held: list[Frame] = []
        self.count = 0

    def send(self, sender: Queue, to: str) -> None:
        self.count += 1
        frame = self.count.to_bytes(4, "big") * 20
        try:
            sender.submit(frame)
        except BlockingIOError:
            return
        sender.kick()
        self.sent[to].append(frame)

    def receive(self, receiver: Queue, name: str, *, hold: bool = False) -> None:
        while (frame := receiver.receive()) is not None:
            assert bytes(frame) == self.sent[name].pop(0)
            if hold and not self.held:
                self.held.append(frame)
            else:
                frame.recycle()

    def step(self, what: str) -> None:
        match what:
            case "to_proxy":
                self.send(self.host, "proxy")
            case "to_host":
                self.send(self.proxy, "host")
            case "read" | "hold":
                self.receive(self.host, "host", hold=what == "hold")
                self.receive(self.proxy, "proxy")
            case "give_back":
                while self.held:
                    self.held.pop().recycle()
            case "move":
                self.proxy = moved(self.proxy, self.area)

    def close(self) -> None:
        self.step("give_back")
        self.host.close()
        self.proxy.close()


@given(steps=STEPS)
@examples(60)
def test_nothing_is_lost_whenever_it_moves(steps: list[str]) -> None:
    area = create_shm(frame_window=WINDOW)
    ends = Ends(area)
    try:
        for step in [*steps, "move", "read", "give_back"]:
            ends.step(step)
        assert ends.sent == {"host": [], "proxy": []}
        for _ in range(3 * WINDOW):  # all slots are there again
            ends.step("to_host")
            ends.step("to_proxy")
            ends.step("read")
        assert ends.sent == {"host": [], "proxy": []}
    finally:
        ends.close()
        area.close()


def test_a_bell_that_rang_for_the_one_before(area: ShmArea) -> None:
    host, proxy = area.open(HOST), area.open(PROXY)
    with host:
        assert not proxy.arm()
        host.send(b"x" * 60)
        with moved(proxy, area) as there:
            frame = there.wait(1000)
            frame.recycle()
            with pytest.raises(TimeoutError):
                there.wait(20)


def test_not_while_a_frame_is_lent_out(area: ShmArea) -> None:
    with area.open(HOST) as host, area.open(PROXY) as proxy:
        host.send(b"x" * 60)
        frame = proxy.receive()
        assert frame
        with pytest.raises(OSError, match="leaving") as failed:
            proxy.leave()
        assert failed.value.errno == errno.EBUSY
        frame.recycle()
        state, descriptors = proxy.leave()
        for wrong in (state[:-1], b"", bytes(len(state))):
            with pytest.raises(OSError, match="going on") as failed:
                QueueEnd(area.geometry, descriptors).resume(PROXY, wrong)
            assert failed.value.errno == errno.EINVAL
        for fd in descriptors:
            os.close(fd)


SECRET, OTHER = 0x1122334455667788, 0x99
NUMBER = 3


@pytest.fixture
def program() -> Iterator[int]:
    """The map of secrets that an XDP program compares."""
    fd = os.memfd_create("secrets")
    os.truncate(fd, 2048)
    yield fd
    os.close(fd)


def let_through(program: int) -> int:
    return int.from_bytes(os.pread(program, 8, 8 * NUMBER), "big")


def moved_with_heads(queue: Queue, area: ShmArea, program: int) -> Queue:
    state, descriptors = queue.leave()
    queue.close()
    below, heads = split_state(state)
    made = QueueEnd(area.geometry, descriptors).resume(PROXY, below)
    return made.headed(number=NUMBER, secrets_fd=program, state=heads)


def message(queue: Queue) -> bytes:
    """A frame that heads can be put on."""
    return queue.peer_mac + queue.local_mac + ETHERTYPE.to_bytes(2, "big") + bytes([7]) + bytes(60)


def test_heads_go_on_with_the_epoch(area: ShmArea, program: int) -> None:
    """Whoever has the queue next hears those who know the secret, and nobody else; and so it was in between."""
    proxy = area.open(PROXY).headed(number=NUMBER, secrets_fd=program)
    with area.open(HOST).headed(SECRET, NUMBER) as host:
        host.send(message(host))
        proxy.wait(1000).recycle()
        lib.xts_headed_epoch(proxy.native)
        assert let_through(program) == SECRET
        host.send(message(host))
        proxy = moved_with_heads(proxy, area, program)
        assert let_through(program) == SECRET
        proxy.wait(1000).recycle()
        proxy.send(message(proxy))
        host.wait(1000).recycle()
    proxy.close()
    assert let_through(program) == 0


def test_heads_that_go_on_hear_nobody_else(area: ShmArea, program: int) -> None:
    heads = bytes([1, 1]) + SECRET.to_bytes(8, "big")
    proxy = area.open(PROXY).headed(number=NUMBER, secrets_fd=program, state=heads)
    with proxy, area.open(HOST).headed(OTHER, NUMBER) as other:
        other.send(message(other))
        assert proxy.receive() is None
        assert proxy.stats.rx_foreign == 1


def test_heads_without_an_epoch(area: ShmArea, program: int) -> None:
    with moved_with_heads(area.open(PROXY).headed(number=NUMBER, secrets_fd=program), area, program) as proxy:
        assert let_through(program) == 0
        with area.open(HOST).headed(OTHER, NUMBER) as host:
            host.send(message(host))
            proxy.wait(1000).recycle()


@pytest.mark.parametrize("died", [False, True])
@pytest.mark.parametrize(
    "state", [bytes(9), bytes([1, 0, *bytes(7), 1]), bytes([2, *bytes(9)]), bytes([1, 7, *bytes(8)])]
)
def test_a_state_of_heads_that_cannot_be(area: ShmArea, program: int, state: bytes, died: bool) -> None:
    with pytest.raises(OSError, match="going on with heads"):
        area.open(PROXY).headed(number=NUMBER, secrets_fd=program, state=state, died=died)
