"""Lost frames are repeated (messages/native/decorators/arq.c): the form on the wire, what is dropped, what is a
violation, who is refused, and how much of the rate is left. tests/model/test_arq_wires.py has wires of every kind."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import google_crc32c
import pytest
from beds.lossy_wire import Conditions, Port, RepeatedLinks
from beds.queued_links import EPOCH, MS
from xts_messages._native import lib
from xts_messages.queues.queue import Faults, Queue
from xts_messages.queues.shm import open_shm_pair
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

BYTES = int(lib.XTS_ARQ_BYTES)
NUMBERED, ARRIVED, OPEN = int(lib.XTS_ARQ_NUMBERED), int(lib.XTS_ARQ_ARRIVED), int(lib.XTS_ARQ_OPEN)
CHECKSUM = slice(68, 72)
ETHERNET = bytes.fromhex("020000000001 020000000002 855b")
OTHER = EPOCH ^ 1


def inner(number: int, size: int = 100) -> bytes:
    return ETHERNET + bytes([int(lib.XTS_CMD_SEND)]) + bytes([number % 256]) * (size - 15)


def arq(frame: bytes = b"", **fields: Any) -> bytes:
    """By the oracle."""
    values = {"epoch": EPOCH, "first": 1000, "transmission": 1, **fields}
    head = codec.encode(codec.Frame("XTS_LINK_ARQ", fields=values))[14:BYTES]
    whole = bytearray(ETHERNET + head + frame[14:])
    whole[CHECKSUM] = bytes(4)
    whole[CHECKSUM] = google_crc32c.value(bytes(whole[14:])).to_bytes(4, "big")
    return bytes(whole)


def opening(number: int = 1000, **fields: Any) -> bytes:
    return arq(inner(number), sequence=number, parts=NUMBERED | OPEN, transmission=number - 999, **fields)


def fields_of(frame: bytes) -> dict[str, Any]:
    decoded = codec.decode(frame)
    assert decoded.name == "XTS_LINK_ARQ"
    return decoded.fields


def drain(end: Queue) -> list[bytes]:
    frames = []
    while (frame := end.receive()) is not None:
        frames.append(bytes(frame))
        frame.recycle()
    return frames


def turn(end: Queue, now_ns: int) -> None:
    end.tick(now_ns)
    end.kick()


@pytest.fixture
def raw() -> Iterator[tuple[Queue, Queue]]:
    """A host that writes what it likes, and the proxy's end."""
    host, proxy = open_shm_pair(frame_window=64)
    with host, proxy.repeating(lib.XTS_ARQ_PROXY) as proxy:
        proxy.tick(MS)
        yield host, proxy


@pytest.mark.parametrize("size", [24, 61, 2000, 30_000])
def test_form_on_the_wire(size: int) -> None:
    """A host's first frames open the session; all have the epoch, numbers in order, and a checksum."""
    host, wire = open_shm_pair(frame_window=16)
    with host.repeating(lib.XTS_ARQ_HOST, EPOCH) as host, wire:
        host.tick(MS)
        for number in range(2):
            host.send(inner(number, size))
        one, two = drain(wire)
        first = fields_of(one)
        assert (first["epoch"], first["parts"], first["first"]) == (EPOCH, NUMBERED | OPEN, first["sequence"])
        for number, frame in enumerate((one, two)):
            same = {**first, "sequence": first["sequence"] + number, "transmission": number + 1, "checksum": 0}
            assert frame == arq(inner(number, size), **same)


def test_first_numbers_are_random() -> None:
    firsts = set()
    for _ in range(3):
        host, wire = open_shm_pair(frame_window=16)
        with host.repeating(lib.XTS_ARQ_HOST, EPOCH) as host, wire:
            host.tick(MS)
            host.send(inner(1))
            firsts.add(fields_of(drain(wire)[0])["first"])
    assert len(firsts) == 3


def test_early_frames_wait_and_are_acknowledged(raw: tuple[Queue, Queue]) -> None:
    host, proxy = raw
    for number in (1000, 1002, 1003, 1070):
        host.send(opening(number))
    assert drain(proxy) == [inner(1000)]
    turn(proxy, MS)
    (ack,) = drain(host)
    told = fields_of(ack)
    assert told["parts"] == ARRIVED and len(ack) == BYTES
    assert (told["arrived"], told["selective_low"], told["selective_high"]) == (1001, 0b11, 1 << (1070 - 1001 - 65))
    host.send(opening(1001))
    assert drain(proxy) == [inner(1001), inner(1002), inner(1003)]
    assert proxy.stats.rx_early == 3


def test_acknowledgement_waits_for_company(raw: tuple[Queue, Queue]) -> None:
    host, proxy = raw
    host.send(opening())
    drain(proxy)
    assert proxy.deadline_ns == 0
    turn(proxy, MS)
    assert drain(host) == [] and proxy.deadline_ns == MS + 200_000
    turn(proxy, MS + 200_000)
    assert [fields_of(frame)["held_us"] for frame in drain(host)] == [200]
    assert proxy.deadline_ns is None


@pytest.mark.parametrize(
    ("frame", "counter"),
    [
        pytest.param(opening(1000), "rx_duplicates", id="duplicate"),
        pytest.param(opening(1001, epoch=OTHER)[:14] + opening(1001)[14:-1] + b"?", "rx_invalid", id="damaged"),
        pytest.param(opening(1001)[:60], "rx_invalid", id="cut in its head"),
        pytest.param(arq(inner(1)[:20], sequence=1001, parts=NUMBERED), "rx_invalid", id="no whole frame in it"),
        pytest.param(arq(inner(1), sequence=1001, parts=NUMBERED, epoch=OTHER), "rx_foreign", id="another epoch"),
        pytest.param(arq(inner(1), sequence=1001 + 128, parts=NUMBERED), "rx_foreign", id="beyond the window"),
        pytest.param(inner(1), "rx_foreign", id="without a head"),
    ],
)
def test_what_is_dropped_and_counted(raw: tuple[Queue, Queue], frame: bytes, counter: str) -> None:
    host, proxy = raw
    host.send(opening(1000))
    assert drain(proxy) == [inner(1000)]
    host.send(frame)
    host.send(opening(1001))
    assert drain(proxy) == [inner(1001)]
    stats = proxy.stats
    counters = {name: getattr(stats, name) for name in ("rx_duplicates", "rx_invalid", "rx_foreign")}
    assert counters == {name: name == counter for name in counters}


def test_late_frame_of_an_earlier_epoch_begins_nothing(raw: tuple[Queue, Queue]) -> None:
    host, proxy = raw
    for epoch in (EPOCH, OTHER):
        host.send(opening(epoch=epoch))
        assert drain(proxy) == [inner(1000)]
    host.send(opening(epoch=EPOCH))
    host.send(opening(1001, epoch=OTHER))
    assert drain(proxy) == [inner(1001)]


@pytest.mark.parametrize(
    "forged",
    [
        {"arrived": 1},
        {"arrived": 2**31 - 2},
        {"selective_low": 1},
        {"selective_high": 1 << 63},
        {"heard": 2},
    ],
    ids=str,
)
def test_acknowledgement_of_what_was_never_sent(raw: tuple[Queue, Queue], forged: dict[str, int]) -> None:
    """It ends the channel, at both ends, and no other; the next attachment is served."""
    host, proxy = raw
    host.send(opening())
    drain(proxy)
    proxy.send(inner(7))
    turn(proxy, MS)
    (answer,) = drain(host)
    first = fields_of(answer)["first"]
    right = {"arrived": first, "heard": 1, "parts": ARRIVED}
    host.send(arq(**right))
    assert drain(proxy) == [] and proxy.stats.violations == 0
    wrong = {**right, **forged}
    wrong["arrived"] = (first + 1 + forged["arrived"]) % 2**32 if "arrived" in forged else first
    host.send(arq(**wrong))
    (goodbye,) = drain(proxy)
    assert proxy.stats.violations == 1
    for told in (goodbye, *drain(host)):
        decoded = codec.decode(told)
        assert (decoded.name, decoded.error, decoded.fields["epoch"]) == ("XTS_LINK_GOODBYE", errno.EPROTO, EPOCH)
    host.send(opening(1001))
    assert drain(proxy) == [], "that epoch is over"
    host.send(opening(epoch=OTHER))
    assert drain(proxy) == [inner(1000)]


def test_forged_acknowledgement_ends_the_hosts_link() -> None:
    with RepeatedLinks(1, Conditions()) as links:
        links.open()
        links.directions[1].sink.send(arq(parts=ARRIVED, heard=2**30, transmission=2**20))
        links.run(lambda: not links.host.up and not links.proxy.up)
        assert {links.host.link.error, links.proxy.link.error} == {errno.EPROTO}


ON, OFF, NONE = int(lib.XTS_ARQ_PROXY), int(lib.XTS_ARQ_PROXY_OFF), -1


@pytest.mark.parametrize(("host", "proxy"), [(int(lib.XTS_ARQ_HOST), OFF), (NONE, ON)], ids=["host", "proxy"])
def test_ends_that_do_not_agree(host: int, proxy: int) -> None:
    """The host is told why, at once."""
    with RepeatedLinks(1, Conditions(), roles=(host, proxy)) as links:
        links.host.link.config.features = table.FEATURES["REFUSAL"][0]
        links.run(lambda: bool(links.host.link.state == lib.XTS_LINK_DOWN), 40)
        assert links.host.link.error == errno.EOPNOTSUPP
        assert links.host.link.refusal == lib.XTS_REFUSED_RELIABLE


def test_neither_repeats() -> None:
    """Frames have no head then, and a proxy that would refuse one costs nothing on the wire."""
    with RepeatedLinks(1, Conditions(), roles=(NONE, OFF)) as links:
        links.open()
        assert links.proxy.queue.native.head_bytes == 0 and links.proxy.queue.deadline_ns is None


def test_proxy_that_was_restarted_says_so() -> None:
    host, proxy = open_shm_pair(frame_window=64)
    with host, proxy.repeating(lib.XTS_ARQ_PROXY) as proxy:
        host.send(arq(inner(5), sequence=5000, parts=NUMBERED))
        assert drain(proxy) == [inner(5)], "the link sees it, and answers"


@pytest.mark.parametrize("missing", [False, True])
def test_process_that_dies_with_frames_that_are_missing(raw: tuple[Queue, Queue], missing: bool) -> None:
    """Its connections are not ended as if it had closed them: they are reset."""
    host, proxy = raw
    host.send(opening(1000))
    host.send(opening(1002 if missing else 1001))
    drain(proxy)
    host.send(codec.encode(codec.Frame("XTS_LINK_GOODBYE", {"epoch": EPOCH})))
    (told,) = drain(proxy)
    assert codec.decode(told).error == (errno.ECONNRESET if missing else 0)


def test_slots_are_bounded_when_nothing_is_acknowledged() -> None:
    host, wire = open_shm_pair(frame_window=16)
    with host.repeating(lib.XTS_ARQ_HOST, EPOCH) as host, wire:
        host.tick(MS)
        submitted = 0
        with pytest.raises(BlockingIOError):
            for submitted in range(1000):
                host.submit(inner(submitted))
        assert submitted == 16 + 32 - 8
        now_ns, sent = MS, 0
        host.kick()
        while now_ns < 60_000 * MS:
            sent += len(drain(wire))
            wire.kick()
            now_ns = max(host.deadline_ns or 0, now_ns + 1)
            turn(host, now_ns)
        assert 20 < sent < 120, "each wait is longer than the last"


def test_retained_slots_are_needed() -> None:
    host, proxy = open_shm_pair(frame_window=16)
    with host.with_faults(Faults(1, delay_ppm=1, delay_us=5)) as host, proxy:
        assert host.traits & lib.XTS_QUEUE_RETAINS
        with pytest.raises(OSError, match="repeating"):
            host.repeating(lib.XTS_ARQ_HOST, 0)


def rate(seed: int, conditions: Conditions, frames: int) -> float:
    """Frames a second, one way."""
    with RepeatedLinks(seed, conditions) as links:
        links.open()
        sent = [0]

        def work(end: Any) -> None:
            while end is links.host and sent[0] < frames and end.send(sent[0] + 1):
                sent[0] += 1

        links.work = work
        begun_ns = links.now_ns
        links.run(lambda: len(links.proxy.delivered) == frames)
        assert links.proxy.delivered == links.host.sent
        return frames / (links.now_ns - begun_ns)


@pytest.mark.parametrize(
    ("rtt_us", "loss", "least"),
    [
        pytest.param(rtt_us, loss, least, marks=[] if (rtt_us, loss) == (1000, 0.01) else [pytest.mark.long])
        for rtt_us in (100, 1000, 10_000)
        for loss, least in ((0.001, 0.9), (0.01, 0.8), (0.05, 0.5))
    ],
)
def test_share_of_the_rate_without_loss(rtt_us: int, loss: float, least: float) -> None:
    """Of a wire of 230,000 frames a second, or of what a window in each round trip is."""
    good = Conditions(delay_us=rtt_us / 2, frames_per_s=230_000, room=500)
    bad = Conditions(delay_us=rtt_us / 2, frames_per_s=230_000, room=500, loss=loss)
    frames = 4000 if loss < 0.05 else 20_000
    assert rate(1, bad, frames) >= least * rate(1, good, frames)


@pytest.mark.parametrize("conditions", [Conditions(500, 400, duplicate=0.05), Conditions(50, 2000)], ids=str)
def test_frames_that_overtake_each_other(conditions: Conditions) -> None:
    """Late is not lost: when frames have come twice, the next ones are waited for."""
    with RepeatedLinks(5, conditions) as links:
        links.open()
        sent = [0]

        def work(end: Any) -> None:
            while end is links.host and sent[0] < 3000 and end.send(sent[0] + 1):
                sent[0] += 1

        links.work = work
        links.run(lambda: len(links.proxy.delivered) == 3000)
        assert links.host.queue.stats.tx_repeated < 150


class Crowd:
    """Hosts that all send as much as they can, over wires that end in one slow port."""

    def __init__(self, channels: int, port: Port, stack: ExitStack) -> None:
        conditions = Conditions(delay_us=50)
        self.links = [stack.enter_context(RepeatedLinks(n, conditions, port=port)) for n in range(channels)]
        for one in self.links:
            one.work = self.send
        self.hosts = {id(one.host) for one in self.links}
        self.now_ns = self.links[0].now_ns

    def send(self, end: Any) -> None:
        while id(end) in self.hosts and end.send(len(end.sent) + 1):
            pass

    def run(self, seconds: float) -> list[int]:
        """How many messages of each have arrived meanwhile."""
        before = [len(one.proxy.delivered) for one in self.links]
        end_ns = self.now_ns + seconds * 1e9
        while self.now_ns < end_ns:
            self.now_ns = max(self.now_ns, min([one.act() for one in self.links]))
            for one in self.links:
                one.now_ns = self.now_ns
        return [len(one.proxy.delivered) - count for one, count in zip(self.links, before, strict=True)]


@pytest.mark.parametrize(
    ("channels", "room", "apart"),
    [
        (2, 500, 0.2),
        pytest.param(8, 500, 0.2, marks=pytest.mark.long),
        pytest.param(8, 40, 0.5, marks=pytest.mark.long),
    ],
)
def test_channels_that_share_a_port(channels: int, room: int, apart: float) -> None:
    """Whether the port lets frames wait or drops them, it stays busy. All have about the same of it, or at least
    nobody starves where frames are dropped."""
    frames_per_s, seconds = 20_000, 0.3 * channels
    with ExitStack() as stack:
        crowd = Crowd(channels, Port(frames_per_s, room), stack)
        crowd.run(0.2 + seconds / 8)
        shares = crowd.run(seconds)
        assert sum(shares) > 0.9 * frames_per_s * seconds
        assert all(1 - apart < share * channels / sum(shares) < 1 + apart for share in shares), shares
        assert all(one.proxy.delivered == one.host.sent[: len(one.proxy.delivered)] for one in crowd.links)


def test_a_frame_that_is_still_in_the_queue_is_repeated() -> None:
    """As on an interface that is down for a moment: what leaves at last has the head of the attempt that failed."""
    host, proxy = open_shm_pair(frame_window=16)
    with host.repeating(lib.XTS_ARQ_HOST, EPOCH) as host, proxy.repeating(lib.XTS_ARQ_PROXY) as proxy:
        turn(host, MS)
        host.send(inner(1))
        for now_ms in range(2, 200):
            turn(host, now_ms * MS)
        proxy.tick(200 * MS)
        assert drain(proxy) == [inner(1)]
        turn(proxy, 200 * MS)
        turn(proxy, 201 * MS)
        host.tick(201 * MS)
        assert drain(host) == []
        assert host.stats.violations == 0
