"""TLS as a layer: both roles against Python's ssl, over a socket pair: what a server chooses, data, keys, the end."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator

import pytest
from beds.examples import examples
from beds.ulp import SEND, Mark
from beds.ulp_tls import (
    ALPN,
    AUTHORITY,
    CIPHER,
    NAME,
    ONE_THREE,
    ONE_TWO,
    PEER,
    RECEIVE_BY,
    RESUMED,
    SEND_BY,
    SERVER,
    VERIFIED,
    VERSION,
    VERSIONS,
    TlsBed,
    TlsPeer,
    asks_for_name,
    asks_for_short_records,
    bed,
    client_context,
    counts,
    exchange,
    server_context,
)
from hypothesis import given
from hypothesis import strategies as st

__all__ = ["bed"]  # fixture


# --- both roles -----------------------------------------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_client(bed: TlsBed, version: ssl.TLSVersion, kind: str) -> None:
    issued = AUTHORITY.issue("localhost", kind=kind)
    bed.push("TLS", server_name="localhost")
    peer = bed.connect_to(server_context(issued, maximum_version=version))
    exchange(bed, peer)
    assert bed.tell(VERSION) == version.to_bytes(2, "big")
    assert bed.tell(CIPHER).decode() == peer.tls.cipher()[0]  # type: ignore[index]
    assert bed.tell(PEER) == issued.der
    assert bed.tell(VERIFIED) == b"\1" and bed.tell(RESUMED) == b"\0"
    assert bed.tell(NAME) == b"localhost"
    assert bed.tell(SEND_BY) == bed.tell(RECEIVE_BY) == b"\1"


@VERSIONS
@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_server(bed: TlsBed, version: ssl.TLSVersion, kind: str) -> None:
    bed.add_identity("own", AUTHORITY.issue("localhost", kind=kind))
    bed.push("TLS", identity="own")
    peer = bed.accept_from(client_context(AUTHORITY.certificate, maximum_version=version))
    exchange(bed, peer)
    assert bed.tell(VERSION) == version.to_bytes(2, "big")
    assert bed.tell(NAME) == b"localhost" and bed.tell(VERIFIED) == b"\0" and bed.tell(PEER) == b""


@pytest.mark.parametrize(
    "suite",
    ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"],
)
def test_ciphers_of_tls_12(bed: TlsBed, suite: str) -> None:
    bed.push("TLS", server_name="localhost", ciphers=suite, max_version=0x0303)
    exchange(bed, bed.connect_to(server_context(SERVER)))
    assert bed.tell(CIPHER).decode() == suite


@pytest.mark.parametrize("suite", ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"])
def test_ciphersuites_of_tls_13(bed: TlsBed, suite: str) -> None:
    bed.push("TLS", server_name="localhost", ciphersuites=suite)
    exchange(bed, bed.connect_to(server_context(SERVER)))
    assert bed.tell(CIPHER).decode() == suite


def test_role_is_by_who_connected_or_as_said(bed: TlsBed) -> None:
    """An accepted connection can be the TLS client."""
    bed.push("TLS", server_name="localhost", role=1)
    bed.start(client=False)
    exchange(bed, bed.shake(TlsPeer(bed, server_context(SERVER), server=True)))


def test_each_side_pushed_by_itself(bed: TlsBed) -> None:
    bed.push("TLS", 1, server_name="localhost")
    bed.push("TLS", 2)
    exchange(bed, bed.connect_to(server_context(SERVER)))


# --- choices of a server --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [("localhost", "server"), ("www.example.org", "org"), ("example.net", "net"), ("unknown.example", "server")],
)
def test_identity_by_name(bed: TlsBed, name: str, expected: str) -> None:
    issued = {"server": SERVER, "org": AUTHORITY.issue("*.example.org"), "net": AUTHORITY.issue("example.net")}
    bed.add_identity("org", issued["org"])
    bed.add_identity("net", issued["net"])
    bed.push("TLS", identity=["server", "org", "net"])
    peer = bed.accept_from(client_context(None), name)
    assert peer.tls.getpeercert(True) == issued[expected].der
    assert bed.tell(NAME).decode() == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("www.example.org", "wild"),
        ("a_b.example.org", "wild"),
        ("_dmarc.EXAMPLE.org", "wild"),
        ("a_b.example.com", "common"),
        ("x.a_b.example.org", "first"),
        ("example.org", "first"),
        (".example.org", "first"),
        ("a_b.example.orgs", "first"),
        ("a_bexample.org", "first"),
    ],
)
def test_identity_by_wildcard(bed: TlsBed, name: str, expected: str) -> None:
    """For one label, whatever it has in it, as with other servers. No verifier is asked."""
    issued = {
        "first": AUTHORITY.issue("localhost"),
        "wild": AUTHORITY.issue("wild", "*.example.org"),
        "common": AUTHORITY.issue("*.example.com", named=False),
    }
    for identity, its in issued.items():
        bed.add_identity(identity, its)
    bed.push("TLS", identity=list(issued))
    bed.start(client=False)
    peer = asks_for_name(TlsPeer(bed, client_context(None), server=False), name)
    bed.shake(peer)
    assert bed.tell(NAME).decode() == name
    assert peer.tls.getpeercert(True) == issued[expected].der


def test_identity_by_key(bed: TlsBed) -> None:
    """Two identities of one name: the client can verify either kind, or one."""
    rsa = AUTHORITY.issue("localhost", kind="rsa")
    bed.add_identity("rsa", rsa)
    for ciphers, expected in (("ECDHE-RSA-AES128-GCM-SHA256", rsa), ("ECDHE-ECDSA-AES128-GCM-SHA256", SERVER)):
        with bed.again() as other:
            other.push("TLS", identity=["server", "rsa"])
            context = client_context(AUTHORITY.certificate, maximum_version=ONE_TWO)
            context.set_ciphers(ciphers)
            peer = other.accept_from(context)
            assert peer.tls.getpeercert(True) == expected.der


def test_alpn_is_by_the_servers_preference(bed: TlsBed) -> None:
    bed.push("TLS", identity="server", alpn=["h2", "http/1.1"])
    context = client_context(AUTHORITY.certificate)
    context.set_alpn_protocols(["http/1.1", "h2"])
    peer = bed.accept_from(context)
    assert bed.tell(ALPN) == b"h2" and peer.tls.selected_alpn_protocol() == "h2"


def test_alpn_without_a_common_protocol(bed: TlsBed) -> None:
    bed.push("TLS", identity="server", alpn="h2")
    context = client_context(AUTHORITY.certificate)
    context.set_alpn_protocols(["spdy/1"])
    with pytest.raises(OSError) as ours:
        bed.accept_from(context)
    assert ours.value.errno == errno.EPROTO and bed.faults("HANDSHAKE") == 1


def test_alpn_of_a_client(bed: TlsBed) -> None:
    bed.push("TLS", server_name="localhost", alpn=["h2", "http/1.1"])
    context = server_context(SERVER)
    context.set_alpn_protocols(["http/1.1"])
    bed.connect_to(context)
    assert bed.tell(ALPN) == b"http/1.1"


# --- the end --------------------------------------------------------------------------------------------


@VERSIONS
def test_close_notify_both_ways(bed: TlsBed, version: ssl.TLSVersion) -> None:
    bed.push("TLS", server_name="localhost")
    peer = bed.connect_to(server_context(SERVER, maximum_version=version))
    assert bed.write(b"last") == 4 and bed.finish()
    peer.pull()
    assert peer.tls.read(100) == b"last"
    assert peer.tls.read(100) == b"" and peer.tls.pending() == 0
    peer.send(b"still here")  # the other direction goes on
    assert [pdu.data for pdu in bed.read_all()] == [b"still here"] and not bed.ended
    peer.close_notify()
    assert bed.read_all() == [] and bed.ended


def test_close_notify_behind_data(bed: TlsBed) -> None:
    """One segment with both: the end is not lost though the socket has nothing more to say."""
    bed.push("TLS", server_name="localhost")
    peer = bed.connect_to(server_context(SERVER))
    peer.tls.write(b"data")
    peer.close_notify()
    assert [pdu.data for pdu in bed.read_all()] == [b"data"] and bed.ended


@VERSIONS
def test_truncation(bed: TlsBed, version: ssl.TLSVersion) -> None:
    bed.push("TLS", server_name="localhost")
    peer = bed.connect_to(server_context(SERVER, maximum_version=version))
    peer.send(b"half of")
    bed.peer_close()
    with pytest.raises(OSError) as ours:
        bed.read_all()
    assert ours.value.errno == errno.EBADMSG and bed.faults("TRUNCATED") == 1
    assert "close_notify" in bed.error().text


@VERSIONS
@pytest.mark.parametrize("server", [False, True])
def test_what_is_cut_off_is_answered(bed: TlsBed, version: ssl.TLSVersion, server: bool) -> None:
    """Many clients end their direction by FIN alone behind the request. Our answer and our end reach them."""
    if server:
        bed.push("TLS", identity="server")
        peer = bed.accept_from(client_context(AUTHORITY.certificate, maximum_version=version))
    else:
        bed.push("TLS", server_name="localhost")
        peer = bed.connect_to(server_context(SERVER, maximum_version=version))
    peer.send(b"request")
    bed.peer.shutdown(socket.SHUT_WR)
    part = bed.read()
    assert part and part[0] == b"request"
    with pytest.raises(OSError) as ours:
        bed.read()
    assert ours.value.errno == errno.EBADMSG
    answer = bytes(range(256)) * 200
    assert bed.write(answer) == len(answer) and bed.finish()
    peer.pull()
    received = b""
    while data := peer.tls.read(1 << 16):
        received += data
    assert received == answer, "and close_notify"
    assert bed.faults("TRUNCATED") == 1


def test_peer_leaves_during_the_handshake(bed: TlsBed) -> None:
    bed.push("TLS", server_name="localhost")
    bed.start()
    bed.handshake()
    bed.peer_close()
    with pytest.raises(OSError) as ours:
        bed.handshake()
    assert ours.value.errno == errno.EPROTO and "during the handshake" in bed.error().text


# --- bulk -----------------------------------------------------------------------------------------------


@examples(25)
@given(
    st.lists(st.tuples(st.integers(1, 40_000), st.integers(1, 7)), min_size=1, max_size=8),
    st.lists(st.integers(1, 70_000), max_size=12),
    st.sampled_from([ONE_TWO, ONE_THREE]),
)
def test_bulk_in_pieces(writes: list[tuple[int, int]], rooms: list[int], version: ssl.TLSVersion) -> None:
    with TlsBed() as bed:
        bed.add_trust("default", AUTHORITY.certificate)
        bed.push("TLS", server_name="localhost")
        peer = bed.connect_to(server_context(SERVER, maximum_version=version))
        sent, received, pattern = bytearray(), bytearray(), bytes(range(251)) * 200
        for size, pieces in writes:
            data = pattern[:size]
            while data:
                taken = bed.write(data, pieces=pieces)
                sent += data[:taken]
                data = data[taken:]
                received += peer.recv()
        while not bed.flush():
            received += peer.recv()
        received += peer.recv()
        assert received == sent
        back = bytearray()
        for size, _ in writes:
            peer.send(pattern[:size])
            back += b"".join(pdu.data for pdu in bed.read_all(rooms))
        assert back == b"".join(pattern[:size] for size, _ in writes)


@examples(30)
@given(
    st.lists(st.tuples(st.integers(1, 70_000), st.integers(1, 7)), min_size=1, max_size=5),
    st.sampled_from([512, 1024, 2048, 4096]),
    st.sampled_from([ONE_TWO, ONE_THREE]),
)
def test_bulk_in_records_as_short_as_the_peer_asks(
    writes: list[tuple[int, int]], record: int, version: ssl.TLSVersion
) -> None:
    """max_fragment_length (RFC 6066 4): nothing is lost, and no record is longer."""
    with TlsBed() as bed:
        bed.add_identity("server", SERVER)
        bed.push("TLS", identity="server")
        context = client_context(AUTHORITY.certificate, maximum_version=version)
        peer = bed.accept_from(asks_for_short_records(context, record))
        sent, received, pattern = bytearray(), bytearray(), bytes(range(251)) * 300
        for size, pieces in writes:
            data = pattern[:size]
            while data:
                taken = bed.write(data, pieces=pieces)
                sent += data[:taken]
                data = data[taken:]
                for got in peer.records():
                    received += got
                    assert len(got) <= record
        while not bed.flush():
            received += peer.recv()
        received += peer.recv()
        assert received == sent


def test_full_socket_holds_little_and_loses_nothing(bed: TlsBed) -> None:
    bed.push("TLS", server_name="localhost")
    peer = bed.connect_to(server_context(SERVER))
    data, taken = bytes(range(256)) * 4096, 0
    while (now := bed.write(data[taken:], pieces=3)) > 0:
        taken += now
    assert 0 < taken < len(data) and not bed.flush()
    received = bytearray()
    while taken < len(data):
        received += peer.recv()
        taken += bed.write(data[taken:])
    while not bed.flush():
        received += peer.recv()
    received += peer.recv()
    assert received == data


# --- records as PDUs ------------------------------------------------------------------------------------


@pytest.fixture
def records() -> Iterator[tuple[TlsBed, TlsPeer]]:
    """On a message socket."""
    with TlsBed(message_socket=True) as made:
        made.add_trust("default", AUTHORITY.certificate)
        made.push("TLS", server_name="localhost")
        yield made, made.connect_to(server_context(SERVER))


def test_a_gathered_pdu_of_many_records_leaves_while_there_is_room(records: tuple[TlsBed, TlsPeer]) -> None:
    """TLS takes some records at a time: nothing would tell of room later."""
    bed, peer = records
    bed.push("LENGTH_PREFIXED", SEND)
    gathered = b"g" * 150_000
    assert bed.write(gathered, Mark(pdu=True, more=True)) == len(gathered)
    assert bed.write(b"end", Mark(pdu=True)) == 3
    assert bed.flush()
    got = b""
    while len(got) < 4 + 150_003:
        got += peer.recv()
    assert got == (150_003).to_bytes(4, "big") + gathered + b"end"


def test_a_record_is_a_pdu(records: tuple[TlsBed, TlsPeer]) -> None:
    bed, peer = records
    sizes = [1, 16384, 300, 5000]
    for size in sizes:
        peer.send(b"r" * size)
    pdus = bed.read_all([100, 7000])
    assert [len(pdu.data) for pdu in pdus] == sizes
    assert {pdu.mark.control for pdu in pdus} == {b"\x17"}


def test_a_pdu_is_a_record(records: tuple[TlsBed, TlsPeer]) -> None:
    bed, peer = records
    for part, more in ((b"one ", True), (b"rec", True), (b"ord", False)):
        assert bed.write(part, Mark(pdu=True, more=more)) == len(part)
    assert bed.write(b"x" * 20_000) == 20_000
    assert bed.write(b"y" * 16_384, Mark(pdu=True, more=True)) == 16_384
    assert bed.write(b"", Mark(pdu=True)) == 1
    assert bed.write(b"last", pieces=2) == 4
    assert [len(record) for record in peer.records()] == [10, 16_384, 20_000 - 16_384, 16_384, 4]


@VERSIONS
def test_a_pdu_is_a_record_as_long_as_the_peer_takes_it(version: ssl.TLSVersion) -> None:
    """Longer ones, in whatever parts they come, go on in the next record."""
    with TlsBed(message_socket=True) as bed:
        bed.add_identity("server", SERVER)
        bed.push("TLS", identity="server")
        context = client_context(AUTHORITY.certificate, maximum_version=version)
        peer = bed.accept_from(asks_for_short_records(context, 512))
        for part, more in ((b"a" * 500, True), (b"b" * 20, True), (b"c" * 600, False)):
            assert bed.write(part, Mark(pdu=True, more=more)) == len(part)
        assert bed.write(b"d" * 1024, Mark(pdu=True, more=True)) == 1024
        assert bed.write(b"", Mark(pdu=True)) == 1
        assert bed.write(b"e" * 512) == 512
        assert list(peer.records()) == [
            b"a" * 500 + b"b" * 12, b"b" * 8 + b"c" * 504, b"c" * 96, b"d" * 512, b"d" * 512, b"e" * 512
        ]  # fmt: skip


def test_an_empty_pdu_is_no_record(records: tuple[TlsBed, TlsPeer]) -> None:
    bed, _ = records
    with pytest.raises(OSError) as ours:
        bed.write(b"")
    assert ours.value.errno == errno.EINVAL and bed.faults("USE") == 1


# --- keys -----------------------------------------------------------------------------------------------


def test_keys_are_updated(bed: TlsBed) -> None:
    bed.configure(rekey_records=3)
    bed.push("TLS", server_name="localhost")
    peer = bed.connect_to(server_context(SERVER))
    before = counts()["key_updates"]
    for i in range(10):
        assert bed.write(b"%d" % i) == 1
        assert peer.recv() == b"%d" % i
    assert counts()["key_updates"] == before + 3
    exchange(bed, peer)
