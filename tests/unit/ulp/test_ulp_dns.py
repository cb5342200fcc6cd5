"""DNS over TCP: any messages in any pieces, padding held against dnspython, real queries of RFC 1035's form."""

from __future__ import annotations

import errno

import dns.edns
import dns.flags
import dns.message
import dns.name
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import dns.tsig
import pytest
from beds.ulp import RECEIVE, SEND, Mark, Pdu, UlpBed
from beds.ulp_traffic import few, send_pdu, sizes, whole
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.wire.ulps import BY_NAME

DNS = BY_NAME["DNS"].number
messages = st.lists(
    st.one_of(st.binary(min_size=12, max_size=60), st.integers(12, 65535).map(lambda n: (bytes(range(256)) * 256)[:n])),
    max_size=5,
)


def framed(message: bytes) -> bytes:
    """Behind its length."""
    return len(message).to_bytes(2, "big") + message


def bed_of(direction: int | None = None, **parameters: int) -> UlpBed:
    bed = UlpBed()
    bed.push("DNS", direction, **parameters)
    bed.start()
    return bed


@few
@given(messages=messages, chunks=sizes, rooms=sizes)
def test_messages_are_pdus_however_they_arrive(messages: list[bytes], chunks: list[int], rooms: list[int]) -> None:
    with bed_of() as bed:
        pdus = bed.feed(whole([framed(m) for m in messages]), chunks, rooms)
        assert pdus == [Pdu(m) for m in messages]
        assert [p.mark.control for p in pdus] == [m[:4] for m in messages]
        assert all(p.mark.record_bytes == len(p.data) and p.mark.control_type == DNS for p in pdus)


@few
@given(messages=messages, cuts=sizes, announce=st.booleans(), padding=st.sampled_from([0, 128]))
def test_lengths_are_put_before_messages(messages: list[bytes], cuts: list[int], announce: bool, padding: int) -> None:
    with bed_of(padding=padding) as bed:  # what is no DNS message is not padded
        sent = whole([send_pdu(bed, m, cuts=cuts, announce=announce) for m in messages])
        assert sent == whole([framed(m) for m in messages])


@pytest.mark.parametrize("length", [0, 1, 11])
def test_length_that_no_message_has(length: int) -> None:
    with bed_of() as bed:
        with pytest.raises(OSError) as failure:
            bed.feed(framed(bytes(length)))
        assert failure.value.errno == errno.EBADMSG
        assert bed.faults("LENGTH") == 1


@pytest.mark.parametrize("cut", [1, 2, 10, 14, 20])
def test_stream_that_ends_inside_a_message(cut: int) -> None:
    with bed_of() as bed:
        bed.peer_send(framed(bytes(30)) + framed(bytes(30))[:cut])
        bed.peer_close()
        with pytest.raises(OSError) as failure:
            bed.read_all()
        assert failure.value.errno == errno.EBADMSG
        assert bed.faults("TRUNCATED") == 1


@pytest.mark.parametrize(
    ("data", "mark"),
    [
        (bytes(11), Mark(True, False, 11)),
        (b"", Mark(True)),
        (bytes(65536), Mark(True, False, 65536)),
        (bytes(100), Mark(True, True, 70000)),
        (bytes(100), Mark(True, True, 50)),
        (bytes(100), Mark(True, False, 200)),
    ],
)
def test_what_is_no_message_is_not_sent(data: bytes, mark: Mark) -> None:
    with bed_of() as bed:
        with pytest.raises(OSError) as failure:
            bed.write(data, mark)
        assert failure.value.errno == errno.EINVAL
        assert bed.faults("USE") == 1
        assert bed.peer_recv() == b""


def test_message_in_parts_that_grows_too_long() -> None:
    with bed_of() as bed:
        assert bed.write(bytes(40000), Mark(True, True)) == 40000
        with pytest.raises(OSError):
            bed.write(bytes(40000), Mark(True, True))
        assert bed.peer_recv() == b""


@pytest.mark.parametrize("padding", [0, 128])
def test_message_of_another_length_than_announced(padding: int) -> None:
    with bed_of(padding=padding) as bed:
        assert bed.write(bytes(20), Mark(True, True, 40)) == 20
        with pytest.raises(OSError):
            bed.write(bytes(10), Mark(True, False, 40))
        assert bed.faults("USE") == 1


# --- padding ---------------------------------------------------------------------------------------------------------


def query(name: str, **options: object) -> dns.message.QueryMessage:
    return dns.message.make_query(name, "AAAA", use_edns=0, **options)  # type: ignore[arg-type]


names = st.lists(st.text("abcxyz", min_size=1, max_size=20), min_size=1, max_size=6).map(".".join)


@few
@given(name=names, block=st.sampled_from([1, 2, 16, 128, 468, 1000]), answers=st.integers(0, 12), nsid=st.booleans())
def test_padding_is_what_dnspython_understands(name: str, block: int, answers: int, nsid: bool) -> None:
    request = query(name, options=[dns.edns.NSIDOption(b"x")] if nsid else [])
    message: dns.message.Message = request
    if answers:
        message = dns.message.make_response(request)
        message.use_edns(0, options=[dns.edns.NSIDOption(b"x")] if nsid else [])
        message.answer.append(dns.rrset.from_text(name + ".", 60, "IN", "A", *(f"192.0.2.{n}" for n in range(answers))))
    wire = message.to_wire()
    with bed_of(padding=block) as bed:
        sent = send_pdu(bed, wire)
    length, padded = int.from_bytes(sent[:2], "big"), sent[2:]
    assert length == len(padded) == -(-(len(wire) + 4) // block) * block
    parsed = dns.message.from_wire(padded)
    options = [o for o in parsed.options if o.otype == dns.edns.OptionType.PADDING]
    assert len(options) == 1
    assert not any(options[0].to_wire() or b"")
    assert len(options[0].to_wire() or b"") == len(padded) - len(wire) - 4
    before = dns.message.from_wire(wire)
    assert parsed == before
    assert [o for o in parsed.options if o not in options] == list(before.options)


def signed() -> bytes:
    message = query("example.com")
    message.use_tsig({dns.name.from_text("key."): dns.tsig.Key("key.", b"0123456789abcdef")})
    return message.to_wire()


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(dns.message.make_query("example.com", "A", use_edns=False).to_wire(), id="no EDNS"),
        pytest.param(query("example.com", pad=128).to_wire(), id="padded by the application"),
        pytest.param(signed(), id="signed"),
        pytest.param(query("example.com").to_wire()[:-3], id="cut short"),
        pytest.param(query("example.com").to_wire() + b"\0", id="with something behind"),
        pytest.param(bytes(12), id="nothing in it"),
        pytest.param(bytes(4) + b"\xff" * 8 + b"\xc0", id="a pointer that is cut"),
        pytest.param(bytes(10) + b"\0\1" + b"\0\0\x29" + b"\xff" * 8, id="data longer than the message"),
        pytest.param(bytes(10) + b"\0\1" + b"\x80" * 30, id="a label of no kind"),
    ],
)
def test_what_cannot_be_padded_goes_as_it_is(wire: bytes) -> None:
    with bed_of(padding=256) as bed:
        assert send_pdu(bed, wire) == framed(wire)


def test_padding_stops_at_the_longest_message() -> None:
    message = query("example.com", options=[dns.edns.GenericOption(65001, bytes(65000))], request_payload=65535)
    with bed_of(padding=40000) as bed:
        assert len(send_pdu(bed, message.to_wire(max_size=65535))) == 2 + 65535


def test_padded_message_that_tcp_takes_in_parts() -> None:
    message = query("example.com").to_wire()
    with bed_of(padding=60_000) as bed:
        sent = b""
        for _ in range(20):  # more than the socket has room for
            while not bed.write(message, Mark(True)):
                sent += bed.peer_recv()
        while not bed.flush():
            sent += bed.peer_recv()
        sent += bed.peer_recv()
        assert len(sent) == 20 * (2 + 60_000)
        assert all(sent[at : at + 2] == (60_000).to_bytes(2, "big") for at in range(0, len(sent), 60_002))


@few
@given(data=st.binary(max_size=200))
def test_padding_survives_anything(data: bytes) -> None:
    message = bytes(4) + data.ljust(8, b"\0")
    with bed_of(SEND, padding=64) as bed:
        sent = send_pdu(bed, message)
    assert int.from_bytes(sent[:2], "big") == len(sent) - 2
    assert len(sent) - 2 == len(message) or (len(sent) - 2) % 64 == 0


def test_one_side_only() -> None:
    with bed_of(RECEIVE) as bed:
        assert bed.feed(framed(bytes(20))) == [Pdu(bytes(20))]
