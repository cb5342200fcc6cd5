"""The shared-memory queue, both ends in this process."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import random
import socket
import struct
from collections.abc import Iterator

import pytest
from beds.examples import examples
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.queues.queue import Faults, Queue
from xts_messages.queues.queue_kinds import HOST, PROXY
from xts_messages.queues.shm import ShmArea, create_shm, open_shm_pair

SIZES = [60, 61, 64, 1500, 2048, 3839, 3840, 3841, 4096, 4097, 20_000, 61_439, 61_440]


@pytest.fixture
def pair() -> Iterator[tuple[Queue, Queue]]:
    host, proxy = open_shm_pair(frame_window=16)
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


@pytest.mark.parametrize("size", SIZES)
def test_every_size_crosses_both_ways(pair: tuple[Queue, Queue], size: int) -> None:
    host, proxy = pair
    for sender, receiver in ((host, proxy), (proxy, host)):
        sender.send(frame_of(size))
        assert drain(receiver) == [frame_of(size)]


def test_geometry(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    assert host.kind == proxy.kind == "shm"
    assert host.frame_window == 16
    assert host.largest_message == 61_440
    assert host.local_mac == proxy.peer_mac
    assert host.peer_mac == proxy.local_mac


@pytest.mark.parametrize("window, largest", [(3, 61_440), (129, 61_440), (64, 3_839), (64, 61_441)])
def test_bad_sizes_are_refused(window: int, largest: int) -> None:
    with pytest.raises(OSError, match=r"opening a queue \(shm\)"):
        create_shm(window, largest)


@pytest.mark.parametrize("size", [0, 61_441])
def test_a_frame_that_does_not_fit_is_refused(pair: tuple[Queue, Queue], size: int) -> None:
    with pytest.raises(OSError, match="1 to 61440 bytes"):
        pair[0].submit(b"x" * size)


def test_slots_run_out_and_come_back(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    sent = 0
    with pytest.raises(BlockingIOError):
        while True:
            host.submit(frame_of(60, sent))
            sent += 1
    assert sent == 16 + 32
    assert host.stats.tx_no_slot == 1
    host.kick()
    assert drain(proxy) == [frame_of(60, n) for n in range(sent)]
    host.send(frame_of(60))


def test_nothing_is_seen_before_the_kick(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    host.submit(frame_of(60))
    assert proxy.receive() is None
    host.kick()
    assert drain(proxy) == [frame_of(60)]


@examples(40)
@given(seed=st.integers(0, 2**32), rounds=st.integers(1, 300))
def test_frames_keep_their_order_and_content_when_recycled_at_random(seed: int, rounds: int) -> None:
    draw = random.Random(seed)
    host, proxy = open_shm_pair(frame_window=4)
    with host, proxy:
        sent, received, held = hashlib.sha256(), hashlib.sha256(), []
        in_flight = 0
        for number in range(rounds):
            if in_flight < 36:
                frame = frame_of(draw.choice(SIZES), number)
                host.send(frame)
                sent.update(frame)
                in_flight += 1
            while draw.random() < 0.5 and (got := proxy.receive()) is not None:
                received.update(bytes(got))
                held.append(got)
            draw.shuffle(held)
            while held and draw.random() < 0.6:
                held.pop().recycle()
                in_flight -= 1
            proxy.kick()
        for frame in drain(proxy):
            received.update(frame)
        assert sent.digest() == received.digest()


def test_a_doorbell_rings_only_for_a_sleeper(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    host.send(frame_of(60))
    assert host.stats.kicks == 0
    assert proxy.arm(), "a frame is there: no sleep"
    drain(proxy)
    assert not proxy.arm()
    host.send(frame_of(61))
    host.send(frame_of(62))
    assert host.stats.kicks == 1
    assert len(proxy.wait(1000)) == 61


def test_waiting_wakes_and_times_out(pair: tuple[Queue, Queue]) -> None:
    host, proxy = pair
    for number in range(100):
        assert not proxy.arm()
        host.send(frame_of(60, number))
        proxy.disarm()
        frame = proxy.wait(1000)
        assert bytes(frame) == frame_of(60, number)
        frame.recycle()
    with pytest.raises(TimeoutError):
        proxy.wait(5)


def test_the_other_end_closing_is_seen_after_its_last_frame() -> None:
    host, proxy = open_shm_pair(frame_window=4)
    with proxy:
        host.send(frame_of(60))
        host.close()
        frame = proxy.wait(1000)
        assert bytes(frame) == frame_of(60)
        frame.recycle()
        with pytest.raises(BrokenPipeError):
            proxy.wait(1000)


class TestHostilePeer:
    """One end is ours, the other is a mapping into which anything may be written (layout of shm.c)."""

    PUBLISHED, RETURNED, DESCRIPTORS, BACK = 0, 64, 192, 192 + 256 * 8

    @pytest.fixture
    def proxy(self) -> Iterator[tuple[Queue, mmap.mmap]]:
        area = create_shm(4)
        size = os.fstat(area.memfd).st_size
        with area.open(PROXY) as end, mmap.mmap(area.memfd, size) as memory:
            yield end, memory
        area.close()

    DIRECTION_BYTES = 192 + 256 * 8 + 256 * 4

    def publish(self, memory: mmap.mmap, count: int, *descriptors: tuple[int, int]) -> None:
        for index, (slot, length) in enumerate(descriptors):
            struct.pack_into("=II", memory, self.DESCRIPTORS + 8 * index, slot, length)
        struct.pack_into("=I", memory, self.PUBLISHED, count & 0xFFFFFFFF)

    def test_layout_is_as_this_test_believes(self, proxy: tuple[Queue, mmap.mmap]) -> None:
        end, memory = proxy
        memory[8192:8195] = b"abc"
        self.publish(memory, 1, (0, 3))
        assert drain(end) == [b"abc"]
        assert struct.unpack_from("=I", memory, self.RETURNED) == (1,)

    @pytest.mark.parametrize("count", [37, 1000, 2**31, -1])
    def test_more_published_than_there_are_slots(self, proxy: tuple[Queue, mmap.mmap], count: int) -> None:
        end, memory = proxy
        self.publish(memory, count, (0, 60))
        with pytest.raises(BrokenPipeError):
            end.receive()
        with pytest.raises(BrokenPipeError):
            end.receive()
        with pytest.raises(OSError, match="kick"):
            end.kick()

    @pytest.mark.parametrize("slot", [36, 255, 2**31, 2**32 - 1])
    def test_a_slot_that_is_none(self, proxy: tuple[Queue, mmap.mmap], slot: int) -> None:
        end, memory = proxy
        self.publish(memory, 1, (slot, 60))
        with pytest.raises(BrokenPipeError):
            end.receive()

    def test_a_slot_that_we_still_hold(self, proxy: tuple[Queue, mmap.mmap]) -> None:
        end, memory = proxy
        self.publish(memory, 2, (5, 60), (5, 60))
        held = end.receive()
        assert held is not None
        with pytest.raises(BrokenPipeError):
            end.receive()
        held.recycle()

    @pytest.mark.parametrize("length", [0, 61_441, 2**31, 2**32 - 1])
    def test_a_length_that_does_not_fit_is_counted_and_recycled(
        self, proxy: tuple[Queue, mmap.mmap], length: int
    ) -> None:
        end, memory = proxy
        self.publish(memory, 2, (1, length), (2, 60))
        assert [len(f) for f in drain(end)] == [60]
        assert end.stats.rx_invalid == 1
        assert struct.unpack_from("=I", memory, self.RETURNED) == (2,)

    @pytest.mark.parametrize("count, slots", [(2, [0, 0]), (1, [7]), (1, [2**32 - 1]), (36, [0]), (2**32 - 1, [0])])
    def test_slots_returned_that_were_never_sent(
        self, proxy: tuple[Queue, mmap.mmap], count: int, slots: list[int]
    ) -> None:
        end, memory = proxy
        end.send(frame_of(60))  # slot 0
        for index, slot in enumerate(slots):
            struct.pack_into("=I", memory, self.DIRECTION_BYTES + self.BACK + 4 * index, slot)
        struct.pack_into("=I", memory, self.DIRECTION_BYTES + self.RETURNED, count)
        end.submit(frame_of(60))
        with pytest.raises(BrokenPipeError):
            end.receive()

    def test_a_bell_that_never_stops(self) -> None:
        area = create_shm(4)
        with area.open(PROXY) as end:
            bell = socket.socket(fileno=area.host_bell)
            bell.send(b"x" * 1000)
            with pytest.raises(BrokenPipeError):
                end.wait(1000)
            bell.detach()
        area.close()


@examples(150)
@given(
    writes=st.lists(
        st.tuples(
            st.integers(0, 2047), st.sampled_from([0, 1, 2, 35, 36, 37, 60, 255, 61_440, 61_441, 2**31, 2**32 - 1])
        ),
        max_size=60,
    ),
    seed=st.integers(0, 2**32),
)
def test_rubbish_in_the_shared_memory_does_no_harm(writes: list[tuple[int, int]], seed: int) -> None:
    """Whatever the peer writes over rings and counters: frames within bounds, or the end of this queue."""
    draw = random.Random(seed)
    area = create_shm(4)
    held = []
    with area.open(PROXY) as end, mmap.mmap(area.memfd, os.fstat(area.memfd).st_size) as memory:
        for word, value in writes:
            struct.pack_into("=I", memory, 4 * word, value)
            try:
                if draw.random() < 0.5:
                    end.submit(frame_of(draw.choice(SIZES)))
                if draw.random() < 0.5:
                    end.kick()
                if not end.arm():
                    end.disarm()
                while len(held) < 50 and (frame := end.receive()) is not None:
                    assert 0 < len(bytes(frame)) <= end.largest_message
                    held.append(frame)
            except OSError as error:
                assert error.errno in (errno.EAGAIN, errno.EPIPE, errno.ENXIO)
            draw.shuffle(held)
            if held and draw.random() < 0.7:
                held.pop().recycle()
        for frame in held:
            frame.recycle()
    area.close()


@pytest.mark.parametrize(
    "field, value",
    [
        ("shm_slots", 35),
        ("shm_slots", 161),
        ("slot_bytes", 4095),
        ("slot_bytes", 2**31),
        ("frame_window", 200),
        ("largest_message", 2**31),
        ("kind", 1),
    ],
)
def test_a_geometry_that_lies_is_refused(field: str, value: int) -> None:
    area = create_shm(4)
    setattr(area.geometry, field, value)
    with pytest.raises(OSError, match=r"adopting a queue"):
        area.open(HOST)
    area.close()


def test_memory_that_could_be_truncated_is_refused() -> None:
    area = create_shm(4)
    unsealed = os.memfd_create("unsealed")
    os.ftruncate(unsealed, os.fstat(area.memfd).st_size)
    with pytest.raises(OSError, match=r"adopting a queue"):
        ShmArea(unsealed, area.host_bell, area.proxy_bell, area.geometry).open(HOST)
    os.close(unsealed)
    area.close()


def test_the_capture_is_a_pcap_of_both_directions(pair: tuple[Queue, Queue], tmp_path: object) -> None:
    host, proxy = pair
    path = f"{tmp_path}/capture.pcap"
    with host.capture(path) as captured:
        captured.send(frame_of(60))
        drain(proxy)
        proxy.send(frame_of(61_440))
        drain(captured)
        captured.kick()
        assert not captured.arm()
        with open(path, "rb") as file:  # noqa: PTH123
            data = file.read()
    assert struct.unpack_from("=IHHIIII", data) == (0xA1B23C4D, 2, 4, 0, 0, 65_535, 1)
    assert struct.unpack_from("=II", data, 24 + 8) == (60, 60)
    assert data[40:100] == frame_of(60)
    assert struct.unpack_from("=II", data, 100 + 8) == (61_440, 61_440)
    assert data[116:] == frame_of(61_440)


ALL_FAULTS = Faults(
    seed=7,
    drop_ppm=100_000,
    duplicate_ppm=100_000,
    reorder_ppm=100_000,
    corrupt_ppm=100_000,
    truncate_ppm=100_000,
    skip_frames=5,
)


def run_with_faults(on_transmit: Faults | None, on_receive: Faults | None) -> list[bytes]:
    host, proxy = open_shm_pair(frame_window=16)
    with host.with_faults(on_transmit) as sender, proxy.with_faults(None, on_receive) as receiver:
        got = []
        for number in range(300):
            sender.send(frame_of(60 + number, number))
            got += drain(receiver)
        return got


@pytest.mark.parametrize("on_transmit, on_receive", [(ALL_FAULTS, None), (None, ALL_FAULTS), (ALL_FAULTS, ALL_FAULTS)])
def test_a_seed_reproduces_its_faults(on_transmit: Faults | None, on_receive: Faults | None) -> None:
    first = run_with_faults(on_transmit, on_receive)
    assert first == run_with_faults(on_transmit, on_receive)
    assert first[:5] == [frame_of(60 + n, n) for n in range(5)]
    assert first != [frame_of(60 + n, n) for n in range(300)]


@pytest.mark.parametrize("fault", ["drop", "duplicate", "reorder", "corrupt", "truncate"])
def test_each_fault_does_what_it_says(fault: str) -> None:
    host, proxy = open_shm_pair(frame_window=16)
    faults = Faults(seed=1, **{f"{fault}_ppm": 300_000})
    sent = [frame_of(100, n) for n in range(30)]
    with host.with_faults(faults) as sender, proxy:
        for frame in sent:
            sender.submit(frame)
        sender.kick()
        got = drain(proxy)
    if fault == "drop":
        assert 0 < len(got) < 30 and [f for f in sent if f in got] == got
    elif fault == "duplicate":
        assert len(got) > 30 and sorted(set(got)) == sorted(sent)
    elif fault == "reorder":
        assert got != sent and sorted(got) == sorted(sent)
    elif fault == "corrupt":
        wrong = [(a, b) for a, b in zip(sent, got, strict=True) if a != b]
        assert wrong and all(sum((x ^ y).bit_count() for x, y in zip(a, b, strict=True)) == 1 for a, b in wrong)
    else:
        assert len(got) == 30 and all(a.startswith(b) and len(b) >= 14 for a, b in zip(sent, got, strict=True))
        assert got != sent
