"""LINES: one PDU per line, on one end of a socket pair."""

from __future__ import annotations

import errno

import pytest
from beds.examples import examples
from beds.ulp import RECEIVE, SEND, Mark, UlpBed
from hypothesis import example, given
from hypothesis import strategies as st

sizes = st.lists(st.integers(1, 50), max_size=20)
#: Few letters, so that delimiters overlap with what is around them.
text = st.text("ab\n", max_size=30).map(str.encode)
delimiters = st.text("ab\n", min_size=1, max_size=8).map(str.encode)


def split(stream: bytes, delimiter: bytes) -> tuple[list[bytes], bytes]:
    """Lines without delimiter, and the line that has not ended."""
    *lines, rest = stream.split(delimiter)
    return lines, rest


@examples(60)
@given(text, delimiters, st.booleans(), sizes, sizes)
@example(b"aa", b"aa", True, [], [1])  # the reader's room cuts a delimiter it is to be given
def test_any_stream_in_any_pieces_is_split_as_python_does(stream, delimiter, keep, sent, rooms) -> None:
    lines, rest = split(stream, delimiter)
    with UlpBed() as bed:
        bed.push("LINES", RECEIVE, delimiter=delimiter, keep=keep)
        bed.start()
        assert [p.data for p in bed.feed(stream, sent, rooms)] == [line + delimiter * keep for line in lines]
        bed.peer_close()
        if rest:
            with pytest.raises(OSError) as caught:
                bed.read_all()
            assert caught.value.errno == errno.EBADMSG
            assert bed.error().fault == "truncated"
        else:
            assert bed.read_all() == []
            assert bed.ended


def test_a_push_of_the_other_direction_keeps_the_reason_of_a_cut() -> None:
    """Reading goes on failing, and who asks why is told; a push of this direction begins again."""
    with UlpBed() as bed:
        bed.push("LINES", RECEIVE)
        bed.start()
        bed.peer_send(b"half a line")
        bed.peer_close()
        for push in (False, True):
            if push:
                bed.push("LINES", SEND)
            with pytest.raises(OSError) as cut:
                bed.read_all()
            assert cut.value.errno == errno.EBADMSG
            assert (bed.error().error, bed.error().fault) == (errno.EBADMSG, "truncated") and bed.error().text


@examples(60)
@given(text, delimiters, st.booleans(), st.integers(1, 5))
def test_a_pdu_is_sent_exactly_if_the_receiver_will_find_it(pdu, delimiter, keep, parts) -> None:
    whole = pdu if keep else pdu + delimiter
    good = whole.endswith(delimiter) and whole.find(delimiter) == len(whole) - len(delimiter)
    size = max(1, -(-len(pdu) // parts))
    chunks = [pdu[i : i + size] for i in range(0, len(pdu), size)] or [b""]
    with UlpBed() as bed:
        bed.push("LINES", SEND, delimiter=delimiter, keep=keep)
        bed.start()
        try:
            for i, chunk in enumerate(chunks):
                assert bed.write(chunk, Mark(pdu=True, more=i < len(chunks) - 1)) == max(1, len(chunk))
        except OSError as e:
            assert e.errno == errno.EINVAL
            assert bed.error().fault == "use"
            assert not good
        else:
            assert good
            assert bed.flush()
            assert bed.peer_recv() == whole


def test_a_full_socket_takes_a_part_and_the_rest_later() -> None:
    lines = [bytes(97 + i % 7 for i in range(n)) for n in (400_000, 0, 5, 300_000)]
    with UlpBed() as bed:
        bed.push("LINES", SEND, delimiter=b"\r\n")
        bed.start()
        received = bytearray()
        for line in lines:
            left = line
            while not (taken := bed.write(left, Mark(pdu=True))) or len(left) > taken:
                left = left[taken:]
                received += bed.peer_recv()
        while not bed.flush():
            received += bed.peer_recv()
        received += bed.peer_recv()
        assert bytes(received) == b"".join(line + b"\r\n" for line in lines)


@examples(60)
@given(st.integers(0, 12_000), st.booleans())
def test_a_line_is_as_long_as_allowed_and_no_longer(length: int, keep: bool) -> None:
    with UlpBed() as bed:
        bed.push("LINES", RECEIVE, max_bytes=6000, keep=keep)
        bed.start()
        bed.peer_send(b"x" * length + b"\n")
        if length + keep <= 6000:
            assert [p.data for p in bed.read_all()] == [b"x" * length + b"\n" * keep]
        else:
            with pytest.raises(OSError) as caught:
                bed.read_all()
            assert caught.value.errno == errno.EMSGSIZE
            assert bed.faults("TOO_LONG") == 1
