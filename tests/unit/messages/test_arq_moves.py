"""A queue that repeats lost frames goes to another process (messages/native/decorators/arq_session.c): its host's
session goes on, over a wire that loses frames, and of a host that sleeps meanwhile."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator

import pytest
from beds.examples import examples
from beds.queued_links import EPOCH, MS
from hypothesis import given
from hypothesis import strategies as st
from unit.messages.test_arq import drain, inner
from xts_messages._native import lib
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import HOST, PROXY, QueueEnd
from xts_messages.queues.shm import create_shm, open_shm_pair

WINDOW = 16
STEPS = st.lists(
    st.sampled_from(["to_host", "to_proxy", "to_host", "to_proxy", "time", "asleep", "awake", "move"]), max_size=60
)
PATIENCE_MS = 400  # of a move: more than a process takes to settle


class Ends:
    """A host and a proxy, and between them a wire that loses some of the frames. All of them arrive, once each and in
    order, whoever is the proxy."""

    def __init__(self, seed: int, loss: float) -> None:
        self.random, self.loss, self.now_ns, self.asleep, self.count = random.Random(seed), loss, MS, False, 0
        host, self.host_wire = open_shm_pair(WINDOW)
        self.area = create_shm(frame_window=WINDOW)
        self.proxy_wire = self.area.open(HOST)
        self.host = host.repeating(lib.XTS_ARQ_HOST, EPOCH)
        self.proxy = self.area.open(PROXY).repeating(lib.XTS_ARQ_PROXY)
        self.sent: dict[str, list[bytes]] = {"host": [], "proxy": []}
        self.tick()
        self.open()

    def open(self) -> None:
        """Before there is a session, frames of a proxy have no head, and may be lost."""
        loss, self.loss = self.loss, 0.0
        self.step("to_proxy")
        for _ in range(3):
            self.time()
        self.loss = loss

    def tick(self) -> None:
        for end in (self.host, self.proxy):
            end.tick(self.now_ns)

    def send(self, sender: Queue, to: str) -> None:
        self.count += 1
        frame = inner(self.count, 60 + self.count % 40)
        try:
            sender.submit(frame)
        except BlockingIOError:
            return
        self.sent[to].append(frame)

    def wire(self) -> None:
        for source, sink in ((self.host_wire, self.proxy_wire), (self.proxy_wire, self.host_wire)):
            for frame in drain(source):
                if self.random.random() >= self.loss:
                    sink.submit(frame)
            source.kick()
            sink.kick()

    def receive(self) -> None:
        for name, end in (("host", self.host), ("proxy", self.proxy)):
            if name == "host" and self.asleep:
                continue
            for frame in drain(end):
                assert frame == self.sent[name].pop(0)

    def time(self, *, proxy: bool = True) -> None:
        """A millisecond. `proxy`: it takes what has come."""
        self.now_ns += MS
        if not self.asleep:
            self.host.tick(self.now_ns)
            self.host.kick()
        if proxy:
            self.proxy.tick(self.now_ns)
            self.proxy.kick()
        self.wire()
        if proxy:
            self.receive()
        elif not self.asleep:
            for frame in drain(self.host):
                assert frame == self.sent["host"].pop(0)

    def move(self) -> None:
        for _ in range(PATIENCE_MS):
            try:
                session = self.proxy.settle(self.now_ns)
                break
            except BlockingIOError:
                self.time(proxy=False)
        else:
            pytest.fail("it does not settle")
        state, descriptors = self.proxy.leave()
        self.proxy.close()
        queue = QueueEnd(self.area.geometry, descriptors).resume(PROXY, state)
        self.proxy = queue.repeating(lib.XTS_ARQ_PROXY, session=session)
        self.tick()

    def step(self, what: str) -> None:
        match what:
            case "to_host":
                self.send(self.proxy, "host")
            case "to_proxy":
                self.send(self.host, "proxy")
            case "asleep" | "awake":
                self.asleep = what == "asleep"
            case "time":
                self.time()
            case "move" if self.has_nothing_early:
                self.move()

    @property
    def has_nothing_early(self) -> bool:
        """A session with frames that came early does not go on."""
        return self.count > 0 and not self.sent["proxy"]

    def close(self) -> None:
        for queue in (self.host, self.proxy, self.host_wire, self.proxy_wire):
            queue.close()
        self.area.close()


@given(steps=STEPS, seed=st.integers(0, 2**32), loss=st.sampled_from([0.0, 0.05, 0.3]))
@examples(60)
def test_nothing_is_lost_whenever_it_moves(steps: list[str], seed: int, loss: float) -> None:
    ends = Ends(seed, loss)
    try:
        for step in [*steps, "awake", "time", "time", "move"]:
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
def ends() -> Iterator[Ends]:
    made = Ends(1, 0.0)
    yield made
    made.close()


def test_what_comes_meanwhile_is_the_next_ones(ends: Ends) -> None:
    """A frame that the process before has seen, and not taken."""
    ends.asleep = True
    ends.step("to_host")
    with pytest.raises(BlockingIOError):
        ends.proxy.settle(ends.now_ns)
    ends.asleep = False
    ends.step("to_proxy")
    ends.time(proxy=False)
    ends.move()
    assert len(ends.sent["proxy"]) == 1
    for _ in range(100):
        ends.time()
    assert ends.sent == {"host": [], "proxy": []}


def test_a_host_that_sleeps_hears_it_later(ends: Ends) -> None:
    ends.asleep = True
    for _ in range(5):
        ends.step("to_host")
    before_ns = ends.now_ns
    ends.move()
    assert ends.now_ns - before_ns < 200 * MS
    ends.time()
    ends.asleep = False
    for _ in range(100):
        ends.time()
    assert ends.sent == {"host": [], "proxy": []}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda session: session[:-1], id="cut"),
        pytest.param(lambda session: session + b"?", id="longer"),
        pytest.param(lambda session: b"\2" + session[1:], id="another version"),
        pytest.param(lambda session: session[:1] + b"\xff" + session[2:], id="more epochs than there is room for"),
        pytest.param(lambda session: session[:4] + bytes(8) + session[12:], id="no epoch"),
        pytest.param(lambda session: session[:20] + b"\xff\xff\xff\xff" + session[24:], id="more frames than slots"),
        pytest.param(lambda session: session[:48] + b"\0\0\0\1" + session[52:], id="a frame of a byte"),
        pytest.param(lambda session: session[:48] + b"\0\1\0\0" + session[52:], id="a frame that is longer"),
        pytest.param(lambda session: b"", id="empty"),
    ],
)
def test_what_is_no_session(ends: Ends, change: object) -> None:
    """It comes from a process that may be broken into."""
    assert callable(change)
    ends.asleep = True
    ends.step("to_host")
    while True:
        try:
            session = ends.proxy.settle(ends.now_ns)
            break
        except BlockingIOError:
            ends.time(proxy=False)
    with create_shm(frame_window=WINDOW).open(PROXY).repeating(lib.XTS_ARQ_PROXY) as queue:
        made = bytes(change(session))
        assert lib.xts_arq_resume(queue.native, made, len(made)) == -errno.EINVAL
        queue.kick()
        assert lib.xts_arq_resume(queue.native, session, len(session)) == 0, "and what was taken of it is free again"


def test_early_frames_stay_here(ends: Ends) -> None:
    """They are acknowledged, and in buffers that stay. The next process has no session, and its host begins again."""
    ends.loss = 1.0
    ends.step("to_proxy")
    ends.host.kick()
    ends.wire()
    ends.loss = 0.0
    ends.step("to_proxy")
    ends.host.kick()
    ends.wire()
    assert drain(ends.proxy) == []
    ends.proxy.kick()
    assert ends.proxy.stats.rx_early == 1
    assert ends.proxy.settle(ends.now_ns) == b""
