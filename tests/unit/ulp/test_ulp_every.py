"""What every layer that receives has to do. It does not matter in what pieces a stream comes nor what room a reader
has. What was changed on the way is not passed on where there is a digest. A stream that is cut off is said to be. A
PDU that does not end is a fault before it is memory."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable

import pytest
from beds.receive_layers import CASES, Case, play
from beds.ulp import UlpBed
from beds.ulp_traffic import few, sizes
from hypothesis import example, given
from hypothesis import strategies as st
from xts_messages.wire.ulps import BY_NAME, Ulp


def of(wanted: Callable[[Case], object]) -> pytest.MarkDecorator:
    """A test of the layers that are wanted."""
    loads_bpf = {"BPF_PARSER": [pytest.mark.root]}
    cases = [pytest.param(case, id=case.name, marks=loads_bpf.get(case.name, [])) for case in CASES if wanted(case)]
    return pytest.mark.parametrize("case", cases)


EVERY = of(lambda _: True)
ULPS = list(BY_NAME.values())
KEPT_BYTES_MAX = 300_000  # by a connection: one record or header, with OpenSSL's buffers

#: Attributes as they travel, of numbers that protocols have.
attributes = st.lists(st.tuples(st.integers(1, 13), st.binary(max_size=8)), max_size=3).map(
    lambda pairs: b"".join(kind.to_bytes(2, "big") + len(value).to_bytes(2, "big") + value for kind, value in pairs)
)
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


@of(lambda case: case.guarded)
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


@EVERY
def test_a_stream_that_is_cut_off_may_be_answered(case: Case) -> None:
    """The end of one direction is not that of the other, whichever protocol finds it."""
    with case.bed() as bed:
        stream = case.stream(bed, [5, 30])
    for at in range(1, len(stream), 1 + len(stream) // 20):
        with case.bed() as bed:
            _, ending = play(bed, case.stream(bed, [5, 30])[:at])
            if ending == "truncated":
                with pytest.raises(OSError) as again:  # reading has ended for good
                    bed.read()
                assert again.value.errno == errno.EBADMSG and bed.faults("TRUNCATED") == 1
            try:
                bed.write(b"answer")
            except OSError as error:  # what some protocols say of these bytes; they are asked, at least
                assert error.errno == errno.EINVAL or bed.faults("USE")


@of(lambda case: case.endless)
def test_a_pdu_that_does_not_end(case: Case) -> None:
    """It is too long before it is memory."""
    assert case.endless
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
        play(bed, case.stream(bed, [5]))  # a thread's own buffers are made with its first data
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


@few
@given(st.sampled_from(ULPS), st.integers(1, 3), st.booleans(), st.binary(max_size=60) | attributes)
def test_any_bytes_as_parameters(ulp: Ulp, direction: int, message_socket, data: bytes) -> None:
    """A push is taken, or refused with a reason, and then nothing has changed."""
    with UlpBed(message_socket=message_socket) as bed:
        try:
            bed.push_bytes(ulp.number, data, direction)
        except OSError as error:
            assert str(error) and bed.faults("PUSH") == 1
            assert bed.describe() == bed.describe(receive=False) == ""
        else:
            assert ulp.name.lower() in (bed.describe(), bed.describe(receive=False))


def test_every_layer_is_here() -> None:
    assert {case.name.split("-")[0] for case in CASES} == {ulp.name for ulp in ULPS if ulp.receive}
