"""Heads of frames (messages/native/decorators/headed.c), between the ends of a shared-memory queue: who knows the
secret is heard, and nobody else. The form is the host's choice, with each epoch."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from xts_messages._native import ffi, lib
from xts_messages.queues.queue import Faults, Queue
from xts_messages.queues.shm import open_shm_pair
from xts_messages.wire import codec

ADDS = int(lib.XTS_HEADED_BYTES) - int(lib.XTS_ETH_BYTES)
SECRET, OTHER = 0x1122334455667788, 0x99AABBCCDDEEFF00
ETHERNET = bytes.fromhex("020000000001 020000000002 855b")
SIZES = (24, 60, 61, 512, 2000, 30_000)


@pytest.fixture
def raw() -> Iterator[tuple[Queue, Queue]]:
    """A host that writes what it likes, and the proxy's end."""
    host, proxy = open_shm_pair(frame_window=64)
    with host, proxy.headed(number=3) as proxy:
        yield host, proxy


def frame_of(size: int) -> bytes:
    return ETHERNET + b"\x07" + random.Random(size).randbytes(size - 15)


def headed(frame: bytes, secret: int = SECRET, *, parts: int | None = None, number: int = 0) -> bytes:
    """By the oracle."""
    known = int(lib.XTS_HEAD_SECRET) if secret else 0
    fields = {"secret": secret, "parts": known if parts is None else parts}
    head = codec.encode(codec.Frame("XTS_LINK_HEADED", id=number, fields=fields))
    return frame[:14] + head[14 : int(lib.XTS_HEADED_BYTES)] + frame[14:]


def drain(end: Queue) -> list[bytes]:
    frames = []
    while (frame := end.receive()) is not None:
        frames.append(bytes(frame))
        frame.recycle()
    return frames


@pytest.mark.parametrize("size", SIZES)
def test_there_and_back(size: int) -> None:
    host, proxy = open_shm_pair(frame_window=16)
    with host.headed(SECRET, number=7) as host, proxy.headed(number=3) as proxy:
        sent = frame_of(size)
        host.send(sent)
        assert drain(proxy) == [sent]
        lib.xts_headed_epoch(proxy.native)
        proxy.send(sent)
        assert drain(host) == [sent]
        assert int(lib.xts_headed_last(proxy.native)) == SECRET


@pytest.mark.parametrize("size", SIZES)
def test_form_on_the_wire(raw: tuple[Queue, Queue], size: int) -> None:
    """As the protocol says it, both ways, and an answer has the form of what it answers."""
    host, proxy = raw
    sent = frame_of(size)
    for form in (headed(sent), sent, headed(sent, 0)):
        host.send(form)
        assert drain(proxy) == [sent]
        proxy.send(sent)
        (answer,) = drain(host)
        assert answer == (sent if form == sent else headed(sent, SECRET if form == headed(sent) else 0, number=3))


def test_only_who_knows_the_secret_is_heard(raw: tuple[Queue, Queue]) -> None:
    host, proxy = raw
    sent = frame_of(100)
    host.send(headed(sent))
    assert drain(proxy) == [sent]
    lib.xts_headed_epoch(proxy.native)
    wrong = (sent, headed(sent, OTHER), headed(sent, 0), headed(sent, SECRET ^ 1), headed(sent, parts=0))
    for form in wrong:
        host.send(form)
        assert drain(proxy) == []
    assert proxy.stats.rx_foreign == len(wrong)
    host.send(headed(sent))
    assert drain(proxy) == [sent]
    proxy.send(sent)
    assert drain(host) == [headed(sent, number=3)], "an attacker does not change the form of answers"


def test_epoch_without_heads_hears_none_with_one(raw: tuple[Queue, Queue]) -> None:
    host, proxy = raw
    sent = frame_of(100)
    host.send(sent)
    assert drain(proxy) == [sent]
    lib.xts_headed_epoch(proxy.native)
    host.send(headed(sent))
    assert drain(proxy) == []
    lib.xts_headed_no_epoch(proxy.native)
    host.send(headed(sent))
    assert drain(proxy) == [sent]


@pytest.mark.parametrize("frames", [1, 63, 64, 65])
def test_flood_ends_before_a_frame_of_ours(raw: tuple[Queue, Queue], frames: int) -> None:
    """However many are dropped, the caller has its turn, and finds the frame behind them."""
    host, proxy = raw
    sent = frame_of(100)
    host.send(headed(sent))
    assert drain(proxy) == [sent]
    lib.xts_headed_epoch(proxy.native)
    for _ in range(frames):
        host.send(headed(sent, OTHER))
    host.send(headed(sent))
    taken = drain(proxy) or drain(proxy)
    assert taken == [sent]
    assert proxy.stats.rx_foreign == frames


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(headed(frame_of(100))[:45], id="cut in the head"),
        pytest.param(headed(frame_of(100))[:55], id="no whole frame in it"),
        pytest.param(headed(frame_of(100), parts=3), id="a part that is not known"),
        pytest.param(headed(frame_of(100), 0, parts=1), id="a secret of 0"),
    ],
)
def test_bad_heads(raw: tuple[Queue, Queue], form: bytes) -> None:
    host, proxy = raw
    host.send(form)
    assert drain(proxy) == []
    assert proxy.stats.rx_foreign == 1


def state_of(queue: Queue) -> bytes:
    state = ffi.new("uint8_t[]", int(lib.XTS_HEADED_STATE_BYTES))
    lib.xts_headed_state(queue.native, state)
    return bytes(state)


#: A proxy with an epoch whose frames have heads; with an epoch whose frames have none; and with none.
HEADED, PLAIN, NO_EPOCH = bytes([1, 1]) + SECRET.to_bytes(8, "big"), bytes([1, *bytes(9)]), bytes(10)


def beheaded(frame: bytes, written: int) -> bytes:
    """As a process leaves it that has died: it had written so much of the Ethernet header over the head's end."""
    return frame[:ADDS] + frame[:written] + frame[ADDS + written :]


@pytest.mark.parametrize("written", range(15))
def test_what_a_dead_process_had_taken_is_heard_again(written: int) -> None:
    """Wherever it was when it died, and as often as that happens. From the next epoch on it is a bad head."""
    host, proxy = open_shm_pair(frame_window=64)
    sent = frame_of(100)
    wrong = [beheaded(headed(sent, other), written) for other in (OTHER, 0)] + [headed(sent, parts=2), sent]
    with host, proxy.headed(number=3, state=HEADED, died=True) as proxy:
        for form in (beheaded(headed(sent), written), *wrong, beheaded(headed(sent), written), headed(sent)):
            host.send(form)
        assert drain(proxy) == [sent] * 3
        assert proxy.stats.rx_foreign == len(wrong)
        lib.xts_headed_epoch(proxy.native)
        host.send(beheaded(headed(sent), written))
        assert drain(proxy) == [sent] * (written < 13)  # the last two bytes are those that are looked at


@pytest.mark.parametrize("secret", [SECRET, 0])
def test_what_a_dead_process_without_an_epoch_had_taken(secret: int) -> None:
    """HELLO, for example. Its answer has its form."""
    host, proxy = open_shm_pair(frame_window=64)
    sent = frame_of(100)
    with host, proxy.headed(number=3, state=NO_EPOCH, died=True) as proxy:
        host.send(beheaded(headed(sent, secret), 14))
        assert drain(proxy) == [sent]
        proxy.send(sent)
        assert drain(host) == [headed(sent, secret, number=3)]


def test_nothing_was_taken_of_what_comes_after_an_upgrade() -> None:
    host, proxy = open_shm_pair(frame_window=64)
    with host, proxy.headed(number=3, state=HEADED) as proxy:
        host.send(beheaded(headed(frame_of(100)), 14))
        assert drain(proxy) == []


def test_what_the_next_process_has_to_know(raw: tuple[Queue, Queue]) -> None:
    """It is the same for each of them."""
    host, proxy = raw
    assert state_of(proxy) == NO_EPOCH
    for form, state in ((headed(frame_of(100)), HEADED), (frame_of(100), PLAIN)):
        host.send(form)
        drain(proxy)
        lib.xts_headed_epoch(proxy.native)
        assert state_of(proxy) == state
        for died in (False, True):
            other, goes_on = open_shm_pair(frame_window=64)
            with other, goes_on.headed(number=3, state=state, died=died) as goes_on:
                assert state_of(goes_on) == state
        lib.xts_headed_no_epoch(proxy.native)
    assert state_of(host) == bytes(10)


def test_bundles_leave_room_for_the_head() -> None:
    """2,048 bytes of a frame come in one piece: a bundle and its head are no longer."""
    host, proxy = open_shm_pair(frame_window=64)
    with host.headed(SECRET).bundled() as host, proxy:
        for _ in range(12):
            host.submit(frame_of(340))
        host.kick()
        whole = drain(proxy)
        assert all(len(frame) <= 2048 for frame in whole)
        assert len(whole) == 3


def test_what_is_retained_is_sent_again_as_it_was(raw: tuple[Queue, Queue]) -> None:
    """With the head that frames have now, though the end of one lies where a frame's Ethernet header is."""
    host, proxy = raw
    sent, again = frame_of(100), frame_of(512)
    for secret in (SECRET, 0, OTHER):
        host.send(headed(sent, secret))
        assert drain(proxy) == [sent]
        slot = proxy.submit_retained(again)
        for _ in range(3):
            proxy.kick()
            assert drain(host) == [headed(again, secret, number=3)]
            host.kick()
            assert slot.submit()
        slot.release()
        proxy.kick()
        drain(host)
        host.kick()
    for number in range(64 + 32):
        proxy.submit(frame_of(100 + number))
    with pytest.raises(BlockingIOError):
        proxy.submit(sent)


def test_what_is_retained_needs_no_other_slot() -> None:
    """It waits until it has come back from the last time."""
    host, proxy = open_shm_pair(frame_window=4)
    with host.headed(SECRET) as host, proxy.headed() as proxy:
        slots = [host.submit_retained(frame_of(100)) for _ in range(4 + 32)]
        assert not slots[0].submit()
        host.kick()
        assert drain(proxy) == [frame_of(100)] * len(slots)
        proxy.kick()
        assert slots[0].submit()
        for slot in slots:
            slot.release()


def test_frames_are_kept_without_their_head() -> None:
    host, proxy = open_shm_pair(frame_window=4, kept_max=1)
    with host.headed(SECRET) as host, proxy.headed() as proxy:
        host.send(frame_of(300))
        kept = proxy.receive()
        assert kept is not None and kept.keep()
        for number in range(4 + 32):
            host.submit(frame_of(60 + number))
        host.kick()
        assert drain(proxy) == [frame_of(60 + number) for number in range(4 + 32)]
        assert bytes(kept) == frame_of(300)
        kept.recycle()


def test_time_goes_through() -> None:
    """To a queue below that delays frames, and back from it."""
    host, proxy = open_shm_pair(frame_window=16)
    with host.with_faults(Faults(1, delay_ppm=1_000_000, delay_us=5)).headed(SECRET) as host, proxy.headed() as proxy:
        assert host.deadline_ns is None
        host.tick(1_000)
        host.send(frame_of(100))
        assert host.deadline_ns == 0 and drain(proxy) == []
        host.tick(2_000)
        assert host.deadline_ns == 7_000
        host.tick(7_000)
        host.kick()
        assert drain(proxy) == [frame_of(100)]
        assert host.deadline_ns is None
