"""The stack of pushed protocols: what may be pushed where, and what becomes of bytes, faults and time."""

from __future__ import annotations

import errno

import msgspec
import pytest
from beds.ulp import BOTH, RECEIVE, SEND, Pdu, UlpBed, offers
from xts_messages.wire.ulp_attributes import decode_attributes, encode_attributes
from xts_messages.wire.ulps import BY_NAME, ULPS
from xts_proxy.config.config_ulp import Ulp


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


@pytest.mark.parametrize("reports_end", [False, True])
def test_a_short_read_means_empty_only_if_the_owner_tells_of_the_end(reports_end: bool) -> None:
    with UlpBed(message_socket=False, reports_end=reports_end) as bed:
        bed.start()
        bed.peer_send(b"abc")
        assert bed.read(10) is not None
        assert bed.readable is not reports_end


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
        (4, 0, b"", errno.EINVAL, "0 is not a direction"),
        (4, BOTH, b"\0\x09\0\0", errno.EINVAL, "length_prefixed has no parameter 9"),
        (4, BOTH, b"\0\2\0\1\4\0\2\0\1\4", errno.EINVAL, "parameter 2 is given twice"),
        (4, BOTH, b"\0\2\0\2\0\4", errno.EINVAL, "WIDTH has 1 byte, not 2"),
        (4, BOTH, b"\0\2\0\1\5", errno.EINVAL, "WIDTH is 1, 2, 3, 4 or 8, not 5"),
        (4, BOTH, b"\0\2\0", errno.EINVAL, "end inside the header of one, at byte 0"),
        (4, BOTH, b"\0\2\0\2\1", errno.EINVAL, "announces 2 bytes, but only 1 are left"),
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


BOUNDED = [ulp.name for ulp in ULPS if any(a.name == "MAX_BYTES" for a in ulp.attributes)]
BOUNDED.remove("BPF_PARSER")  # takes a program, which is loaded with privilege


@pytest.mark.parametrize("ulp", BOUNDED)
def test_max_bytes_is_bounded_by_the_operator_and_so_is_its_default(ulp: str) -> None:
    needs: dict[str, int] = {"offset": 0, "width": 2} if ulp == "STREAM_PARSER" else {}
    with UlpBed(pdu_bytes_max=4096) as bed:
        if ulp == "GRPC":
            bed.push("HTTP2")
        with pytest.raises(OSError, match="MAX_BYTES is from 1 to 4096 here, not 4097"):
            bed.push(ulp, max_bytes=4097, **needs)
        bed.push(ulp, **needs)


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
        bed.give_back(b"\0", b"\1")
        assert bed.pending
        bed.peer_send(b"a\0\2bc")
        assert [p.data for p in bed.read_all()] == [b"a", b"bc"]


def test_what_is_given_back_later_was_read_before() -> None:
    """As when some of what was given back has been read, and is given back once more."""
    with UlpBed() as bed:
        bed.push("LENGTH_PREFIXED", RECEIVE, width=1)
        bed.start()
        bed.give_back(b"bc\1d")
        bed.give_back(b"\3", b"a")
        assert [p.data for p in bed.read_all()] == [b"abc", b"d"]


def test_what_is_optional_is_refused_unless_it_is_named() -> None:
    """With the reason, and it is not in the list of what is offered."""
    optional = {ulp.name for ulp in ULPS if ulp.optional}
    assert optional == {"GRPC", "MPA"}
    assert msgspec.convert({"optional": [name.lower() for name in optional]}, Ulp).optional
    for name in optional:
        with UlpBed(optional=()) as bed:
            with pytest.raises(OSError) as refused:
                bed.push(name)
            assert refused.value.errno == errno.ENOPROTOOPT
            said = bed.error().text
            assert said.startswith(f"{name.lower()} is off in this proxy") and f'["{name.lower()}"] in [ulp]' in said
        with UlpBed(optional=[name]) as bed:
            if name == "GRPC":
                bed.push("HTTP2")
            bed.push(name)
    assert {ulp.name.lower() for ulp in ULPS} - {offer.name for offer in offers(())} == {n.lower() for n in optional}
    assert {offer.name for offer in offers()} == {ulp.name.lower() for ulp in ULPS}


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


# --- layers of both directions


def tls(bed: UlpBed, direction: int = BOTH, **parameters: int) -> None:
    bed.push("TLS", direction, **({"verify": 0} | parameters))


@pytest.mark.parametrize(("first", "second"), [(RECEIVE, SEND), (SEND, RECEIVE)])
@pytest.mark.parametrize("parameters", [b"", b"\0\4\0\1\0"])
def test_two_halves_are_one_layer(first: int, second: int, parameters: bytes) -> None:
    with UlpBed(message_socket=False) as bed:
        tls(bed, first)
        bed.push_bytes(5, parameters, second)  # none, or the same
        bed.start()
        assert not bed.handshake()
        assert bed.describe() == bed.describe(receive=False) == "tls"
        assert bed.peer_recv()[:1] == b"\x16"  # one ClientHello
        assert bed.peer_recv() == b""


def test_two_halves_of_different_parameters_are_refused() -> None:
    with UlpBed(message_socket=False) as bed:
        tls(bed, RECEIVE)
        with pytest.raises(OSError, match="with other parameters: give the same ones, or none"):
            tls(bed, SEND, min_version=0x0304)
        assert bed.describe(receive=False) == ""


def test_half_a_layer_does_not_start() -> None:
    with UlpBed(message_socket=False) as bed:
        tls(bed, RECEIVE)
        with pytest.raises(OSError) as caught:
            bed.start()
        assert caught.value.errno == errno.EINVAL
        assert "pushed onto the receive side only" in bed.error().text


def test_half_a_layer_on_a_connection_waits_for_the_other_half_and_not_for_ever() -> None:
    with UlpBed(message_socket=False, handshake_timeout_ms=3000) as bed:
        bed.start()
        tls(bed, RECEIVE)
        assert bed.wakeups == [3000]
        assert not bed.handshake()
        assert bed.write(b"as it is") == 8  # the send side is as before
        assert bed.read_all() == []
        bed.now_ns += 3_000_000_000
        with pytest.raises(OSError) as caught:
            bed.handshake()
        assert caught.value.errno == errno.ETIMEDOUT
        assert bed.error().text == "the handshake of tls has not ended in 3000 ms"
        assert bed.faults("STALLED") == 1


def test_layers_do_not_cross() -> None:
    with UlpBed() as bed:
        bed.push("HTTP2", RECEIVE)
        with pytest.raises(OSError, match="does not go above http2"):
            tls(bed, RECEIVE)
    with UlpBed() as bed:
        tls(bed, RECEIVE)
        bed.push("HTTP2", RECEIVE)
        bed.push("HTTP2", SEND)
        with pytest.raises(OSError, match="would be above a layer on this side that it is below on the other side"):
            tls(bed, SEND)
        assert bed.describe() == "tls/http2"
        assert bed.describe(receive=False) == "http2"


def test_a_stack_has_a_bound() -> None:
    with UlpBed() as bed:
        for _ in range(8):
            bed.push("STREAM_PARSER", offset=0, width=2)
        with pytest.raises(OSError, match="8 layers already") as caught:
            bed.push("STREAM_PARSER", offset=0, width=2)
        assert caught.value.errno == errno.E2BIG
        with pytest.raises(OSError, match="stream_parser can be pushed onto the receive side only") as caught:
            bed.push("STREAM_PARSER", SEND, offset=0, width=2)
        assert caught.value.errno == errno.EOPNOTSUPP


def test_a_layer_is_not_read_before_all_below_are_ready() -> None:
    """A PDU that waits below a handshake is TLS's, and stays until that has failed or ended."""
    with UlpBed(handshake_timeout_ms=1000) as bed:
        tls(bed)
        bed.push("LENGTH_PREFIXED")
        bed.start()
        assert not bed.ready
        assert bed.write(b"early") == 0
        assert bed.read_all() == []
        assert not bed.handshake()
        bed.peer_send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(OSError) as caught:
            bed.handshake()
        assert caught.value.errno == errno.EPROTO
        assert bed.faults("HANDSHAKE") == 1
        for call in (bed.read, lambda: bed.write(b"late"), bed.handshake):
            with pytest.raises(OSError) as again:
                call()
            assert again.value.errno == errno.EPROTO
        assert bed.faults("HANDSHAKE") == 1
