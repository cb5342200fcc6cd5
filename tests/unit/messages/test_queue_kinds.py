"""The registry of kinds of queues: a kind that the product does not know is adopted, attached and used by it alone; and
what every kind has to be able to do."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator

import pytest
from beds import third_kind
from beds.third_kind import KINDS, PACKETS, open_pair, open_queue
from xts_messages._native import ffi, lib
from xts_messages.queues.queue import Faults, Frame, Queue
from xts_messages.queues.queue_kinds import (
    AFXDP,
    HOST,
    PROXY,
    SHM,
    QueueEnd,
    QueueOptions,
    kind_name,
    open_ends,
    outlives_its_server,
)

SIZES = [60, 2048, 3840, 4096, 20_000, 61_440]
US = 1000


@pytest.fixture(params=KINDS, ids=["shm", "packets"])
def kind(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def pair(kind: int) -> Iterator[tuple[Queue, Queue]]:
    host, proxy = open_pair(kind)
    with host, proxy:
        yield host, proxy


def frame_of(size: int, number: int = 0) -> bytes:
    return random.Random(size * 1_000_003 + number).randbytes(size)


def drain(end: Queue) -> list[bytes]:
    frames = []
    while (frame := end.receive()) is not None:
        frames.append(bytes(frame))
        frame.recycle()
    return frames


def take(end: Queue) -> Frame:
    frame = end.receive()
    assert frame is not None
    return frame


# --- the registry ---------------------------------------------------------------------------------------


def test_kinds_have_names() -> None:
    third_kind.add()
    assert [kind_name(number) for number in (AFXDP, SHM, 3, PACKETS, 99)] == [
        "afxdp",
        "shm",
        "relay",
        "packets",
        "unknown",
    ]


def test_whose_queues_go_on_without_their_server() -> None:
    third_kind.add()
    relay = int(lib.XTS_QUEUE_RELAY)
    assert [outlives_its_server(number) for number in (AFXDP, SHM, relay, PACKETS, 99)] == [True] + [False] * 4


def test_a_number_is_given_once() -> None:
    third_kind.add()
    assert lib.xts_queue_kind_add(lib.xts_queue_kind(PACKETS)) == -errno.EEXIST
    assert lib.xts_queue_kind_add(lib.xts_queue_kind(SHM)) == -errno.EEXIST


def test_what_is_no_kind_cannot_be_opened_or_adopted() -> None:
    with pytest.raises(OSError, match="unknown") as opened:
        open_ends(99)
    host, proxy = open_queue(PACKETS, QueueOptions(4))
    host.geometry.kind = 99
    with pytest.raises(OSError, match="unknown") as adopted:
        host.adopt(HOST)
    assert opened.value.errno == adopted.value.errno == errno.EPROTO
    host.close()
    proxy.close()


def test_the_number_of_descriptors_is_checked() -> None:
    host, proxy = open_queue(SHM, QueueOptions(4))
    with pytest.raises(OSError, match="1 descriptors") as refused:
        QueueEnd(host.geometry, host.descriptors[:1]).adopt(HOST)
    assert refused.value.errno == errno.EPROTO
    for fd in {*host.descriptors, *proxy.descriptors}:
        os.close(fd)


def test_a_descriptor_of_another_kind_is_refused() -> None:
    host, proxy = open_queue(PACKETS, QueueOptions(4))
    read, write = os.pipe()
    with pytest.raises(OSError, match="packets") as refused:
        QueueEnd(host.geometry, (read,)).adopt(HOST)
    assert refused.value.errno == errno.EBADF
    for fd in (*host.descriptors, *proxy.descriptors, read, write):
        os.close(fd)


def test_an_end_crosses_a_process_as_bytes_and_descriptors(kind: int) -> None:
    host, proxy = open_queue(kind, QueueOptions(8))
    far = QueueEnd.unpack(proxy.pack(), proxy.descriptors)
    assert far.kind == host.kind == kind_name(kind)
    with far.adopt_or_close(PROXY) as queue:
        assert queue.frame_window == 8 and queue.kind == kind_name(kind)
    for fd in set(host.descriptors) - set(proxy.descriptors):
        os.close(fd)


@pytest.mark.parametrize("field, value", [("frame_window", 3), ("frame_window", 129), ("largest_message", 61_441)])
def test_a_geometry_that_lies_is_refused(kind: int, field: str, value: int) -> None:
    host, proxy = open_queue(kind, QueueOptions(16))
    setattr(host.geometry, field, value)
    with pytest.raises(OSError, match="adopting") as refused:
        host.adopt(HOST)
    assert refused.value.errno == errno.EINVAL
    for fd in {*host.descriptors, *proxy.descriptors}:
        os.close(fd)


# --- what a queue can do --------------------------------------------------------------------------------


def test_traits_are_what_the_page_says() -> None:
    names = ("KICK_COSTS", "PACKETS", "FRAGMENTS", "DEATH_SHOWS", "PEER_MEMORY", "RETAINS", "CLOCK")
    bits = {name: int(getattr(lib, f"XTS_QUEUE_{name}")) for name in names}

    def traits(queue: Queue) -> set[str]:
        with queue:
            return {name for name, bit in bits.items() if queue.traits & bit}

    (shm, other), (packets, third) = open_pair(SHM), open_pair(PACKETS)
    assert traits(shm) == {"FRAGMENTS", "DEATH_SHOWS", "PEER_MEMORY", "RETAINS"}
    assert traits(packets) == {"KICK_COSTS", "PACKETS", "DEATH_SHOWS", "RETAINS"}
    assert "CLOCK" in traits(third.with_faults(Faults(1, delay_ppm=1)))
    assert "CLOCK" not in traits(other.with_faults(Faults(1, drop_ppm=1)))


@pytest.mark.parametrize("size", SIZES)
def test_every_size_crosses_both_ways(pair: tuple[Queue, Queue], size: int) -> None:
    host, proxy = pair
    for sender, receiver in ((host, proxy), (proxy, host)):
        sender.send(frame_of(size))
        assert drain(receiver) == [frame_of(size)]


def test_a_window_and_the_reserve_find_slots(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    for number in range(16 + 32):
        host.submit(frame_of(60, number))
    with pytest.raises(BlockingIOError):
        host.submit(frame_of(60))
    host.kick()
    assert drain(proxy) == [frame_of(60, number) for number in range(16 + 32)]
    host.send(frame_of(60))


def test_the_peers_end_shows(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    host.close()
    with pytest.raises(BrokenPipeError):
        proxy.wait(10_000)


# --- slots that outlive their submission ----------------------------------------------------------------


def test_a_retained_slot_is_sent_again_as_it_was(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    slot = host.submit_retained(frame_of(5000, 1))
    host.kick()
    assert drain(proxy) == [frame_of(5000, 1)]
    proxy.kick()
    for _ in range(3):
        host.send(frame_of(70))
        assert slot.submit()
        host.kick()
        assert drain(proxy) == [frame_of(70), frame_of(5000, 1)]
        proxy.kick()
    slot.release()


def test_a_retained_slot_is_not_given_to_others(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    slots = [host.submit_retained(frame_of(60, n)) for n in range(48)]
    host.kick()
    drain(proxy)
    proxy.kick()
    with pytest.raises(BlockingIOError):
        host.submit(frame_of(60))
    for slot in slots:
        slot.release()
    for number in range(48):
        host.submit(frame_of(60, number))
    host.kick()
    assert len(drain(proxy)) == 48


def test_a_slot_that_has_not_come_back_is_not_sent_again() -> None:
    host, proxy = open_pair(SHM)
    with host, proxy:
        slot = host.submit_retained(frame_of(60))
        host.kick()
        lent = take(proxy)
        assert not slot.submit()
        lent.recycle()
        proxy.kick()
        assert slot.submit()
        slot.release()  # on its way: it is free when it comes back
        host.kick()
        assert drain(proxy) == [frame_of(60)]
        proxy.kick()
        for number in range(48):
            host.submit(frame_of(60, number))


def test_a_slot_released_before_it_comes_back_is_free_then(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    for _ in range(100):
        host.submit_retained(frame_of(60)).release()
        host.kick()
        assert drain(proxy) == [frame_of(60)]
        proxy.kick()


@pytest.mark.parametrize("fault", [{}, {"drop_ppm": 300_000}, {"corrupt_ppm": 1_000_000}])
def test_a_retained_slot_under_faults_keeps_its_content(pair: tuple[Queue, Queue], fault: dict[str, int]) -> None:
    host, proxy = pair
    with host.with_faults(Faults(5, **fault)) as host:
        slot = host.submit_retained(frame_of(300))
        for _ in range(40):
            host.kick()
            for got in drain(proxy):
                assert (got == frame_of(300)) == ("corrupt_ppm" not in fault)
            proxy.kick()
            assert slot.submit()
        slot.release()


@pytest.mark.parametrize("small", [60, 300])
def test_what_is_retained_is_not_bundled(pair: tuple[Queue, Queue], small: int) -> None:
    host, proxy = pair
    with host.bundled() as host, proxy.bundled() as proxy:
        host.submit(frame_of_type(small, 1))
        slot = host.submit_retained(frame_of_type(small, 2))
        host.submit(frame_of_type(small, 3))
        host.kick()
        assert drain(proxy) == [frame_of_type(small, n) for n in (1, 2, 3)]
        proxy.kick()
        assert slot.submit()
        slot.release()
        for number in (4, 5):
            host.submit(frame_of_type(small, number))
        host.kick()
        assert drain(proxy) == [frame_of_type(small, n) for n in (2, 4, 5)]
        packets = host.stats.tx_frames
        assert packets == 5, "three alone, the repeated one, and a bundle of two"


def frame_of_type(size: int, number: int) -> bytes:
    """A frame that is no bundle."""
    made = bytearray(frame_of(size, number))
    made[14] = 7
    return bytes(made)


# --- frames that are kept longer than their credit ------------------------------------------------------


@pytest.mark.parametrize("kept_max", [0, 1, 40, 96])
def test_kept_frames_take_no_slot_from_the_window(kind: int, kept_max: int) -> None:
    host, proxy = open_pair(kind, QueueOptions(16, kept_max=kept_max))
    with host, proxy:
        assert host.kept_max == proxy.kept_max == kept_max
        kept = []
        for number in range(kept_max):
            host.send(frame_of(100, number))
            frame = take(proxy)
            assert frame.keep() and frame.keep()
            kept.append(frame)
        host.send(frame_of(100, 1000))
        late = take(proxy)
        assert not late.keep(), "kept_max is used up: it is copied, or its credit waits"
        late.recycle()
        proxy.kick()
        for number in range(16 + 32):
            host.submit(frame_of(60, number))
        host.kick()
        assert drain(proxy) == [frame_of(60, number) for number in range(16 + 32)]
        assert [bytes(frame) for frame in kept] == [frame_of(100, number) for number in range(kept_max)]
        random.Random(1).shuffle(kept)
        for frame in kept:
            frame.recycle()
        proxy.kick()
        host.send(frame_of(100))
        again = take(proxy)
        assert again.keep() == bool(kept_max)
        again.recycle()


@pytest.mark.parametrize("kept_max, window", [(97, 128), (209, 16), (1025, 16)])
def test_more_than_the_rings_hold_is_refused(kept_max: int, window: int) -> None:
    with pytest.raises(OSError, match="opening a queue") as refused:
        open_pair(SHM, QueueOptions(window, kept_max=kept_max))
    assert refused.value.errno == errno.EINVAL


def test_too_few_buffers_for_the_window_are_refused() -> None:
    """window * buffers + kept_max + reserve <= buffers, asserted when a queue is adopted."""
    host, proxy = open_queue(SHM, QueueOptions(16))
    host.geometry.shm_slots = 16 + 32 - 1
    with pytest.raises(OSError, match="adopting"):
        host.adopt(HOST)
    for fd in {*host.descriptors, *proxy.descriptors}:
        os.close(fd)


@pytest.mark.parametrize(
    "largest, chunks, kept", [(61_440, 16 * 16 + 32, 0), (61_440, 16 * 16 + 132, 100), (3840, 48, 0), (3841, 64, 0)]
)
def test_what_chunks_are_left_for_kept_frames(largest: int, chunks: int, kept: int) -> None:
    buffers = (largest + 3839) // 3840
    assert lib.xts_queue_kept_of(chunks, 16, buffers) == kept
    assert lib.xts_queue_kept_of(chunks - kept - 1, 16, buffers) == -1


# --- time -----------------------------------------------------------------------------------------------


def test_a_queue_without_a_clock_has_no_deadline(pair: tuple[Queue, Queue]) -> None:
    pair[0].tick(5)
    assert pair[0].deadline_ns is None


def test_a_delayed_frame_holds_up_those_behind_it(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    frames = [frame_of(60, n) for n in range(3)]
    with host.with_faults(Faults(0, delay_ppm=1_000_000, skip_frames=1, delay_us=100)) as host:
        for frame in frames:
            host.submit(frame)
        host.kick()
        assert drain(proxy) == frames[:1]
        assert host.deadline_ns == 0, "it does not know the time yet"
        host.tick(1000 * US)
        assert host.deadline_ns == 1100 * US
        host.tick(1099 * US)
        host.kick()
        assert drain(proxy) == []
        host.tick(1100 * US)
        host.kick()
        assert drain(proxy) == frames[1:2], "the next one's delay begins when it is its turn"
        host.tick(1200 * US)
        host.kick()
        assert drain(proxy) == frames[2:]
        assert host.deadline_ns is None


def test_a_repeated_frame_comes_again_later(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    with host.with_faults(Faults(0, repeat_ppm=1_000_000, delay_us=100)) as host:
        host.submit(frame_of(500))
        host.kick()
        assert drain(proxy) == [frame_of(500)]
        proxy.kick()
        host.tick(1000 * US)
        host.kick()
        assert drain(proxy) == []
        host.tick(1100 * US)
        host.kick()
        assert drain(proxy) == [frame_of(500)]
        proxy.kick()
        assert host.deadline_ns is None
        for number in range(48):
            host.submit(frame_of(60, number))


def test_a_received_frame_is_delayed_where_it_is(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    with proxy.with_faults(None, Faults(0, delay_ppm=1_000_000, delay_us=100)) as proxy:
        host.send(frame_of(60, 1))
        assert proxy.receive() is None and proxy.deadline_ns == 0
        proxy.tick(1000 * US)
        assert proxy.receive() is None and proxy.deadline_ns == 1100 * US
        proxy.tick(1100 * US)
        assert proxy.arm() and drain(proxy) == [frame_of(60, 1)]
        proxy.disarm()
        assert proxy.deadline_ns is None


def test_closing_with_frames_that_wait(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    with host.with_faults(Faults(0, delay_ppm=500_000, repeat_ppm=500_000, delay_us=100)) as host:
        frames = [frame_of(60, number) for number in range(40)]
        for frame in frames:
            host.submit(frame)
        host.tick(1)
        host.kick()
        got = drain(proxy)
        assert got == frames[: len(got)] and len(got) < 40


def test_the_struct_of_options_has_all_fields() -> None:
    native = QueueOptions(9, True, 7).native(queue_id=3)
    assert (native.frame_window, native.single_chunk, native.kept_max, native.queue_id) == (9, True, 7, 3)
    assert ffi.typeof(native).item.kind == "struct"
