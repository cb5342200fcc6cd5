"""What every layer owes that receives. It does not matter in what pieces a stream comes nor what room a reader has.
What was changed on the way is not passed on where a digest tells. A stream that is cut off is said to be. A PDU that
does not end is a fault before it is memory."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from receive_layers import CASES, Case, play
from ulp_traffic import few, sizes

EVERY = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
KEPT_BYTES_MAX = 300_000  # by a connection: one record or header, with OpenSSL's buffers

bodies = st.lists(st.integers(0, 3000), min_size=1, max_size=5)
#: Where the stream is cut off, or a byte of it changed, as parts of its length.
changes = st.one_of(
    st.none(), st.tuples(st.floats(0, 0.999), st.integers(0, 255)), st.tuples(st.floats(0, 0.999), st.integers(0, 7))
)


def changed(stream: bytes, change: tuple[float, int] | None) -> bytes:
    """One byte is another; 0: the rest is missing."""
    if change is None:
        return stream
    at = int(len(stream) * change[0])
    if not change[1]:
        return stream[:at]
    return stream[:at] + bytes([stream[at] ^ change[1]]) + stream[at + 1 :]


class Mallinfo(ctypes.Structure):
    """struct mallinfo2."""

    _names_ = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names_.split()]


def allocated() -> int:
    """Bytes that this process has from malloc()."""
    function = ctypes.CDLL(None).mallinfo2
    function.restype = Mallinfo
    info = function()
    return int(info.uordblks + info.hblkhd)


@EVERY
@few
@given(bodies, changes, sizes, sizes, st.booleans())
@example([1, 0, 300], None, [1] * 400, [], True)
@example([1, 0, 300], None, [], [1] * 400, True)
@example([1, 0, 300], None, [1] * 400, [1] * 400, True)
def test_pieces_and_rooms_do_not_matter(case: Case, bodies, change, pieces, rooms, end) -> None:  # noqa: PLR0917
    with case.bed() as bed:
        stream = changed(case.stream(bed, bodies), change)
        expected = play(bed, stream, end=end)
    with case.bed() as bed:
        stream = changed(case.stream(bed, bodies), change)
        assert play(bed, stream, pieces, rooms, end=end) == expected
    if change is None and not case.name.startswith("TLS-") and case.name != "TLS":
        assert expected[1] == ("end" if end else "")


@pytest.mark.parametrize("case", [case for case in CASES if case.guarded], ids=lambda case: case.name)
@few
@given(bodies, st.floats(0, 0.999), st.integers(1, 255), sizes)
def test_what_was_changed_is_not_passed_on(case: Case, bodies, where, how, rooms) -> None:
    """What is delivered is a beginning of what was sent."""
    with case.bed() as bed:
        sent, _ = play(bed, case.stream(bed, bodies), end=False)
    with case.bed() as bed:
        got, ending = play(bed, changed(case.stream(bed, bodies), (where, how)), [], rooms, end=False)
    if not got or got[-1][0]:
        assert got == sent[: len(got)]
    else:  # of a byte stream, in part
        assert got[:-1] == sent[: len(got) - 1]
        assert sent[len(got) - 1][1].startswith(got[-1][1])
    assert ending or got != sent or case.name == "NVME_TCP"  # which has padding without a digest


@EVERY
def test_a_stream_that_is_cut_off_is_said_to_be(case: Case) -> None:
    """Wherever: inside a PDU it is truncated, between two of them it ends; but TLS has an end of its own."""
    with case.bed() as bed:
        stream = case.stream(bed, [5, 30])
    endings = []
    for at in range(0, len(stream), 1 + len(stream) // 60):
        with case.bed() as bed:
            got, ending = play(bed, case.stream(bed, [5, 30])[:at])
        assert ending in ("end", "truncated"), (at, ending)
        assert ending == "truncated" or not at or got or case.name == "GRPC"
        endings.append(ending)
    assert endings.count("truncated") > len(endings) / 2


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name not in ("DNS", "MPA")], ids=lambda case: case.name
)
def test_a_pdu_that_does_not_end(case: Case) -> None:
    """It is too long before it is memory. (Lengths of DNS and MPA have two bytes: there is none.)"""
    head, fault = case.endless
    with case.bed() as bed:
        before = allocated()
        bed.peer_send(head)
        ending = ""
        for _ in range(100):
            _, ending = play(bed, b"x" * 1000, end=False)
            if ending:
                break
        assert ending == fault
        assert allocated() - before < KEPT_BYTES_MAX
        assert bed.faults(fault.upper()) == 1


@EVERY
def test_a_stream_that_does_not_end(case: Case) -> None:
    """PDU after PDU takes no more memory than the first."""
    with case.bed() as bed:
        if case.name.startswith(("TLS_KEYS", "MPA")):
            stream = case.stream(bed, [1000] * 400)
            chunks = [stream[i : i + 20_000] for i in range(0, len(stream), 20_000)]
        else:
            chunks = [case.stream(bed, [1000] * 20) for _ in range(20)]
        before = allocated() - sum(map(len, chunks))
        for chunk in chunks:
            _, ending = play(bed, chunk, end=False)
            assert not ending
        assert allocated() - before < KEPT_BYTES_MAX + sum(map(len, chunks))
