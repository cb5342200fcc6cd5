"""Small frames sent several in one (messages/native/decorators/bundle.c), between the ends of a shared-memory queue."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest
from beds.examples import examples
from beds.ready import readable
from hypothesis import given
from hypothesis import strategies as st
from xts_messages._native import lib
from xts_messages.queues.queue import Frame, Queue
from xts_messages.queues.queue_kinds import HOST, PROXY
from xts_messages.queues.shm import create_shm, open_shm_pair
from xts_messages.wire import codec

HEAD = int(lib.XTS_HEAD_BYTES)
SMALL = 512  # the longest that waits for others
WHOLE = 2048  # bytes that come in one piece whatever the driver


@pytest.fixture
def pair() -> Iterator[tuple[Queue, Queue]]:
    host, proxy = open_shm_pair(frame_window=16)
    with host.bundled() as host, proxy.bundled() as proxy:
        yield host, proxy


@pytest.fixture
def raw() -> Iterator[tuple[Queue, Queue]]:
    """A peer that writes what it likes, and our end."""
    host, proxy = open_shm_pair(frame_window=16)
    with host, proxy.bundled() as proxy:
        yield host, proxy


def frame_of(size: int, number: int = 0) -> bytes:
    """Random bytes that are no bundle."""
    made = bytearray(random.Random(size * 1_000_003 + number).randbytes(size))
    made[14] = 7
    return bytes(made)


def bundle_of(*frames: bytes, length: int | None = None) -> bytes:
    payload = b"".join(struct.pack(">H", len(f)) + f for f in frames)
    head = codec.encode(codec.Frame("XTS_LINK_BUNDLE", fields={"length": len(payload)}, payload=payload))
    if length is not None:
        head = head[:HEAD] + struct.pack(">I", length) + head[HEAD + 4 :]
    return head


def drain(end: Queue) -> list[bytes]:
    frames = []
    while (frame := end.receive()) is not None:
        frames.append(bytes(frame))
        frame.recycle()
    return frames


def test_what_is_submitted_before_a_kick_leaves_as_one(pair: tuple[Queue, Queue]) -> None:
    for sender, receiver in (pair, pair[::-1]):
        frames = [frame_of(HEAD + 8 * n, n) for n in range(12)]
        for frame in frames:
            sender.submit(frame)
        assert receiver.receive() is None
        sender.kick()
        assert drain(receiver) == frames
        assert sender.stats.tx_frames == receiver.stats.rx_frames == 1


def test_a_frame_alone_leaves_as_it_is() -> None:
    host, proxy = open_shm_pair(frame_window=16)
    with host.bundled() as host, proxy:
        host.send(frame_of(60))
        assert drain(proxy) == [frame_of(60)]


def test_no_bundle_before_the_peer_is_known_to_take_them() -> None:
    host, proxy = open_shm_pair(frame_window=16)
    with host.bundled(sending=False) as host, proxy:
        for number in range(5):
            host.submit(frame_of(60, number))
        host.kick()
        assert drain(proxy) == [frame_of(60, n) for n in range(5)]


def test_what_waits_leaves_when_no_more_may_be_bundled() -> None:
    host, proxy = open_shm_pair(frame_window=16)
    native = host.native
    with host.bundled() as host, proxy:
        host.submit(frame_of(60))
        lib.xts_bundle_send(host.native, False, 0)
        lib.xts_queue_kick(native)
        assert drain(proxy) == [frame_of(60)]


def test_a_long_frame_goes_by_itself_and_overtakes_nothing(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    frames = [frame_of(60, 1), frame_of(60, 2), frame_of(SMALL + 1, 3), frame_of(60, 4), frame_of(SMALL, 5)]
    for frame in frames:
        host.submit(frame)
    host.kick()
    assert drain(proxy) == frames
    assert host.stats.tx_frames == 3


def test_a_bundle_comes_in_one_piece(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    frames = [frame_of(SMALL, n) for n in range(16)]
    for frame in frames:
        host.submit(frame)
    host.kick()
    assert drain(proxy) == frames
    assert host.stats.tx_frames == 6  # of three each, and one alone
    assert len(bundle_of(*frames[:3])) <= WHOLE < len(bundle_of(*frames[:4]))


def test_sleeping_is_refused_while_frames_of_a_bundle_are_left(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    for number in range(2):
        host.submit(frame_of(60, number))
    host.kick()
    first = proxy.receive()
    assert first is not None
    assert proxy.arm()
    second = proxy.receive()
    assert second is not None
    assert not proxy.arm()
    proxy.disarm()
    host.send(frame_of(60, 2))
    assert proxy.arm()
    for frame in (second, first):
        frame.recycle()


def test_a_bundle_goes_back_when_all_its_frames_have(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    everything = 16 + 32
    held: list[Frame] = []
    for number in range(everything - 1):  # the last slot is where the second is written; then it is free again
        host.submit(frame_of(60, 2 * number))
        host.submit(frame_of(60, 2 * number + 1))
        host.kick()
        first, second = proxy.receive(), proxy.receive()
        assert first is not None and second is not None
        first.recycle()
        held.append(second)
        proxy.arm()
        proxy.disarm()
    host.submit(frame_of(60))
    with pytest.raises(BlockingIOError):
        host.submit(frame_of(60))
    assert [bytes(frame) for frame in held] == [frame_of(60, 2 * n + 1) for n in range(everything - 1)]
    held.pop(17).recycle()
    proxy.kick()
    host.send(frame_of(60))
    assert drain(proxy) == [frame_of(60)] * 2


def test_slots_are_no_fewer_by_it(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    frames = [frame_of(SMALL, n) for n in range(16 + 32)]
    for frame in frames:
        host.submit(frame)
    host.kick()
    assert drain(proxy) == frames


@examples(60)
@given(seed=st.integers(0, 2**32), rounds=st.integers(1, 200))
def test_order_and_content_whatever_is_submitted_kicked_and_held(seed: int, rounds: int) -> None:
    draw = random.Random(seed)
    host, proxy = open_shm_pair(frame_window=8)
    with host.bundled() as host, proxy.bundled() as proxy:
        sent: list[bytes] = []
        received: list[bytes] = []
        held: list[Frame] = []
        for number in range(rounds):
            if len(sent) - len(received) + len(held) < 8:
                sent.append(frame_of(draw.choice([HEAD, 60, 64, 100, SMALL, SMALL + 1, 3840, 20_000]), number))
                host.submit(sent[-1])
            if draw.random() < 0.4:
                host.kick()
            while draw.random() < 0.5 and (got := proxy.receive()) is not None:
                received.append(bytes(got))
                held.append(got)
            while held and draw.random() < 0.6:
                held.pop(draw.randrange(len(held))).recycle()
            proxy.kick()
        host.kick()
        received += drain(proxy)
        assert received == sent
        for frame in held:
            frame.recycle()


# --- a peer that makes them badly ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload, good",
    [
        (b"", 0),
        (b"\0", 0),
        (b"\0\0", 0),
        (struct.pack(">H", HEAD - 1) + bytes(HEAD - 1), 0),
        (struct.pack(">H", 60) + bytes(59), 0),
        (struct.pack(">H", 0xFFFF) + bytes(100), 0),
        (struct.pack(">H", HEAD) + bytes(HEAD) + b"\0", 1),
        (struct.pack(">H", HEAD) + bytes(HEAD) + struct.pack(">H", 1) + b"x", 1),
    ],
)
def test_a_bad_bundle_ends_where_it_is_bad(raw: tuple[Queue, Queue], payload: bytes, good: int) -> None:
    peer, ours = raw
    head = codec.encode(codec.Frame("XTS_LINK_BUNDLE", fields={"length": len(payload)}, payload=payload))
    peer.send(head)
    peer.send(frame_of(60))
    assert drain(ours) == [bytes(HEAD)] * good + [frame_of(60)]
    assert ours.stats.rx_invalid == (1 if payload else 0)


@pytest.mark.parametrize("length", [0xFFFF_FFFF, 61_440, 200, 63])
def test_a_bundle_with_a_wrong_length_is_dropped(raw: tuple[Queue, Queue], length: int) -> None:
    peer, ours = raw
    peer.send(bundle_of(frame_of(60), length=length))
    peer.send(frame_of(60, 1))
    frames = drain(ours) + drain(ours)  # after a bad one the caller has its turn
    assert frames == [frame_of(60, 1)]
    assert ours.stats.rx_invalid == 1


def test_a_bundle_in_a_bundle_is_a_frame_like_others(raw: tuple[Queue, Queue]) -> None:
    peer, ours = raw
    inner = bundle_of(frame_of(60))
    peer.send(bundle_of(inner, frame_of(60, 1)))
    assert drain(ours) == [inner, frame_of(60, 1)]


def test_a_peer_wakes_us_with_a_bundle() -> None:
    area = create_shm(16)
    with area.open(HOST) as host, area.open(PROXY).bundled() as proxy:
        area.close()
        assert not proxy.arm()
        host.send(bundle_of(frame_of(60), frame_of(61)))
        assert readable(proxy.fileno(), 5)
        proxy.disarm()
        assert drain(proxy) == [frame_of(60), frame_of(61)]
