"""A stack goes to another process of the proxy (ulp_stack_move.c): its host gets the same PDUs, and its peer the same
bytes, wherever in the stream that happens, as if nothing had."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest
from beds.grpc import DATA, END_HEADERS, HEADERS, PREFACE, RST_STREAM, control, frame, parse, prefixed, window_update
from beds.receive_layers import CASES, Case, body, play
from beds.ulp import BOTH, RECEIVE, SEND, Mark, Pdu, UlpBed
from beds.ulp_traffic import few, sizes
from hypothesis import given
from hypothesis import strategies as st
from test_ulp_nvme_tcp import C2H_DATA, RESPONSE, Sample
from xts_messages.wire.ulps import BY_NAME

#: Those whose keys are the kernel's, or the host's.
STAY = ("TLS_KEYS",)
MOVABLE = [case for case in CASES if not case.name.startswith(STAY)]
SIZES = [3, 0, 40]
LAST = 1 << 30  # a PDU in one part


def of(cases: list[Case]) -> pytest.MarkDecorator:
    loads_bpf = {"BPF_PARSER": [pytest.mark.root]}
    marked = [pytest.param(case, id=case.name, marks=loads_bpf.get(case.name, [])) for case in cases]
    return pytest.mark.parametrize("case", marked)


class Each:
    """Every read."""

    def __contains__(self, _: object) -> bool:
        return True


@of(MOVABLE)
@pytest.mark.parametrize("rooms", [[], [1] * 4000], ids=["", "small-rooms"])
def test_at_each_byte(case: Case, rooms: list[int]) -> None:
    """The stream comes byte by byte, and before each of them the stack moves; or it is here, and is read so."""
    with case.bed() as bed:
        expected = play(bed, case.stream(bed, SIZES))
    assert expected[1] == "end" or case.name.startswith("TLS")
    with case.bed() as bed:
        stream = case.stream(bed, SIZES)
        assert play(bed, stream, [1] * len(stream), rooms, moves=Each()) == expected
    with case.bed() as bed:
        assert play(bed, case.stream(bed, SIZES), [], rooms, moves=Each()) == expected


@of(MOVABLE)
def test_once_at_any_byte(case: Case) -> None:
    with case.bed() as bed:
        stream = case.stream(bed, SIZES)
    for at in range(1, len(stream) + 1, 1 + len(stream) // 150):
        with case.bed() as bed:
            expected = play(bed, case.stream(bed, SIZES))
        with case.bed() as bed:
            assert play(bed, case.stream(bed, SIZES), [at], moves=[1]) == expected, at


@of(MOVABLE)
@few
@given(st.lists(st.integers(0, 3000), min_size=1, max_size=5), sizes, sizes, st.sets(st.integers(0, 40)))
def test_any_stream_in_any_pieces(case: Case, bodies, pieces, rooms, moves) -> None:
    with case.bed() as bed:
        expected = play(bed, case.stream(bed, bodies))
    with case.bed() as bed:
        assert play(bed, case.stream(bed, bodies), pieces, rooms, moves=moves) == expected


@of([case for case in CASES if case.name.startswith(STAY)])
def test_what_stays_is_named(case: Case) -> None:
    with case.bed() as bed:
        assert bed.stays() == case.name.partition("-")[0].lower()


# --- sent -----------------------------------------------------------------------------------------

Push = Callable[[UlpBed], None]


def pushes(name: str, **parameters: object) -> Push:
    return lambda bed: bed.push(name, **parameters)  # type: ignore[arg-type]


def plain(size: int, number: int) -> bytes:
    return body(size, number).replace(b"\n", b"_")


def line(size: int, number: int) -> bytes:
    return plain(size, number) + b"\n"


def message(size: int, number: int) -> bytes:
    """Of DNS: a header, and a record OPT by which it may be padded."""
    return bytes([0, number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]) + bytes([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0])


def nvme(size: int, number: int) -> bytes:
    return (Sample(C2H_DATA, b"", body(size, number)) if size else Sample(RESPONSE, bytes([number]))).plain()


def pushes_grpc(bed: UlpBed) -> None:
    bed.push("HTTP2")
    bed.push("GRPC")


def payloads(stream: bytes) -> bytes:
    """Of gRPC: it is in as many frames as there were offers, so only what is in them is the same."""
    return b"".join(payload for kind, _, _, payload in parse(stream.removeprefix(PREFACE)) if kind == DATA)


@dataclass(frozen=True)
class Sender:
    """`push`: how it is made; `pdu`: one of about this size; `announced`: its length has to be known first; `begin`:
    what is sent first; `read`: what has to be the same at the peer; `sizes`: of PDUs, most longer than what TCP takes
    at once."""

    push: Push
    pdu: Callable[[int, int], bytes]
    announced: bool = False
    begin: bytes = b""
    control: tuple[int, bytes] = (0, b"")
    read: Callable[[bytes], bytes] = bytes
    sizes: tuple[int, ...] = (5, 300_000, 0, 700, 1)


SENDERS = {
    "LINES": Sender(pushes("LINES"), plain),
    "LINES-keep": Sender(pushes("LINES", keep=True), line),
    "LINES-long": Sender(pushes("LINES", delimiter=b"\r\n\r\n"), plain),
    "LENGTH_PREFIXED": Sender(pushes("LENGTH_PREFIXED"), body),
    "LENGTH_PREFIXED-announced": Sender(pushes("LENGTH_PREFIXED", width=8), body, True),
    "DNS": Sender(pushes("DNS"), message, sizes=(0,) * 40),
    "DNS-padded": Sender(pushes("DNS", padding=128), message, sizes=(0,) * 40),
    "HTTP2": Sender(pushes("HTTP2"), lambda size, number: frame(DATA, body(size, number), 0, 1)),
    "GRPC": Sender(
        pushes_grpc,
        body,
        True,
        frame(HEADERS, b"\x82", END_HEADERS, 1),
        (BY_NAME["GRPC"].number, control(0, 0, 1)),
        payloads,
        (5, 30_000, 0, 20_000, 1),
    ),
    "NVME_TCP": Sender(pushes("NVME_TCP", header_digest=True, data_digest=True, data_alignment=7), nvme),
    "MPA": Sender(pushes("MPA"), body, True, sizes=(5, 60_000, 0, 60_000, 1, 60_000)),
    "MPA-markers": Sender(pushes("MPA", markers_tx=True), body, True, sizes=(5, 60_000, 0, 60_000, 1, 60_000)),
}


def sent(sender: Sender, pdus: Iterable[int], cut: int, moves: Callable[[int], bool]) -> bytes:
    """What the peer gets of PDUs that are offered in parts of this size, whatever TCP takes; before which of the offers
    the stack moves."""
    received, offers = bytearray(), 0
    with UlpBed() as bed:
        sender.push(bed)
        bed.start()
        if sender.begin:
            assert bed.write(sender.begin) == len(sender.begin)
        for number, size in enumerate(pdus):
            data = sender.pdu(size, number)
            parts = [data[at : at + cut] for at in range(0, len(data), cut)] or [b""]
            for i, whole in enumerate(parts):
                left, taken = whole, 0
                while not taken or left:
                    if moves(offers):
                        bed.move()
                    offers += 1
                    mark = Mark(True, i + 1 < len(parts), len(data) * sender.announced, *sender.control)
                    taken = bed.write(left, mark, pieces=2)
                    left = left[taken:]
                    received += bed.peer_recv(limit=1 if offers % 3 else 1 << 20)
        flushed = False
        while not flushed:
            if moves(offers):
                bed.move()
            flushed = bed.flush()
            received += bed.peer_recv()
    return sender.read(bytes(received))


@pytest.mark.parametrize("name", SENDERS)
def test_what_is_sent_while_it_moves(name: str) -> None:
    """Before each part."""
    sender = SENDERS[name]
    expected = sent(sender, sender.sizes, LAST, lambda _: False)
    assert sent(sender, sender.sizes, LAST, lambda _: True) == expected
    assert sent(sender, sender.sizes, 7 if len(expected) < 5000 else 10_007, lambda _: True) == expected


@pytest.mark.parametrize("name", SENDERS)
@few
@given(st.lists(st.integers(0, 60), min_size=1, max_size=4), st.integers(1, 9), st.sets(st.integers(0, 40)))
def test_any_pdus_in_any_parts(name: str, pdus: list[int], cut: int, moves: set[int]) -> None:
    expected = sent(SENDERS[name], pdus, LAST, lambda _: False)
    assert sent(SENDERS[name], pdus, cut, moves.__contains__) == expected


# --- several, and of one direction ----------------------------------------------------------------


def test_a_stack_of_two_that_read_differently() -> None:
    """What is read has lines in prefixed PDUs of another parser; what is sent has a prefix only."""
    with UlpBed() as bed:
        bed.push("STREAM_PARSER", RECEIVE, offset=0, width=1, adjustment=1)
        bed.push("LENGTH_PREFIXED", SEND)
        bed.push("LINES", RECEIVE)
        bed.start()
        stream = bytes([7]) + b"one\ntwo" + bytes([1]) + b"\n"
        got: list[Pdu] = []
        for at in range(len(stream)):
            bed.move()
            got += bed.feed(stream[at : at + 1])
        assert [pdu.data for pdu in got] == [b"\x07one", b"two\x01"]
        assert (bed.describe(), bed.describe(receive=False)) == ("stream_parser/lines", "length_prefixed")
        assert bed.write(b"sent") == 4
        bed.move()
        assert bed.peer_recv() == b"\0\0\0\4sent"


@pytest.mark.parametrize("direction", [RECEIVE, SEND, BOTH])
def test_one_direction(direction: int) -> None:
    with UlpBed() as bed:
        bed.push("LINES", direction)
        bed.start()
        bed.move()
        bed.peer_send(b"one\n")
        assert bed.read_parts()[0][0] == (b"one" if direction & RECEIVE else b"one\n")
        bed.write(b"two")
        assert bed.peer_recv() == (b"two\n" if direction & SEND else b"two")


def test_bytes_that_were_given_back() -> None:
    with UlpBed() as bed:
        bed.start()
        bed.push("LINES")
        bed.give_back(b"first\nsec")
        assert bed.read(room=3) is not None
        bed.move()
        assert bed.feed(b"ond\n")[-1].data == b"second"


def test_a_message_that_waits_for_a_window() -> None:
    """Of gRPC: the stream is the same there, and goes on when its peer opens the window."""
    with UlpBed() as bed:
        pushes_grpc(bed)
        bed.start()
        assert bed.write(frame(HEADERS, b"\x82", END_HEADERS, 1))
        data, mark = body(70_000, 0), Mark(True, False, 70_000, BY_NAME["GRPC"].number, control(0, 0, 1))
        taken = bed.write(data, mark)
        assert taken == 65_535 - 5
        bed.move()
        assert bed.tell(1, layer=1) == (1).to_bytes(4, "big")
        assert bed.write(data[taken:], mark) == 0
        bed.feed(window_update(0, 10_000) + window_update(1, 10_000))
        bed.move()
        assert bed.write(data[taken:], mark) == 70_000 - taken
        assert payloads(bed.peer_recv()) == bytes([0]) + (70_000).to_bytes(4, "big") + data


def test_streams_that_are_gathered_at_once() -> None:
    """Of gRPC, each in parts between those of the others, with one that has been reset between them."""
    with UlpBed() as bed:
        pushes_grpc(bed)
        bed.start()
        streams = range(1, 81, 2)
        for stream in streams:
            assert bed.write(frame(HEADERS, b"\x82", END_HEADERS, stream))
        assert bed.write(frame(RST_STREAM, bytes(4), 0, 3))
        got: list[Pdu] = []
        for part in range(4):
            for stream in streams:
                whole = prefixed(body(40, stream))
                got += bed.feed(frame(DATA, whole[part * 12 : part * 12 + 12], 0, stream))
            bed.move()
        assert [pdu.data for pdu in got] == [body(40, stream) for stream in streams if stream != 3]


@pytest.mark.parametrize("first", [RECEIVE, SEND])
def test_half_of_a_protocol_for_both_directions(first: int) -> None:
    """The other half is pushed at the next process, with the same parameters or none."""
    for parameters in ({"max_frame_bytes": 20_000}, {}):
        with UlpBed() as bed:
            bed.push("HTTP2", first, max_frame_bytes=20_000)
            bed.start()
            bed.move()
            with pytest.raises(OSError, match="other parameters"):
                bed.push("HTTP2", BOTH - first, max_frame_bytes=30_000)
            bed.move()
            bed.push("HTTP2", BOTH - first, **parameters)
            assert (bed.describe(), bed.describe(receive=False)) == ("http2", "http2")
            bed.move()
            one = frame(DATA, bytes(19_000), 0, 1)
            assert [pdu.data for pdu in bed.feed(one)] == [one]
            assert bed.write(one) == len(one) and bed.peer_recv() == PREFACE + one


def test_a_protocol_that_is_off_there_does_not_go_on() -> None:
    """Its operator wants none of its code to run."""
    with UlpBed() as bed, UlpBed(optional=()) as other:
        bed.push("MPA")
        bed.start()
        bed.move()
        bed.owner.config = other.config
        with pytest.raises(OSError) as refused:
            bed.move()
        assert refused.value.errno == errno.EBADMSG


def test_an_older_process_does_not_get_what_it_does_not_know() -> None:
    with UlpBed() as bed:
        bed.push("LINES")
        bed.start()
        assert bed.stays(1) and not bed.stays(2)


@pytest.mark.parametrize("at", range(3))
def test_the_time_that_a_peer_has_goes_on(at: int) -> None:
    """TIMEOUT_MS. What it had waited when the stack moved is not known any more, as between workers."""
    with UlpBed() as bed:
        bed.push("STREAM_PARSER", offset=0, width=4, adjustment=4, timeout_ms=100)
        bed.start()
        bed.feed(b"\0\0\0\4rest"[: 2 + at])
        bed.now_ns += 60_000_000
        bed.move()
        bed.wakeups.clear()
        assert bed.read_all() == [] and bed.wakeups
        bed.now_ns += 100_000_000
        with pytest.raises(OSError) as stalled:
            bed.read_all()
        assert stalled.value.errno == errno.ETIMEDOUT and bed.faults("STALLED") == 1
