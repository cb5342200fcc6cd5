"""Many channels over one queue (messages/native/relay/mux.c): nothing is lost, nobody is mistaken for another, and one
that floods ends alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from beds.examples import examples
from hypothesis import given
from hypothesis import strategies as st
from xts_messages._native import ffi, lib
from xts_messages.queues.queue import Frame, Queue
from xts_messages.queues.shm import open_shm_pair
from xts_messages.wire import codec
from xts_messages.wire.wire_table import CONTROL_RESERVE, FEATURES, FRAME_BYTES_MAX, RELAYED_WINDOW

WINDOW = 16
CARRIED = int(lib.XTS_CARRIED_BYTES)
MAC = (bytes.fromhex("020000000001"), bytes.fromhex("020000000002"))
HOST, PROXY = 0, 1


def message(text: bytes) -> bytes:
    """A frame of a channel: to the multiplexer one is as good as another."""
    return codec.encode(codec.Frame("XTS_CMD_SEND", payload=text))


def carried(number: int, inner: bytes, length: int | None = None) -> bytes:
    frame = codec.encode(codec.Frame("XTS_RELAY_CARRIED", payload=inner, id=number))
    return frame if length is None else frame[: CARRIED - 4] + length.to_bytes(4, "big") + frame[CARRIED:]


@dataclass
class End:
    """One end of a trunk."""

    queue: Queue
    link: Any
    mux: Any = None
    channels: dict[int, Queue] = field(default_factory=dict)
    verdicts: list[int] = field(default_factory=list)

    def add(self, number: int, window: int = RELAYED_WINDOW) -> Queue:
        out = ffi.new("struct xts_queue **")
        assert lib.xts_mux_add(out, self.mux, number, window) == 0
        self.channels[number] = Queue(out[0])
        return self.channels[number]

    def control(self) -> None:
        """Sends what the link has to say, and kicks."""
        memory = ffi.new("uint8_t[128]")
        while bytes_ := int(lib.xts_link_control(self.link, memory, 0)):
            self.queue.submit(bytes(ffi.buffer(memory, bytes_)))
        lib.xts_mux_kick_due(self.mux)
        self.queue.kick()

    def receive(self) -> int:
        """Takes what has come; how many frames it was."""
        head, frame = ffi.new("struct xts_head *"), ffi.new("struct xts_rx_frame *")
        taken = 0
        while lib.xts_queue_receive(self.queue.native, frame) > 0:
            taken += 1
            piece = frame.segment[0]
            verdict = lib.xts_link_receive(self.link, piece.iov_base, piece.iov_len, frame.bytes, 0, head)
            if verdict == lib.XTS_LINK_DELIVER:
                self.verdicts.append(int(lib.xts_mux_take(self.mux, head, frame)))
                if self.verdicts[-1] == lib.XTS_MUX_TAKEN:
                    continue
                lib.xts_link_recycled(self.link)
            lib.xts_queue_recycle(self.queue.native, frame)
        return taken

    def say(self, frame: bytes) -> None:
        """What a peer of ours would not: a message of the trunk, made by hand."""
        sealed = ffi.new("uint8_t[]", frame)
        lib.xts_link_seal(self.link, sealed)
        self.queue.send(bytes(ffi.buffer(sealed, len(frame))))

    def stats(self) -> Any:
        found = ffi.new("struct xts_mux_stats *")
        lib.xts_mux_stats(self.mux, found)
        return found


def link(role: int, queue: Queue) -> Any:
    config = ffi.new("struct xts_link_config *", {"role": role, "local_mac": MAC[role], "peer_mac": MAC[1 - role]})
    config.frame_window, config.largest_message = queue.frame_window, queue.largest_message
    config.features, config.epoch = FEATURES["RELAY"][0], 7 if role == HOST else 0
    made = ffi.new("struct xts_link *")
    assert lib.xts_link_init(made, config, 0) == 0
    return made


@contextmanager
def trunk(window: int = WINDOW, largest: int = FRAME_BYTES_MAX) -> Iterator[tuple[End, End]]:
    ends = [End(queue, link(role, queue)) for role, queue in enumerate(open_shm_pair(window, largest))]
    for end in ends:
        out = ffi.new("struct xts_mux **")
        assert lib.xts_mux_open(out, end.queue.native, end.link) == 0
        end.mux = out[0]
    for _ in range(3):
        for end in ends:
            end.control()
            end.receive()
    assert all(end.link.state == lib.XTS_LINK_UP for end in ends)
    try:
        yield ends[HOST], ends[PROXY]
    finally:
        for end in ends:
            lib.xts_mux_close(end.mux)
            for channel in end.channels.values():
                channel.close()
            end.queue.close()


def taken(channel: Queue) -> list[bytes]:
    found = []
    while (frame := channel.receive()) is not None:
        found.append(bytes(frame))
        frame.recycle()
    return found


def test_channels_are_apart() -> None:
    with trunk() as (host, proxy):
        for number in (1, 2, 258):  # 2 and 258 share a bucket
            host.add(number)
            proxy.add(number)
        for number, channel in host.channels.items():
            channel.submit(message(b"from %d" % number))
        host.control()
        proxy.receive()
        for number, channel in proxy.channels.items():
            assert taken(channel) == [message(b"from %d" % number)]
            channel.submit(message(b"to %d" % number))
        proxy.control()
        host.receive()
        for number, channel in host.channels.items():
            assert taken(channel) == [message(b"to %d" % number)]


@pytest.mark.parametrize("size", [32, 60, 3840, FRAME_BYTES_MAX - CARRIED])
def test_any_size(size: int) -> None:
    with trunk() as (host, proxy):
        sent = message(bytes(size - 32))
        host.add(1).submit(sent)
        there = proxy.add(1)
        assert there.largest_message == FRAME_BYTES_MAX - CARRIED
        host.control()
        proxy.receive()
        assert taken(there) == [sent]


def test_the_trunk_decides_how_much_is_on_its_way() -> None:
    with trunk() as (host, proxy):
        channels = [host.add(number) for number in range(1, 4)]
        for number in range(1, 4):
            proxy.add(number)
        for i in range(WINDOW):
            channels[i % 3].submit(message(b"%d" % i))
        with pytest.raises(BlockingIOError):
            channels[0].submit(message(b"one more"))
        host.control()
        assert proxy.receive() == WINDOW
        assert host.link.state == proxy.link.state == lib.XTS_LINK_UP
        assert sum(len(taken(channel)) for channel in proxy.channels.values()) == WINDOW
        proxy.control()
        host.receive()
        channels[0].submit(message(b"one more"))


def test_a_slot_that_is_held_has_its_credit() -> None:
    with trunk() as (host, _):
        channel = host.add(1)
        slots = [ffi.new("struct xts_tx_slot *") for _ in range(WINDOW + 1)]
        assert [int(lib.xts_queue_acquire(channel.native, slot)) for slot in slots] == [0] * WINDOW + [-11]
        lib.xts_queue_abandon(channel.native, slots[0])
        assert lib.xts_queue_acquire(channel.native, slots[0]) == 0


def test_one_that_floods_ends_alone() -> None:
    with trunk(window=128) as (host, proxy):
        for number in (1, 2):
            host.add(number)
            proxy.add(number, window=4)
        most = 4 + CONTROL_RESERVE
        for _ in range(most + 5):
            host.channels[1].submit(message(b"flood"))
        host.channels[2].submit(message(b"still here"))
        host.control()
        proxy.receive()
        assert taken(proxy.channels[2]) == [message(b"still here")]
        with pytest.raises(BrokenPipeError):
            for _ in range(most + 1):
                frame = proxy.channels[1].receive()
                assert isinstance(frame, Frame)
                frame.recycle()
        assert (proxy.stats().floods, proxy.stats().ended) == (1, 5)
        assert proxy.link.state == lib.XTS_LINK_UP


def test_frames_out_count_as_much_as_those_that_wait() -> None:
    with trunk(window=128) as (host, proxy):
        host.add(1)
        there = proxy.add(1, window=4)
        held = []
        for _ in range(4 + CONTROL_RESERVE):
            host.channels[1].submit(message(b"x"))
            host.control()
            proxy.receive()
            held.append(there.receive())
        host.channels[1].submit(message(b"one more"))
        host.control()
        proxy.receive()
        assert proxy.stats().floods == 1
        for frame in held:
            assert frame
            frame.recycle()


@pytest.mark.parametrize(
    "frame",
    [
        carried(1, b""),
        carried(1, message(b"short")[:20]),
        carried(1, carried(1, message(b"in another"))),
        carried(1, codec.encode(codec.Frame("XTS_LINK_BUNDLE", payload=b"ab"))),
        carried(1, message(b"x" * 100), length=200),
        carried(1, message(b"x" * 100), length=5),
    ],
    ids=["nothing", "short", "another", "bundle", "longer", "shorter"],
)
def test_what_is_no_frame_of_a_channel_is_dropped(frame: bytes) -> None:
    with trunk() as (host, proxy):
        there = proxy.add(1)
        for _ in range(3 * WINDOW):  # its credits come back
            host.say(frame)
            proxy.receive()
            proxy.control()
            host.receive()
        assert taken(there) == []
        assert proxy.stats().malformed == 3 * WINDOW
        assert host.link.state == proxy.link.state == lib.XTS_LINK_UP


def test_an_unknown_number_is_told_to_the_owner() -> None:
    with trunk() as (host, proxy):
        host.say(carried(9, message(b"hello")))
        proxy.receive()
        assert proxy.verdicts == [lib.XTS_MUX_UNKNOWN]


def test_a_number_is_given_once_and_again_after_it_was_closed() -> None:
    with trunk() as (host, _):
        host.add(1)
        out = ffi.new("struct xts_queue **")
        assert lib.xts_mux_add(out, host.mux, 1, 4) == -17
        host.channels.pop(1).close()
        host.add(1)


def test_a_trunk_of_small_frames_carries_none() -> None:
    with trunk(largest=3840) as (host, _):
        out = ffi.new("struct xts_queue **")
        assert lib.xts_mux_add(out, host.mux, 1, 4) == -90


def test_a_channel_that_closes_gives_everything_back() -> None:
    with trunk() as (host, proxy):
        for _ in range(4):
            host.add(1)
            proxy.add(1)
            for _ in range(WINDOW - 1):
                host.channels[1].submit(message(b"unread"))
            host.control()
            proxy.receive()
            proxy.channels.pop(1).close()
            host.channels.pop(1).close()
            proxy.control()
            host.receive()
        assert lib.xts_link_credits(host.link) >= WINDOW * 3 // 4


def test_the_end_of_the_trunk_is_the_end_of_its_channels() -> None:
    with trunk() as (host, proxy):
        host.add(1)
        there = proxy.add(1)
        host.channels[1].submit(message(b"too late"))
        host.control()
        proxy.receive()
        lib.xts_mux_close(proxy.mux)
        proxy.mux = ffi.NULL
        with pytest.raises(BrokenPipeError):
            there.receive()
        with pytest.raises(BlockingIOError):
            there.submit(message(b"never"))
        assert there.arm()


# --- any order of anything ---------------------------------------------------------------------------------

NUMBERS = (1, 2, 3, 257, 0xFFFFFE)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from(NUMBERS), st.booleans(), st.integers(32, 3000)),
        st.tuples(st.just("take"), st.sampled_from(NUMBERS), st.booleans(), st.integers(1, 5)),
        st.tuples(st.just("cross"), st.just(0), st.booleans(), st.just(0)),
    ),
    max_size=120,
)


class Model:
    """What each channel has sent and not had yet, each way."""

    def __init__(self, ends: tuple[End, End]) -> None:
        self.ends = ends
        self.sent: dict[tuple[int, int], deque[bytes]] = {(r, n): deque() for r in (HOST, PROXY) for n in NUMBERS}
        self.count = 0
        for end in ends:
            for number in NUMBERS:
                end.add(number, window=WINDOW)

    def send(self, number: int, role: int, size: int) -> None:
        self.count += 1
        frame = message(b"%d.%d.%d" % (role, number, self.count) + bytes(size - 32))
        try:
            self.ends[role].channels[number].submit(frame)
        except BlockingIOError:
            return
        self.sent[role, number].append(frame)

    def take(self, number: int, role: int, most: int) -> None:
        for _ in range(most):
            frame = self.ends[role].channels[number].receive()
            if frame is None:
                return
            assert bytes(frame) == self.sent[1 - role, number].popleft()
            frame.recycle()

    def cross(self, _: int, role: int, __: int) -> None:
        self.ends[role].control()
        self.ends[1 - role].receive()


@examples(60)
@given(steps)
def test_each_gets_its_own_in_order_and_nothing_is_lost(todo: list[tuple[str, int, bool, int]]) -> None:
    with trunk() as ends:
        model = Model(ends)
        do: dict[str, Callable[[int, int, int], None]] = {
            "send": model.send,
            "take": model.take,
            "cross": model.cross,
        }
        for what, number, role, size in todo:
            do[what](number, int(role), size)
        for _ in range(4):
            for role in (HOST, PROXY):
                model.cross(0, role, 0)
                for number in NUMBERS:
                    model.take(number, 1 - role, WINDOW)
        assert not any(model.sent.values())
        for end in ends:
            assert end.link.state == lib.XTS_LINK_UP
            assert end.queue.stats.tx_no_slot == 0
            assert lib.xts_link_credits(end.link) > WINDOW // 2
