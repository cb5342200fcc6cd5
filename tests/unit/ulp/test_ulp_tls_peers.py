"""TLS as a layer, against peers that are not who they should be, or do not speak TLS, or only an old one."""

from __future__ import annotations

import errno
import ssl
from contextlib import suppress

import pytest
from beds.authority import Authority, Issued, self_signed
from beds.ulp_tls import (
    AUTHORITY,
    CHAIN,
    NAME,
    ONE_TWO,
    PEER,
    SERVER,
    VERIFIED,
    VERSIONS,
    TlsBed,
    TlsPeer,
    bed,
    client_context,
    exchange,
    server_context,
)

__all__ = ["bed"]  # fixture


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
