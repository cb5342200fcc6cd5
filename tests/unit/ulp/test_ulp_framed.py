"""PDUs whose beginning tells their length: LENGTH_PREFIXED and STREAM_PARSER, on one end of a socket pair."""

from __future__ import annotations

import errno

import pytest
from beds.examples import examples
from beds.ulp import RECEIVE, SEND, Mark, Pdu, UlpBed
from hypothesis import given
from hypothesis import strategies as st

sizes = st.lists(st.integers(1, 3000), max_size=12)
pdus = st.lists(
    st.one_of(st.binary(max_size=40), st.integers(0, 5000).map(lambda n: bytes(i % 251 for i in range(n)))), max_size=6
)


def prefixed(data: bytes, width: int = 4, order: str = "big", itself: bool = False) -> bytes:
    return (len(data) + width * itself).to_bytes(width, order) + data  # type: ignore[arg-type]


prefixes = st.fixed_dictionaries(
    {
        "width": st.sampled_from([2, 3, 4, 8]),
        "little_endian": st.booleans(),
        "counts_itself": st.booleans(),
    }
)


@examples(60)
@given(pdus, sizes, sizes, prefixes)
def test_any_pdus_in_any_pieces_arrive_as_they_were(pdus, sent, rooms, options) -> None:
    order = "little" if options["little_endian"] else "big"
    stream = b"".join(prefixed(p, options["width"], order, options["counts_itself"]) for p in pdus)
    with UlpBed() as bed:
        bed.push("LENGTH_PREFIXED", **options)
        bed.start()
        got = bed.feed(stream, sent, rooms)
        assert [p.data for p in got] == pdus
        assert all(p.mark.record_bytes == len(p.data) for p in got)
        bed.peer_close()
        assert bed.read_all() == []
        assert bed.ended


@examples(60)
@given(pdus, st.integers(1, 7), st.booleans(), prefixes)
def test_what_is_sent_has_its_length_before_it(pdus, parts, told, options) -> None:
    order = "little" if options["little_endian"] else "big"
    stream = b"".join(prefixed(p, options["width"], order, options["counts_itself"]) for p in pdus)
    with UlpBed() as bed:
        bed.push("LENGTH_PREFIXED", **options)
        bed.start()
        for pdu in pdus:
            size = max(1, -(-len(pdu) // parts))
            chunks = [pdu[i : i + size] for i in range(0, len(pdu), size)] or [b""]
            for i, chunk in enumerate(chunks):
                mark = Mark(pdu=True, more=i < len(chunks) - 1, record_bytes=len(pdu) * told)
                assert bed.write(chunk, mark, pieces=2) == max(1, len(chunk))
        assert bed.flush()
        assert bed.peer_recv() == stream


@pytest.mark.parametrize("told", [True, False])
def test_a_full_socket_takes_a_part_and_the_rest_later(told: bool) -> None:
    pdus = [bytes(i % 249 for i in range(n)) for n in (400_000, 0, 3, 300_000)]
    with UlpBed() as bed:
        bed.push("LENGTH_PREFIXED")
        bed.start()
        received = bytearray()
        for pdu in pdus:
            halves = [pdu[: len(pdu) // 2], pdu[len(pdu) // 2 :]] if pdu else [b""]
            for i, half in enumerate(halves):
                left = half
                more = i < len(halves) - 1
                while True:
                    taken = bed.write(left, Mark(pdu=True, more=more, record_bytes=len(pdu) * told), pieces=100)
                    if not left and taken:
                        break
                    left = left[taken:]
                    if not left and taken:
                        break
                    received += bed.peer_recv()
        received += bed.peer_recv()
        assert bytes(received) == b"".join(map(prefixed, pdus))


@pytest.mark.parametrize(
    ("marks", "reason"),
    [
        ([(b"abc", Mark(pdu=True, more=True, record_bytes=5)), (b"defg", Mark(pdu=True, record_bytes=5))], "longer"),
        ([(b"abc", Mark(pdu=True, record_bytes=5))], "shorter"),
        ([(b"abc", Mark(pdu=True, more=True)), (b"d", Mark(pdu=True, more=True, record_bytes=3))], "longer"),
        ([(b"abc", Mark(pdu=True, more=True)), (b"d", Mark(pdu=True, record_bytes=5))], "shorter"),
        ([(b"abc", Mark())], "are not a PDU"),
        ([(b"a" * 256, Mark(pdu=True))], "it must have 0 to 255, with a length field of 1 bytes"),
    ],
)
def test_a_pdu_that_is_not_as_told_is_a_fault_of_use(marks, reason) -> None:
    with UlpBed() as bed:
        bed.push("LENGTH_PREFIXED", SEND, width=1)
        bed.start()
        with pytest.raises(OSError) as caught:
            for data, mark in marks:
                bed.write(data, mark)
        assert caught.value.errno == errno.EINVAL
        assert bed.error().fault == "use"
        assert reason in bed.error().text
        assert bed.faults("USE") == 1


def test_parts_of_unknown_length_are_gathered_up_to_a_limit() -> None:
    with UlpBed(buffered_bytes_max=1000) as bed:
        bed.push("LENGTH_PREFIXED", SEND)
        bed.start()
        assert bed.write(b"a" * 1000, Mark(pdu=True, more=True)) == 1000
        assert bed.write(b"b" * 5000, Mark(pdu=True)) == 5000  # the end makes the length known
        assert bed.peer_recv() == prefixed(b"a" * 1000 + b"b" * 5000)
        assert bed.write(b"a" * 999, Mark(pdu=True, more=True)) == 999
        with pytest.raises(OSError) as caught:
            bed.write(b"bb", Mark(pdu=True, more=True))
        assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize(("itself", "most"), [(False, 255), (True, 254)])
def test_a_pdu_is_as_long_as_its_length_can_say(itself: bool, most: int) -> None:
    with UlpBed() as bed:
        bed.push("LENGTH_PREFIXED", width=1, counts_itself=itself)
        bed.start()
        assert bed.write(bytes(most), Mark(pdu=True)) == most
        assert bed.peer_recv() == b"\xff" + bytes(most)
        with pytest.raises(OSError, match="Invalid argument"):
            bed.write(bytes(most + 1), Mark(pdu=True))
        assert bed.peer_recv() == b""


@examples(60)
@given(st.binary(max_size=300), sizes)
def test_any_bytes_are_pdus_or_a_fault(data: bytes, sent: list[int]) -> None:
    with UlpBed() as bed:
        bed.push("LENGTH_PREFIXED", width=1, counts_itself=True, max_bytes=100)
        bed.start()
        try:
            bed.feed(data, sent)
            bed.peer_close()
            bed.read_all()
        except OSError as e:
            assert e.errno in (errno.EBADMSG, errno.EMSGSIZE)
            assert bed.error().fault in ("length", "too_long", "truncated")
        else:
            assert bed.ended
            assert bed.error().error == 0


def test_parts_of_a_pdu_come_as_they_come() -> None:
    with UlpBed() as bed:
        bed.push("LENGTH_PREFIXED", RECEIVE)
        bed.start()
        bed.peer_send(prefixed(b"x" * 10)[:7])
        assert bed.read_parts() == [(b"xxx", Mark(True, True, 10))]
        bed.peer_send(b"x" * 7 + prefixed(b""))
        assert bed.read_parts() == [(b"x" * 7, Mark(True, False, 10)), (b"", Mark(True))]


def test_a_peer_that_goes_away_within_a_pdu_is_told_of() -> None:
    with UlpBed() as bed:
        bed.push("LENGTH_PREFIXED", RECEIVE)
        bed.start()
        bed.peer_send(prefixed(b"hello")[:7])
        bed.peer_close()
        with pytest.raises(OSError) as caught:
            bed.read_all()
        assert caught.value.errno == errno.EBADMSG
        assert bed.error().text == "length_prefixed: the stream ended after 3 of the 5 bytes of a PDU"


# --- STREAM_PARSER

U64 = 1 << 64


@st.composite
def declarations(draw: st.DrawFn) -> dict[str, object]:
    """Parameters of any parser that can be pushed."""
    width = draw(st.integers(1, 8))
    declaration: dict[str, object] = {"offset": draw(st.integers(0, 20)), "width": width}
    declaration["little_endian"] = draw(st.booleans())
    declaration["mask"] = draw(st.sampled_from([U64 - 1, 0xFF, 0xFFF0, 0x0F, 0x3FFF]))
    declaration["shift"] = draw(st.sampled_from([0, 0, 4, 63]))
    declaration["unit"] = draw(st.sampled_from([1, 1, 4, 2**32 - 1]))
    declaration["adjustment"] = draw(st.sampled_from([0, 0, 9, 30, -2, -(2**63), 2**63 - 1]))
    if draw(st.booleans()):
        declaration["magic_offset"] = draw(st.integers(0, 20))
        declaration["magic"] = draw(st.binary(min_size=1, max_size=3))
        declaration["magic_mask"] = draw(st.binary(min_size=3, max_size=3))[: len(declaration["magic"])]  # type: ignore[arg-type]
    return declaration


def parse(stream: bytes, d: dict, max_bytes: int) -> tuple[list[bytes], str]:
    """The oracle: PDUs, and how it ends."""
    head = d["offset"] + d["width"]
    if "magic" in d:
        head = max(head, d["magic_offset"] + len(d["magic"]))
    pdus: list[bytes] = []
    while stream:
        if len(stream) < head:
            return pdus, "truncated"
        if "magic" in d:
            there = stream[d["magic_offset"] :]
            if any((a ^ b) & m for a, b, m in zip(there, d["magic"], d["magic_mask"], strict=False)):
                return pdus, "record"
        order = "little" if d["little_endian"] else "big"
        field = int.from_bytes(stream[d["offset"] : d["offset"] + d["width"]], order)  # type: ignore[arg-type]
        length = (((field & d["mask"]) >> d["shift"]) * d["unit"]) + d["adjustment"]
        if ((field & d["mask"]) >> d["shift"]) * d["unit"] >= U64 or length >= U64 or length < head:
            return pdus, "length"
        if length > max_bytes:
            return pdus, "too_long"
        if len(stream) < length:
            return pdus, "truncated"
        pdus.append(stream[:length])
        stream = stream[length:]
    return pdus, ""


short = st.integers(0, 40).map(lambda n: n.to_bytes(1, "big"))
streams = st.lists(st.one_of(short, short, st.binary(max_size=8), st.just(bytes(7))), max_size=60).map(b"".join)


@examples(60)
@given(streams, declarations(), sizes, sizes)
def test_a_declared_parser_finds_what_the_oracle_finds(stream, declaration, sent, rooms) -> None:
    pdus, end = parse(stream, declaration, 300)
    got = []
    with UlpBed() as bed:
        bed.push("STREAM_PARSER", max_bytes=300, **declaration)
        bed.start()
        parts = []
        try:
            bed.peer_send(stream)
            room = iter(rooms)
            while (part := bed.read(next(room, 100))) is not None:
                parts.append(part)
            bed.peer_close()
            while bed.read_parts():
                pass
        except OSError as e:
            assert e.errno in (errno.EBADMSG, errno.EMSGSIZE)
        got = bed.join(parts)
        assert [p.data for p in got] == pdus
        assert bed.error().fault == end


@examples(60)
@given(pdus, sizes, sizes)
def test_pdus_of_a_declared_parser_have_their_heads(pdus, sent, rooms) -> None:
    frames = [b"\x2a" + len(p).to_bytes(3, "little") + p for p in pdus]
    with UlpBed() as bed:
        bed.push("STREAM_PARSER", offset=1, width=3, little_endian=True, adjustment=4, magic=b"\x2a")
        bed.start()
        got = bed.feed(b"".join(frames), sent, rooms)
        assert [p.data for p in got] == frames
        assert all(p.mark.record_bytes == len(p.data) for p in got)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"width": 9}, "WIDTH is 1 to 8, not 9"),
        ({"width": 0}, "are required"),
        ({"offset": 255, "width": 2}, "not within the first 256 bytes"),
        ({"offset": 2**32 - 1}, "not within the first 256 bytes"),
        ({"shift": 64}, "SHIFT is 0 to 63"),
        ({"unit": 0}, "UNIT is 0"),
        ({"magic": b""}, "1 to 16 bytes, not 0"),
        ({"magic": b"a" * 17}, "1 to 16 bytes, not 17"),
        ({"magic": b"ab", "magic_mask": b"a"}, "MAGIC_MASK has 1 bytes, and MAGIC 2"),
        ({"magic_mask": b"a"}, "MAGIC_MASK has 1 bytes, and MAGIC 0"),
        ({"magic_offset": 3}, "MAGIC_OFFSET without MAGIC"),
        ({"magic_offset": 250, "magic": b"1234567"}, "not within"),
        ({"offset": 100, "max_bytes": 50}, "longer than MAX_BYTES"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(parameters, reason) -> None:
    with UlpBed() as bed, pytest.raises(OSError, match=reason) as caught:
        bed.push("STREAM_PARSER", **{"offset": 0, "width": 2, **parameters})
    assert caught.value.errno == errno.EINVAL


def test_a_pdu_has_its_time() -> None:
    with UlpBed() as bed:
        bed.push("STREAM_PARSER", offset=0, width=2, timeout_ms=500)
        bed.start()
        assert bed.read_all() == []
        assert bed.wakeups == []  # nothing has begun
        bed.peer_send(b"\0")
        assert bed.read_all() == []
        assert bed.wakeups == [500]
        bed.now_ns += 499_000_000
        bed.peer_send(b"\x04abc")  # the whole PDU, and the beginning of the next
        assert bed.feed(b"", []) == [Pdu(b"\0\x04ab")]
        bed.now_ns += 499_000_000
        assert bed.read_all() == []
        bed.now_ns += 2_000_000
        with pytest.raises(OSError) as caught:
            bed.read_all()
        assert caught.value.errno == errno.ETIMEDOUT
        assert bed.error().fault == "stalled"


def test_time_in_which_nobody_reads_is_not_the_peers() -> None:
    """As when the host gives no credits: what the peer has sent meanwhile waits in the socket."""
    with UlpBed() as bed:
        bed.push("STREAM_PARSER", offset=0, width=2, timeout_ms=500)
        bed.start()
        assert bed.feed(b"\0\x09abc", rooms=[1]) == []
        assert bed.wakeups[-1] == 500
        bed.now_ns += 400_000_000
        bed.peer_send(b"de")
        bed.becomes_readable()
        bed.now_ns += 10_000_000_000
        assert bed.read() is not None
        assert bed.read() is None
        assert bed.wakeups[-1] == 100  # the peer has waited 400 of its 500 ms; the 10 s were the reader's
        bed.now_ns += 99_000_000
        assert bed.read() is None
        bed.now_ns += 1_000_000
        with pytest.raises(OSError) as caught:
            bed.read()
        assert caught.value.errno == errno.ETIMEDOUT
        assert "has not come from the peer in 500 ms" in bed.error().text


def test_time_begins_within_a_part_that_was_handed_on() -> None:
    with UlpBed() as bed:
        bed.push("STREAM_PARSER", offset=0, width=2, timeout_ms=500)
        bed.start()
        bed.peer_send(b"\0\x09abc")
        assert bed.read() is not None
        assert bed.wakeups == [500]


def test_a_layer_above_a_parser_reads_the_stream_it_delineates() -> None:
    with UlpBed() as bed:
        bed.push("STREAM_PARSER", offset=0, width=1)
        bed.push("LINES", RECEIVE)
        bed.start()
        assert bed.describe() == "stream_parser/lines"
        bed.peer_send(b"\x04a\nb\x03c\n")
        assert [p.data for p in bed.read_all()] == [b"\x04a", b"b\x03c"]
