"""TLS as a layer: both roles against Python's ssl, over a socket pair."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest
from authority import Authority, Issued, self_signed
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from ulp_bed import SEND, Mark
from ulp_tls_bed import TlsBed, TlsPeer, client_context, counts, server_context

AUTHORITY = Authority()
SERVER = AUTHORITY.issue("localhost", "127.0.0.1")
VERSION, CIPHER, ALPN, PEER, CHAIN, RESUMED, SEND_BY, RECEIVE_BY, NAME, REASON, VERIFIED = range(1, 12)
ONE_TWO, ONE_THREE = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
VERSIONS = pytest.mark.parametrize("version", [ONE_TWO, ONE_THREE])


@pytest.fixture
def bed() -> Iterator[TlsBed]:
    with TlsBed() as made:
        made.add_trust("default", AUTHORITY.certificate)
        made.add_identity("server", SERVER)
        yield made


def exchange(bed: TlsBed, peer: TlsPeer) -> None:
    """A message each way."""
    assert bed.write(b"from the proxy") == 14
    assert peer.recv() == b"from the proxy"
    peer.send(b"from the peer")
    assert b"".join(pdu.data for pdu in bed.read_all()) == b"from the peer"


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


# --- who the peer is ------------------------------------------------------------------------------------


def refused(bed: TlsBed, context: ssl.SSLContext) -> str:
    """Our handshake as a client fails by the certificate; the peer has been told why. Its reason."""
    bed.start(client=True)
    peer = TlsPeer(bed, context, server=True)
    with pytest.raises(OSError) as ours:
        bed.shake(peer)
    assert ours.value.errno == errno.EKEYREJECTED
    assert bed.faults("CERTIFICATE") == 1
    with pytest.raises(ssl.SSLError, match="ALERT"):
        peer.handshake()
        peer.recv()
    return bed.error().text


@VERSIONS
@pytest.mark.parametrize(
    ("issued", "reason"),
    [
        (AUTHORITY.issue("localhost", expired=True), "certificate has expired"),
        (AUTHORITY.issue("elsewhere.example"), "hostname mismatch"),
        (self_signed("localhost"), "self-signed certificate"),
        (Authority("Nobody").issue("localhost"), "unable to get local issuer certificate"),
    ],
)
def test_certificates_that_are_refused(bed: TlsBed, version: ssl.TLSVersion, issued: Issued, reason: str) -> None:
    bed.push("TLS", server_name="localhost")
    assert reason in refused(bed, server_context(issued, maximum_version=version))


def test_address_in_place_of_a_name(bed: TlsBed) -> None:
    bed.push("TLS", server_name="127.0.0.1")
    peer = bed.connect_to(server_context(SERVER))
    exchange(bed, peer)
    assert bed.tell(NAME) == b""  # RFC 6066: no SNI for addresses


def test_wrong_address(bed: TlsBed) -> None:
    bed.push("TLS", server_name="127.0.0.2")
    assert "IP address mismatch" in refused(bed, server_context(SERVER))


def test_revoked(bed: TlsBed) -> None:
    good, bad = AUTHORITY.issue("localhost"), AUTHORITY.issue("localhost")
    bed.add_trust("strict", AUTHORITY.certificate, crls=AUTHORITY.revoke(bad))
    with bed.again() as other:
        other.push("TLS", server_name="localhost", trust="strict")
        exchange(other, other.connect_to(server_context(good)))
    bed.push("TLS", server_name="localhost", trust="strict")
    assert "certificate revoked" in refused(bed, server_context(bad))


def test_intermediate_authority(bed: TlsBed) -> None:
    between = Authority("Between", AUTHORITY)
    issued = between.issue("localhost")
    bed.push("TLS", server_name="localhost")
    exchange(bed, bed.connect_to(server_context(issued)))
    assert bed.tell(CHAIN).startswith(issued.der) and len(bed.tell(CHAIN)) > len(issued.der) + 100


def test_without_verification(bed: TlsBed) -> None:
    bed.push("TLS", verify=0)
    exchange(bed, bed.connect_to(server_context(self_signed("anything"))))
    assert bed.tell(VERIFIED) == b"\0"


def test_chain_without_name(bed: TlsBed) -> None:
    """VERIFY 1: the chain counts, the name does not, unless VERIFY_HOST says so."""
    with bed.again() as other:
        other.push("TLS", server_name="localhost", verify=1)
        exchange(other, other.connect_to(server_context(AUTHORITY.issue("elsewhere.example"))))
    bed.push("TLS", server_name="localhost", verify=1, verify_host=True)
    assert "hostname mismatch" in refused(bed, server_context(AUTHORITY.issue("elsewhere.example")))


def test_partial_wildcards_match_nothing(bed: TlsBed) -> None:
    bed.push("TLS", server_name="www.example.org")
    exchange(bed, bed.connect_to(server_context(AUTHORITY.issue("*.example.org"))))
    with bed.again() as other:
        other.push("TLS", server_name="www.example.org")
        assert "hostname mismatch" in refused(other, server_context(AUTHORITY.issue("w*.example.org")))


def test_a_common_name_is_no_hosts_name(bed: TlsBed) -> None:
    bed.push("TLS", server_name="www.example.org")
    assert "hostname mismatch" in refused(bed, server_context(AUTHORITY.issue("www.example.org", named=False)))


@VERSIONS
def test_client_certificate_given(bed: TlsBed, version: ssl.TLSVersion) -> None:
    mine = AUTHORITY.issue("client.example")
    bed.add_identity("mine", mine)
    bed.push("TLS", server_name="localhost", identity="mine")
    context = server_context(SERVER, maximum_version=version, verify_mode=ssl.CERT_REQUIRED)
    context.load_verify_locations(cadata=AUTHORITY.certificate.decode())
    peer = bed.connect_to(context)
    exchange(bed, peer)
    assert peer.tls.getpeercert(True) == mine.der


@VERSIONS
def test_client_certificate_wanted(bed: TlsBed, version: ssl.TLSVersion) -> None:
    mine = AUTHORITY.issue("client.example")
    bed.push("TLS", identity="server", verify=2, trust="default")
    peer = bed.accept_from(client_context(AUTHORITY.certificate, mine, maximum_version=version))
    exchange(bed, peer)
    assert bed.tell(PEER) == mine.der and bed.tell(VERIFIED) == b"\1"


@VERSIONS
@pytest.mark.parametrize("issued", [None, Authority("Nobody").issue("client.example")])
def test_client_certificate_missing_or_bad(bed: TlsBed, version: ssl.TLSVersion, issued: Issued | None) -> None:
    bed.push("TLS", identity="server", verify=2, trust="default")
    with pytest.raises(OSError) as ours:
        bed.accept_from(client_context(AUTHORITY.certificate, issued, maximum_version=version))
    assert ours.value.errno == errno.EKEYREJECTED and bed.faults("CERTIFICATE") == 1


def test_client_certificate_if_there_is_one(bed: TlsBed) -> None:
    bed.push("TLS", identity="server", verify=1, trust="default")
    exchange(bed, bed.accept_from(client_context(AUTHORITY.certificate)))
    assert bed.tell(VERIFIED) == b"\0"


def test_our_certificate_refused_in_tls_13(bed: TlsBed) -> None:
    """The alert comes when our handshake is over (RFC 8446 4.4.2.4): it is the read that fails."""
    bed.push("TLS", server_name="localhost")
    context = server_context(SERVER, verify_mode=ssl.CERT_REQUIRED)
    context.load_verify_locations(cadata=AUTHORITY.certificate.decode())
    bed.start(client=True)
    peer = TlsPeer(bed, context, server=True)
    with pytest.raises(ssl.SSLError):
        bed.shake(peer)
    with pytest.raises(OSError) as ours:
        bed.handshake()
        bed.read_all()
    assert ours.value.errno == errno.EKEYREJECTED
    assert "certificate_required" in bed.error().text


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


# --- resumption -----------------------------------------------------------------------------------------


@VERSIONS
def test_client_resumes(bed: TlsBed, version: ssl.TLSVersion) -> None:
    context = server_context(SERVER, maximum_version=version)
    resumed = []
    for _ in range(3):
        with bed.again() as other:
            other.push("TLS", server_name="localhost")
            peer = other.connect_to(context)
            exchange(other, peer)
            resumed.append((other.tell(RESUMED), peer.tls.session_reused))
            assert other.tell(VERIFIED) == b"\1" and other.tell(PEER) == SERVER.der
    assert resumed == [(b"\0", False), (b"\1", True), (b"\1", True)]


@pytest.mark.parametrize(
    "different",
    [
        {"queue_id": 2},
        {"server_name": "127.0.0.1"},
        {"trust": "other"},
        {"verify": 0},
        {"identity": "server"},
        {"no_resumption": True},
    ],
)
def test_client_resumes_nothing_of_others(bed: TlsBed, different: dict[str, object]) -> None:
    bed.add_trust("other", AUTHORITY.certificate)
    context = server_context(SERVER)
    parameters = {"server_name": "localhost"} | different
    queue_id = parameters.pop("queue_id", 1)
    with bed.again() as first:
        first.push("TLS", server_name="localhost")
        exchange(first, first.connect_to(context))
    with bed.again(queue_id=queue_id) as second:  # type: ignore[arg-type]
        second.push("TLS", **parameters)  # type: ignore[arg-type]
        exchange(second, second.connect_to(context))
        assert second.tell(RESUMED) == b"\0"


def test_sessions_are_bounded(bed: TlsBed) -> None:
    bed.configure(sessions_max=2)
    names = ["a.example", "b.example", "c.example"]
    context = server_context(AUTHORITY.issue(*names))
    before = counts()["resumed"]
    for name in [*names, *names]:  # each has been pushed out when it is its turn
        with bed.again() as other:
            other.push("TLS", server_name=name)
            exchange(other, other.connect_to(context))
    assert counts()["resumed"] == before
    with bed.again() as other:
        other.push("TLS", server_name="c.example")
        exchange(other, other.connect_to(context))
        assert other.tell(RESUMED) == b"\1"


@VERSIONS
def test_server_resumes(bed: TlsBed, version: ssl.TLSVersion) -> None:
    """By tickets, whatever the queue: the processes of one server have several."""
    context, session = client_context(AUTHORITY.certificate, maximum_version=version), None
    for queue_id in (1, 2):
        with bed.again(queue_id=queue_id) as other:
            other.push("TLS", identity="server")
            peer = other.accept_from(context, session=session)
            exchange(other, peer)
            assert other.tell(RESUMED) == (b"\1" if session else b"\0")
            session = peer.tls.session


@VERSIONS
@pytest.mark.parametrize("why", ["parameter", "configuration"])
def test_no_resumption(bed: TlsBed, version: ssl.TLSVersion, why: str) -> None:
    if why == "configuration":
        bed.configure(sessions_max=0)
    context, session = client_context(AUTHORITY.certificate, maximum_version=version), None
    for _ in range(2):
        with bed.again() as other:
            other.push("TLS", identity="server", no_resumption=why == "parameter")
            peer = other.accept_from(context, session=session)
            exchange(other, peer)
            session = peer.tls.session
            assert other.tell(RESUMED) == b"\0" and (version == ONE_TWO or not session.has_ticket)


def test_server_resumes_nothing_with_other_demands(bed: TlsBed) -> None:
    """A session that began without a certificate of the client's does not get around one."""
    context = client_context(AUTHORITY.certificate, AUTHORITY.issue("client.example"))
    with bed.again() as first:
        first.push("TLS", identity="server")
        peer = first.accept_from(context)
        exchange(first, peer)
        session = peer.tls.session
    bed.push("TLS", identity="server", verify=2, trust="default")
    exchange(bed, bed.accept_from(context, session=session))
    assert bed.tell(RESUMED) == b"\0" and bed.tell(VERIFIED) == b"\1"


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


def test_peer_leaves_during_the_handshake(bed: TlsBed) -> None:
    bed.push("TLS", server_name="localhost")
    bed.start()
    bed.handshake()
    bed.peer_close()
    with pytest.raises(OSError) as ours:
        bed.handshake()
    assert ours.value.errno == errno.EPROTO and "during the handshake" in bed.error().text


# --- bad input ------------------------------------------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize("at", [0, 5, 20, -1])
def test_bad_record(bed: TlsBed, version: ssl.TLSVersion, at: int) -> None:
    bed.push("TLS", server_name="localhost")
    peer = bed.connect_to(server_context(SERVER, maximum_version=version))
    bed.read_all()
    peer.tls.write(b"to be changed on the way")
    record = bytearray(peer.outgoing.read())
    record[at] ^= 1
    bed.peer_send(bytes(record))
    with pytest.raises(OSError) as ours:
        bed.read_all()
    assert ours.value.errno in (errno.EBADMSG, errno.EPROTO)
    assert bed.faults("RECORD") + bed.faults("HANDSHAKE") == 1
    with pytest.raises(ssl.SSLError, match="ALERT"):
        peer.recv()


def test_good_data_before_a_bad_record(bed: TlsBed) -> None:
    bed.push("TLS", server_name="localhost")
    peer = bed.connect_to(server_context(SERVER))
    bed.read_all()
    peer.tls.write(b"good")
    good = peer.outgoing.read()
    peer.tls.write(b"bad")
    bad = bytearray(peer.outgoing.read())
    bad[-1] ^= 1
    bed.peer_send(good + bytes(bad))
    bed._events()
    part = bed.read()
    assert part is not None and part[0] == b"good"
    assert bed.pending  # so that somebody comes for the reason, though the socket is empty
    with pytest.raises(OSError) as ours:
        bed.read()
    assert ours.value.errno == errno.EBADMSG


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 64, b"\x16\x03\x01\xff\xff" + b"x" * 64])
def test_peer_that_does_not_speak_tls(bed: TlsBed, data: bytes) -> None:
    bed.push("TLS", server_name="localhost")
    bed.start()
    bed.handshake()
    bed.peer_send(data)
    with pytest.raises(OSError) as ours:
        bed.handshake()
    assert ours.value.errno == errno.EPROTO and bed.faults("HANDSHAKE") == 1


def test_slow_drip(bed: TlsBed) -> None:
    """A handshake byte by byte is a handshake; one that does not end in its time is none."""
    bed.push("TLS", identity="server")
    bed.start(client=False)
    peer = TlsPeer(bed, client_context(AUTHORITY.certificate), server=False, name="localhost")
    for _ in range(4):
        peer.pull()
        with suppress(ssl.SSLWantReadError):
            peer.tls.do_handshake()
        for byte in peer.outgoing.read():
            bed.peer_send(bytes([byte]))
            bed.handshake()
    assert bed.ready
    exchange(bed, peer)


def test_stalled(bed: TlsBed) -> None:
    bed.push("TLS", identity="server")
    bed.start(client=False)
    bed.peer_send(b"\x16\x03\x01")
    assert not bed.handshake()
    bed.now_ns += 11_000_000_000
    with pytest.raises(OSError) as ours:
        bed.handshake()
    assert ours.value.errno == errno.ETIMEDOUT and bed.faults("STALLED") == 1


# --- nothing weak ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.parametrize("client", [True, False])
def test_old_versions_are_refused(bed: TlsBed, version: ssl.TLSVersion, client: bool) -> None:
    context = server_context(SERVER) if client else client_context(None)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = version
    context.maximum_version = version
    if client:
        bed.push("TLS", server_name="localhost")
    else:
        bed.push("TLS", identity="server")
    with pytest.raises((OSError, ssl.SSLError)):
        bed.connect_to(context) if client else bed.accept_from(context)
    assert not bed.ready


def test_the_level_of_security_is_not_the_hosts_to_lower(bed: TlsBed) -> None:
    with pytest.raises(PermissionError):
        bed.push("TLS", server_name="localhost", ciphers="ECDHE-ECDSA-AES128-GCM-SHA256:@SECLEVEL=0")
    assert "(@)" in bed.error().text


def test_weak_ciphers_are_refused_one_by_one(bed: TlsBed) -> None:
    bed.add_identity("rsa", AUTHORITY.issue("localhost", kind="rsa"))
    every = client_context(None, maximum_version=ONE_TWO)
    every.set_ciphers("ALL:@SECLEVEL=0")
    names = [cipher["name"] for cipher in every.get_ciphers() if not cipher["name"].startswith("TLS_")]
    taken, offered = set(), 0
    for name in names:
        context = client_context(None, maximum_version=ONE_TWO)
        context.set_ciphers(f"{name}:@SECLEVEL=0")
        with bed.again() as other:
            other.push("TLS", identity=["server", "rsa"])
            try:
                other.accept_from(context)
                taken.add(name)
            except ssl.SSLError as error:  # of a cipher for which it lacks a secret: nothing was offered
                assert error.reason == "NO_CIPHERS_AVAILABLE"
                continue
            except OSError as error:
                assert error.errno == errno.EPROTO and other.faults("HANDSHAKE") == 1
            offered += 1
    assert offered > 20
    kinds = ("AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305")
    assert taken == {f"ECDHE-{key}-{kind}" for key in ("RSA", "ECDSA") for kind in kinds}


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


# --- pushes that are refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"role": 3}, "ROLE"),
        ({"role": 1}, "SERVER_NAME is needed"),
        ({"role": 2}, "IDENTITY is needed"),
        ({"role": 2, "identity": "server", "verify": 2}, "TRUST is needed"),
        ({"role": 1, "server_name": "x", "verify": 7}, "VERIFY"),
        ({"server_name": ".example.org", "role": 1}, "no name of a host"),
        ({"server_name": "x" * 254}, "SERVER_NAME"),
        ({"identity": "unknown"}, "none named unknown"),
        ({"identity": "theirs"}, "none named theirs"),
        ({"trust": "unknown"}, "no roots named unknown"),
        ({"min_version": 0x0302}, "MIN_VERSION"),
        ({"min_version": 0x0304, "max_version": 0x0303}, "MAX_VERSION"),
        ({"server_name": "x", "role": 1, "ciphers": "AES128-SHA"}, "allows none"),
        ({"server_name": "x", "role": 1, "ciphers": "no-such-cipher"}, "knows none"),
        ({"server_name": "x", "role": 1, "ciphersuites": "TLS_AES_128_CCM_SHA256"}, "allows none"),
        ({"server_name": "x", "role": 1, "verify": 0, "verify_host": True}, "VERIFY_HOST"),
        ({"crypto": 4}, "CRYPTO"),
        ({"alpn": ["x" * 200, "y" * 200]}, "ALPN"),
        ({"identity": ["server"] * 9}, "IDENTITY"),
    ],
)
def test_pushes_that_are_refused(bed: TlsBed, parameters: dict[str, object], reason: str) -> None:
    bed.add_identity("theirs", SERVER, queues=((7, 9),))
    with pytest.raises(OSError, match=reason):
        bed.push("TLS", **parameters)  # type: ignore[arg-type]
    assert bed.faults("PUSH") == 1


def test_tls_in_tls_is_refused(bed: TlsBed) -> None:
    bed.push("TLS", server_name="localhost")
    with pytest.raises(OSError, match="not done within TLS"):
        bed.push("TLS", server_name="localhost")


def test_policy_of_queues(bed: TlsBed) -> None:
    bed.add_identity("theirs", SERVER, queues=((7, 9), (20, 20)))
    for queue_id, allowed in ((6, False), (7, True), (9, True), (10, False), (20, True)):
        with bed.again(queue_id=queue_id) as other:
            if allowed:
                other.push("TLS", identity="theirs")
            else:
                with pytest.raises(OSError, match="none named theirs for this queue"):
                    other.push("TLS", identity="theirs")


def test_verification_can_be_demanded(bed: TlsBed) -> None:
    bed.configure(verify_required=True)
    for parameters in ({"verify": 0}, {"verify": 1, "server_name": "localhost"}):
        with bed.again() as other, pytest.raises(OSError, match="does not allow"):
            other.push("TLS", role=1, **parameters)
    bed.push("TLS", server_name="localhost")
    exchange(bed, bed.connect_to(server_context(SERVER)))


def test_lowest_version_can_be_demanded(bed: TlsBed) -> None:
    bed.configure(min_version=0x0304)
    with bed.again() as other, pytest.raises(OSError, match=r"demands TLS 1\.3"):
        other.push("TLS", server_name="localhost", max_version=0x0303)
    bed.push("TLS", server_name="localhost", min_version=0x0303)
    with pytest.raises((OSError, ssl.SSLError)):
        bed.connect_to(server_context(SERVER, maximum_version=ONE_TWO))


# --- the configuration ----------------------------------------------------------------------------------


def test_identities_that_are_none(bed: TlsBed) -> None:
    other = AUTHORITY.issue("localhost", kind="rsa")
    for issued, reason in (
        (Issued(b"nothing", SERVER.key, SERVER.x509), "certificate"),
        (Issued(SERVER.certificate, b"nothing", SERVER.x509), "key"),
        (Issued(SERVER.certificate, other.key, SERVER.x509), "do not belong together"),
    ):
        with pytest.raises(OSError, match=reason):
            bed.add_identity("new", issued)
    with pytest.raises(OSError, match="there already"):
        bed.add_identity("server", SERVER)
    bed.add_identity("new", SERVER)


def test_trust_that_is_none(bed: TlsBed) -> None:
    with pytest.raises(OSError, match="no certificate"):
        bed.add_trust("new", b"nothing")
    with pytest.raises(OSError, match="no revocation list"):
        bed.add_trust("new", AUTHORITY.certificate, crls=b"nothing")


def test_settings_that_are_none(bed: TlsBed) -> None:
    for settings_, reason in (
        ({"min_version": 0x0302}, "0x0302"),
        ({"ciphers": "no-such"}, "ciphers"),
        ({"ciphersuites": "no-such"}, "ciphersuites"),
        ({"session_timeout_s": 0}, "out of range"),
    ):
        with pytest.raises(OSError, match=reason):
            bed.configure(**settings_)
