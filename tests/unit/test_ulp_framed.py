"""PDUs whose beginning tells their length: LENGTH_PREFIXED and STREAM_PARSER, on one end of a socket pair."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulp_bed import RECEIVE, SEND, Mark, UlpBed

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
        ([(b"abc", Mark())], "no PDU"),
        ([(b"a" * 256, Mark(pdu=True))], "a length of 1 bytes cannot tell"),
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
