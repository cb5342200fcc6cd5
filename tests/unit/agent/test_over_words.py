"""What the agent says for processes (OVER): in which pieces, when, and on which queue."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from xts_agent import over_words, privileged_opener
from xts_agent.config import AgentConfig
from xts_agent.opener_protocol import GEOMETRY_BYTES, Answer, Ask, Request, Say
from xts_agent.over_words import OverWords
from xts_agent.privileged_opener import GOODBYES, Opener, _Queue
from xts_agent.queue_pool import Slot
from xts_agent.relay import Relay, Relayed
from xts_bpf.program import Owner
from xts_messages.native import ffi, lib
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

EPOCH = 0x1122334455667788
KEYS = [(1 << 63) + number for number in range(300)]
OURS, THEIRS = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def attached(tag: Any) -> Any:
    return SimpleNamespace(tag=tag, epoch=EPOCH)


def a_slot(said: list[tuple[int, list[int]]]) -> Slot:
    pool = SimpleNamespace(say_over=lambda slot, epoch, keys: said.append((epoch, keys)))
    return Slot(pool, 3)  # type: ignore[arg-type]


def test_pieces_fit_into_a_message() -> None:
    said: list[tuple[int, list[int]]] = []
    OverWords(Clock()).add(attached(a_slot(said)), KEYS)
    assert [len(keys) for _, keys in said] == [128, 128, 44]
    assert {epoch for epoch, _ in said} == {EPOCH} and [key for _, keys in said for key in keys] == KEYS


def test_a_few_at_a_time() -> None:
    """The proxy has few buffers for them."""
    said: list[tuple[int, list[int]]] = []
    clock = Clock()
    words = OverWords(clock)
    assert words.timeout_s() is None
    words.add(attached(a_slot(said)), list(range(128 * (over_words.BURST + 1))))
    assert len(said) == over_words.BURST and words.timeout_s() == pytest.approx(over_words.PAUSE_S)
    words.say()
    assert len(said) == over_words.BURST
    clock.now += 2 * over_words.PAUSE_S
    words.say()
    assert len(said) == over_words.BURST + 1 and words.timeout_s() is None


def test_the_relay_is_given_orders_that_it_may_not_know() -> None:
    """They are as long as all others: to an older relay they are orders that it does not know."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        relay = Relay.__new__(Relay)
        relay.control = ours
        relayed = Relayed(relay, 5, 0, ours, "")
        OverWords(Clock()).add(attached(relayed), KEYS[:40])
        orders = [theirs.recv(4096) for _ in range(2)]
        assert {len(order) for order in orders} == {int(ffi.sizeof("struct xts_relay_order"))}
        found = []
        for order in orders:
            native = ffi.from_buffer("struct xts_relay_order *", order)
            assert (native.what, native.geometry.epoch) == (lib.XTS_RELAY_OVER, EPOCH)
            assert native.geometry.token_bytes <= lib.XTS_RELAY_OVER_BYTES_MAX
            payload = bytes(ffi.buffer(native.geometry.token, native.geometry.token_bytes))
            found += [key for (key,) in struct.iter_unpack(">Q", payload)]
        assert found == KEYS[:40]


def test_a_relay_that_has_ended_is_told_nothing() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        relay = Relay.__new__(Relay)
        relay.control = None
        OverWords(Clock()).add(attached(Relayed(relay, 5, 0, ours, "")), KEYS)
        relay.control = ours
        theirs.close()
        OverWords(Clock()).add(attached(Relayed(relay, 5, 0, ours, "")), KEYS)


def test_a_relay_that_is_stopped_is_told_later() -> None:
    """It takes no more orders than fit into its socket. Who is told elsewhere does not wait for it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.setblocking(False)
        relay = Relay.__new__(Relay)
        relay.control = ours
        with contextlib.suppress(BlockingIOError):
            while True:
                ours.send(b"an order")
        said: list[tuple[int, list[int]]] = []
        clock = Clock()
        words = OverWords(clock)
        words.add(attached(Relayed(relay, 5, 0, ours, "")), KEYS[:1])
        assert words.timeout_s() == pytest.approx(over_words.REFUSED_S)
        words.add(attached(a_slot(said)), KEYS[1:2])
        clock.now += 2 * over_words.REFUSED_S
        words.say()
        assert said == [(EPOCH, KEYS[1:2])] and words.timeout_s() == pytest.approx(over_words.REFUSED_S)
        theirs.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                theirs.recv(4096)
        clock.now += 2 * over_words.REFUSED_S
        words.say()
        order = ffi.from_buffer("struct xts_relay_order *", theirs.recv(4096))
        assert order.what == lib.XTS_RELAY_OVER and words.timeout_s() is None


def test_a_request_has_keys_only_for_this() -> None:
    request = Request(Ask.OVER, 1, Owner(EPOCH, 0, 0), 7, keys=tuple(KEYS[:128]))
    assert Request.unpack(request.pack(), 2) == request
    for wrong in (
        Request(Ask.OVER, 1, None, 7, keys=(1,)),
        Request(Ask.OPEN, 1, None, 7, keys=(1,)),
        Request(Ask.OVER, 1, Owner(EPOCH, 0, 0), 7, keys=tuple(KEYS[:129])),
        Request(Ask.OVER, 2, Owner(EPOCH, 0, 0), 7, keys=(1,)),
    ):
        with pytest.raises(ValueError, match=r"owner|keys|bytes|queue"):
            Request.unpack(wrong.pack(), 2)
    with pytest.raises(ValueError, match="bytes"):
        Request.unpack(request.pack()[:-1], 2)


class Said:
    """A transmit-only socket."""

    def __init__(self, *, fails: bool = False) -> None:
        self.frames: list[bytes] = []
        self.fails = fails

    def send(self, frame: bytes) -> None:
        if self.fails:
            raise OSError("the interface has gone")
        self.frames.append(frame)

    def close(self) -> None:
        pass


def an_opener(secret: int = 0) -> Opener:
    made = Opener.__new__(Opener)
    made.config = AgentConfig(interface="x0", peer_mac="02:00:00:00:00:02", endpoint="/nonexistent")
    made._program = SimpleNamespace(secret=lambda number: secret)  # type: ignore[assignment]
    made._saying = contextlib.nullcontext()  # type: ignore[assignment]
    made._addresses = lambda q: (OURS, THEIRS)  # type: ignore[method-assign]
    return made


def test_what_the_opener_says() -> None:
    q, said = _Queue(3), Said()
    q.last_word = said  # type: ignore[assignment]
    q.words.append((EPOCH, tuple(KEYS[:2])))
    an_opener()._say_over(q)
    (frame,) = said.frames
    decoded = codec.decode(frame)
    assert (decoded.name, decoded.fields["epoch"]) == ("XTS_LINK_OVER", EPOCH)
    assert decoded.payload == struct.pack(">2Q", *KEYS[:2])
    assert (decoded.destination, decoded.source) == (THEIRS, OURS)


def test_with_a_secret_it_has_a_head_and_is_said_often() -> None:
    q, said = _Queue(3), Said()
    q.last_word = said  # type: ignore[assignment]
    q.words.append((EPOCH, tuple(KEYS[:128])))
    an_opener(secret=77)._say_over(q)
    assert len(said.frames) == GOODBYES and len(set(said.frames)) == 1
    assert len(said.frames[0]) <= table.FRAME_BYTES_LEAST
    head = codec.decode(said.frames[0])
    assert (head.name, head.fields["secret"], head.id) == ("XTS_LINK_HEADED", 77, 3)


def test_it_waits_until_the_queue_is_open() -> None:
    """A thread closes it, and opens it again."""
    q, said = _Queue(3), Said()
    opener = an_opener()
    q.words.append((EPOCH, (1,)))
    opener._say_over(q)
    assert q.words == deque([(EPOCH, (1,))])
    q.last_word, q.opening = said, True  # type: ignore[assignment]
    opener._say_over(q)
    assert not said.frames
    q.opening = False
    opener._say_over(q)
    assert len(said.frames) == 1 and not q.words


def test_what_cannot_be_sent_is_said_before_the_next_word() -> None:
    """The interface is down for a moment."""
    q, said = _Queue(3), Said(fails=True)
    q.last_word = said  # type: ignore[assignment]
    q.words.append((EPOCH, (1,)))
    an_opener()._say_over(q)
    assert list(q.words) == [(EPOCH, (1,))] and not said.frames
    said.fails = False
    q.words.append((EPOCH, (2,)))
    an_opener()._say_over(q)
    assert [codec.decode(frame).payload for frame in said.frames] == [struct.pack(">Q", key) for key in (1, 2)]
    assert not q.words


def test_it_is_said_when_a_queue_has_been_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the thread that opens queues."""
    q, said = _Queue(3, opening=True), Said()
    q.words.append((EPOCH, (1,)))
    opener = an_opener()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    work = iter([q, None])

    def opened(_q: _Queue) -> Answer:
        q.last_word = said  # type: ignore[assignment]
        return Answer(Say.OPENED, 3, 1, geometry=bytes(GEOMETRY_BYTES), descriptors=())

    opener._connection = ours
    opener._work = SimpleNamespace(get=lambda: next(work))  # type: ignore[assignment]
    opener._open = opened  # type: ignore[method-assign]
    monkeypatch.setattr(privileged_opener.Opener, "_copies", lambda _self: (0, 0, ""))
    opener._copies_told = (0, 0, "")
    with ours, theirs:
        opener._open_queues()
    assert len(said.frames) == 1
