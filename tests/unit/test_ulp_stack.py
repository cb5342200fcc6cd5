"""The stack of pushed protocols: what may be pushed where, and what becomes of bytes, faults and time."""

from __future__ import annotations

import errno

import pytest
from ulp_bed import BOTH, RECEIVE, SEND, Pdu, UlpBed, offers
from xts_messages.ulp_attributes import decode_attributes, encode_attributes
from xts_messages.ulps import BY_NAME


def test_without_layers_it_is_the_socket() -> None:
    with UlpBed(message_socket=False) as bed:
        bed.start()
        assert bed.handshake()
        bed.peer_send(b"hello")
        assert bed.read_all() == [Pdu(b"hello")]
        assert bed.write(b"answer", pieces=3) == 6
        assert bed.peer_recv() == b"answer"
        bed.peer_close()
        assert bed.read_all() == []
        assert bed.ended


@pytest.mark.parametrize("tells_end", [False, True])
def test_a_short_read_means_empty_only_if_the_owner_tells_of_the_end(tells_end: bool) -> None:
    with UlpBed(message_socket=False, tells_end=tells_end) as bed:
        bed.start()
        bed.peer_send(b"abc")
        assert bed.read(10) is not None
        assert bed.readable is not tells_end


def test_reading_goes_idle_until_something_happens() -> None:
    with UlpBed() as bed:
        bed.push("LENGTH_PREFIXED", RECEIVE)
        bed.start()
        bed.peer_send(b"\0\0")
        assert bed.read() is None
        assert not bed.readable and not bed.pending
        bed.peer_send(b"\0\1a\0\0\0\1b")
        assert bed.read_parts()[0][0] == b"a"


@pytest.mark.parametrize(
    ("number", "direction", "attributes", "error", "reason"),
    [
        (99, BOTH, b"", errno.ENOPROTOOPT, "does not offer protocol 99"),
        (4, 0, b"", errno.EINVAL, "no direction 0"),
        (4, BOTH, b"\0\x09\0\0", errno.EINVAL, "length_prefixed has no parameter 9"),
        (4, BOTH, b"\0\2\0\1\4\0\2\0\1\4", errno.EINVAL, "parameter 2 is there twice"),
        (4, BOTH, b"\0\2\0\2\0\4", errno.EINVAL, "WIDTH has 1 byte, not 2"),
        (4, BOTH, b"\0\2\0\1\5", errno.EINVAL, "WIDTH is 1, 2, 3, 4 or 8, not 5"),
        (4, BOTH, b"\0\2\0", errno.EINVAL, "end within the head of one, at byte 0"),
        (4, BOTH, b"\0\2\0\2\1", errno.EINVAL, "says 2 bytes, and 1 are left"),
        (4, BOTH, b"\0\1\0\4\xff\0\0\0", errno.EINVAL, "MAX_BYTES is from 1 to 67108864 here, not 4278190080"),
        (4, BOTH, b"\0\1\0\4\0\0\0\0", errno.EINVAL, "MAX_BYTES is from 1"),
    ],
)
def test_a_push_is_refused_with_a_reason(number, direction, attributes, error, reason) -> None:
    with UlpBed() as bed:
        with pytest.raises(OSError) as caught:
            bed.push_bytes(number, attributes, direction)
        assert caught.value.errno == error
        assert reason in str(caught.value)
        assert bed.error().fault == "push"
        assert bed.faults("PUSH") == 1
        assert bed.describe() == bed.describe(receive=False) == ""
        bed.push("LENGTH_PREFIXED")
        assert bed.error().error == 0


def test_pdus_need_a_message_socket() -> None:
    with UlpBed(message_socket=False) as bed, pytest.raises(OSError, match="SOCK_SEQPACKET") as caught:
        bed.push("LENGTH_PREFIXED")
    assert caught.value.errno == errno.EPROTOTYPE


def test_nothing_goes_above_pdus_it_does_not_know() -> None:
    with UlpBed() as bed:
        bed.push("LENGTH_PREFIXED")
        for direction in (RECEIVE, SEND, BOTH):
            with pytest.raises(OSError, match="does not go above length_prefixed") as caught:
                bed.push("LENGTH_PREFIXED", direction)
            assert caught.value.errno == errno.EINVAL
        assert bed.describe() == "length_prefixed"


def test_a_late_push_starts_at_once_and_reads_first_what_is_given_back() -> None:
    with UlpBed() as bed:
        bed.start()
        bed.peer_send(b"hello\0\1")
        assert bed.read_all() == [Pdu(b"hello\0\1")]
        bed.push("LENGTH_PREFIXED", RECEIVE, width=2)
        assert bed.ready
        bed.give_back(b"\0")
        bed.give_back(b"\1")
        assert bed.pending
        bed.peer_send(b"a\0\2bc")
        assert [p.data for p in bed.read_all()] == [b"a", b"bc"]


def test_what_is_offered_is_in_the_table() -> None:
    for offer in offers():
        ulp = BY_NAME[offer.name.upper()]
        assert (offer.number, offer.version, offer.receive, offer.send) == (
            ulp.number,
            ulp.version,
            ulp.receive,
            ulp.send,
        )


def test_attributes_survive_the_way_to_the_wire() -> None:
    parameters = {"server_name": "a.example", "alpn": ["h2", "http/1.1"], "verify": 2, "verify_host": True}
    assert decode_attributes("TLS", encode_attributes("tls", parameters)) == parameters
    assert encode_attributes("TLS", {"verify_host": False, "trust": None}) == b""
    parser = {"offset": 0, "width": 2, "adjustment": -2}
    assert decode_attributes("STREAM_PARSER", encode_attributes("STREAM_PARSER", parser))["adjustment"] == 2**64 - 2


@pytest.mark.parametrize(
    ("ulp", "parameters", "reason"),
    [
        ("TLS", {"colour": 1}, "no parameter 'colour'"),
        ("NOTHING", {}, "no protocol 'NOTHING'"),
        ("TLS", {"verify": 256}, "8 bits"),
        ("TLS", {"verify": "yes"}, "an integer, not str"),
        ("TLS", {"server_name": ""}, "empty"),
        ("TLS", {"server_name": ["a", "b"]}, "one value"),
        ("TLS", {"verify_host": 1}, "True or False"),
        ("STREAM_PARSER", {"width": 2}, "offset is required"),
    ],
)
def test_wrong_parameters_are_named(ulp, parameters, reason) -> None:
    with pytest.raises((ValueError, TypeError), match=reason):
        encode_attributes(ulp, parameters)
