"""Frames that are longer than a packet (decorators/parts.c), between the ends of a shared-memory queue."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest
from beds.examples import examples
from hypothesis import given
from hypothesis import strategies as st
from xts_messages._native import lib
from xts_messages.queues.queue import Queue
from xts_messages.queues.shm import open_shm_pair
from xts_messages.wire import codec

ETH = int(lib.XTS_ETH_BYTES)
PART = int(lib.XTS_PART_BYTES)
PACKET = 1514
LARGEST = int(lib.xts_parts_frame_bytes(PACKET))
ROOM = PACKET - PART
#: What a queue has for the parts of a frame window of 4, and no more.
WINDOW = 64


@pytest.fixture
def pair() -> Iterator[tuple[Queue, Queue]]:
    host, proxy = open_shm_pair(frame_window=WINDOW)
    with host.in_parts(PACKET) as host, proxy.in_parts(PACKET) as proxy:
        yield host, proxy


@pytest.fixture
def raw() -> Iterator[tuple[Queue, Queue]]:
    """A peer that writes what it likes, and our end."""
    host, proxy = open_shm_pair(frame_window=WINDOW)
    with host, proxy.in_parts(PACKET) as proxy:
        yield host, proxy


def frame_of(size: int, number: int = 0) -> bytes:
    """Random bytes that are no part."""
    made = bytearray(random.Random(size * 1_000_003 + number).randbytes(size))
    made[ETH] = 7
    return bytes(made)


def part_of(frame: bytes, offset: int, length: int, frame_bytes: int | None = None) -> bytes:
    payload = frame[ETH + offset : ETH + offset + length]
    fields = {"frame_bytes": len(frame) - ETH if frame_bytes is None else frame_bytes, "offset": offset}
    made = codec.encode(codec.Frame("XTS_LINK_PART", fields=fields | {"length": len(payload)}, payload=payload))
    return frame[:ETH] + made[ETH:]


def parts_of(frame: bytes, room: int = ROOM) -> list[bytes]:
    return [part_of(frame, offset, room) for offset in range(0, len(frame) - ETH, room)]


def drain(end: Queue) -> list[bytes]:
    frames = []
    while True:
        while (frame := end.receive()) is not None:
            frames.append(bytes(frame))
            frame.recycle()
        if not end.arm():  # a call looks at so many packets only
            end.disarm()
            return frames


def send(end: Queue, *frames: bytes) -> None:
    for frame in frames:
        end.submit(frame)
    end.kick()


@pytest.mark.parametrize("size", [60, PACKET, PACKET + 1, ETH + 2 * ROOM, ETH + 2 * ROOM + 1, 3840, 3841, LARGEST])
def test_a_frame_of_each_size(pair: tuple[Queue, Queue], size: int) -> None:
    for sender, receiver in (pair, pair[::-1]):
        send(sender, frame_of(size))
        assert drain(receiver) == [frame_of(size)]
        packets = 1 if size <= PACKET else -(-(size - ETH) // ROOM)
        assert sender.stats.tx_frames == receiver.stats.rx_frames == packets


def test_no_packet_is_longer_than_the_wire_takes() -> None:
    host, proxy = open_shm_pair(frame_window=WINDOW)
    with host.in_parts(PACKET) as host, proxy:
        send(host, frame_of(LARGEST), frame_of(PACKET), frame_of(PACKET + 1))
        sizes = [len(frame) for frame in drain(proxy)]
        assert max(sizes) == PACKET
        assert len(sizes) == int(lib.XTS_PARTS_MAX) + 1 + 2


def test_an_end_that_leaves_room_for_heads_takes_frames_without() -> None:
    """A proxy does not know whether its host has heads; where it has none, its frames are longer than the proxy's."""
    host, proxy = open_shm_pair(frame_window=WINDOW)
    with host.in_parts(PACKET) as host, proxy.in_parts(PACKET - 32, PACKET) as proxy:
        send(host, frame_of(LARGEST))
        assert drain(proxy) == [frame_of(LARGEST)]
        with pytest.raises(OSError, match="bytes, not"):
            proxy.submit(frame_of(LARGEST))


def test_a_longer_frame_is_refused(pair: tuple[Queue, Queue]) -> None:
    with pytest.raises(OSError, match=f"a frame has 1 to {LARGEST} bytes, not {LARGEST + 1}"):
        pair[0].submit(frame_of(LARGEST + 1))


def test_the_beginning_comes_in_one_piece(pair: tuple[Queue, Queue]) -> None:
    """Commands with values are decoded from the first piece."""
    host, proxy = pair
    send(host, frame_of(LARGEST), frame_of(2500))
    for size in (LARGEST, 2500):
        frame = proxy.receive()
        assert frame is not None
        assert frame._native.segment[0].iov_len == min(size, int(lib.XTS_FRAME_BYTES_SINGLE))
        frame.recycle()


@given(st.lists(st.integers(24, LARGEST), min_size=1, max_size=24), st.integers(0, 3))
@examples(60)
def test_whatever_is_sent_arrives_in_order(sizes: list[int], kept: int) -> None:
    """Also while the receiver keeps some frames, and where there are not enough slots for all parts at once."""
    host, proxy = open_shm_pair(frame_window=32)
    with host.in_parts(PACKET) as host, proxy.in_parts(PACKET) as proxy:
        for sender, receiver in ((host, proxy), (proxy, host)):
            frames = [frame_of(size, number) for number, size in enumerate(sizes)]
            arrived, held = [], []
            for frame in frames:
                sender.submit(frame)
            for _ in range(200):
                sender.kick()
                while (frame := receiver.receive()) is not None:
                    arrived.append(bytes(frame))
                    held.append(frame)
                    if len(held) > kept:
                        held.pop(0).recycle()
                if len(arrived) == len(frames):
                    break
            for frame in held:
                frame.recycle()
            assert arrived == frames
            assert receiver.stats.rx_invalid == 0


def test_parts_of_any_length_are_put_together(raw: tuple[Queue, Queue]) -> None:
    """Another sender may cut otherwise."""
    peer, ours = raw
    frame = frame_of(3000)
    send(peer, *parts_of(frame, 500))
    assert drain(ours) == [frame]


FRAME = frame_of(5000)
WRONG = {
    "the second part only": [part_of(FRAME, ROOM, ROOM)],
    "a part is missing": [*parts_of(FRAME)[:1], *parts_of(FRAME)[2:]],
    "a part twice": [*parts_of(FRAME)[:2], *parts_of(FRAME)[1:2]],
    "too many parts": parts_of(FRAME, (len(FRAME) - ETH) // int(lib.XTS_PARTS_MAX) - 1),
    "a part beyond the frame": [*parts_of(FRAME)[:3], part_of(FRAME + bytes(100), 3 * ROOM, ROOM, len(FRAME) - ETH)],
    "another length": [parts_of(FRAME)[0], part_of(FRAME, ROOM, ROOM, 4000)],
    "an empty part": [part_of(FRAME, 0, 0)],
    "a frame that is too long": [part_of(FRAME, 0, ROOM, LARGEST - ETH + 1)],
    "a length that is not there": [part_of(FRAME, 0, ROOM)[:200]],
}


@pytest.mark.parametrize("packets", WRONG.values(), ids=WRONG)
def test_wrong_parts_are_dropped_and_counted(raw: tuple[Queue, Queue], packets: list[bytes]) -> None:
    peer, ours = raw
    alone = frame_of(100)
    send(peer, *packets, alone)
    assert drain(ours) == [alone]
    assert ours.stats.rx_invalid
    send(peer, *parts_of(FRAME))  # all buffers are there again, and the next frame is whole
    assert drain(ours) == [FRAME]


def test_a_sender_that_begins_again(raw: tuple[Queue, Queue]) -> None:
    """A process has died within a frame: the HELLO of the next one comes through, and so does its first long frame."""
    peer, ours = raw
    hello = codec.encode(codec.Frame("XTS_LINK_HELLO", fields={"epoch": 7}))
    send(peer, *parts_of(FRAME)[:2], hello, *parts_of(FRAME)[:1], *parts_of(frame_of(4000)))
    assert drain(ours) == [hello, frame_of(4000)]
    assert ours.stats.rx_invalid == 2


def test_parts_are_not_accepted_before_both_ends_have_agreed(raw: tuple[Queue, Queue]) -> None:
    peer, ours = raw
    lib.xts_parts_use(ours.native, 0, 0)
    send(peer, *parts_of(FRAME), frame_of(100))
    assert drain(ours) == [frame_of(100)]
    assert ours.stats.rx_invalid == len(parts_of(FRAME))


def test_what_waits_at_the_end_of_an_epoch_is_dropped() -> None:
    """There were no slots for its parts. Nothing of it leaves later, and its slot is free again."""
    host, proxy = open_shm_pair(frame_window=4)
    with host.in_parts(PACKET) as host, proxy.in_parts(PACKET) as proxy:
        slots = 0
        while True:
            try:
                host.submit(frame_of(LARGEST, slots))
            except BlockingIOError:
                break
            slots += 1
        lib.xts_parts_use(host.native, 0, 0)
        host.kick()
        drain(proxy)
        lib.xts_parts_use(host.native, PACKET, PACKET)
        lib.xts_parts_use(proxy.native, PACKET, PACKET)
        for number in range(slots):
            host.submit(frame_of(100, number))
            host.kick()
            assert drain(proxy)[-1:] == [frame_of(100, number)]


def test_a_length_that_lies() -> None:
    """Nothing behind the packet is read."""
    host, proxy = open_shm_pair(frame_window=WINDOW)
    with host, proxy.in_parts(PACKET) as ours:
        packet = bytearray(part_of(FRAME, 0, 100, 100))
        packet[PART - 4 : PART] = struct.pack(">I", ROOM)
        send(host, bytes(packet))
        assert drain(ours) == []
        assert ours.stats.rx_invalid == 1
