"""TLS as a layer, against peers that are right and unusual: what a device meets in other people's networks."""

from __future__ import annotations

import _ssl
import ctypes
import ssl

import pytest
from beds.authority import Authority, Issued, self_signed
from beds.ulp_tls import (
    ALPN,
    AUTHORITY,
    CHAIN,
    NAME,
    ONE_THREE,
    SERVER,
    VERSIONS,
    TlsBed,
    TlsPeer,
    asks_for_name,
    bed,
    client_context,
    exchange,
    server_context,
    updates_keys,
)

__all__ = ["bed"]  # fixture
ROLES = pytest.mark.parametrize("serves", [True, False], ids=["peer-serves", "we-serve"])


def joined(bed: TlsBed, version: ssl.TLSVersion, *, serves: bool) -> TlsPeer:
    """The peer serves, or we do."""
    if serves:
        bed.push("TLS", server_name="localhost")
        return bed.connect_to(server_context(SERVER, maximum_version=version))
    bed.push("TLS", identity="server")
    return bed.accept_from(client_context(AUTHORITY.certificate, maximum_version=version))


def received(bed: TlsBed) -> bytes:
    return b"".join(pdu.data for pdu in bed.read_all())


# --- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "issued", "sni"),
    [
        ("localhost.", SERVER, b"localhost"),
        ("www.example.org.", AUTHORITY.issue("*.example.org"), b"www.example.org"),
        ("LOCALHOST", SERVER, b"LOCALHOST"),
        ("fe80::1%eth0", AUTHORITY.issue("fe80::1"), b""),
        ("0:0:0:0:0:0:0:1", AUTHORITY.issue("::1"), b""),
    ],
)
def test_a_name_as_people_write_it(bed: TlsBed, name: str, issued: Issued, sni: bytes) -> None:
    """With the dot that makes it absolute, or the zone of an address: neither is in certificates, nor in SNI."""
    bed.push("TLS", server_name=name)
    exchange(bed, bed.connect_to(server_context(issued)))
    assert bed.tell(NAME) == sni


@pytest.mark.parametrize("name", ["localhost..", "x%localhost", "127.0.0.1%lo"])
def test_what_only_looks_like_that(bed: TlsBed, name: str) -> None:
    bed.push("TLS", server_name=name)
    with pytest.raises(OSError):
        bed.connect_to(server_context(SERVER))
    assert "mismatch" in bed.error().text


@pytest.mark.parametrize(
    ("name", "expected"), [("www.example.org.", "www.example.org"), ("a.example.net.", "*.example.net")]
)
def test_a_client_asks_with_a_dot(bed: TlsBed, name: str, expected: str) -> None:
    issued = {one: AUTHORITY.issue(one) for one in ("www.example.org", "*.example.net")}
    for number, one in enumerate(issued.values()):
        bed.add_identity(f"identity-{number}", one)
    bed.push("TLS", identity=["server", "identity-0", "identity-1"])
    bed.start(client=False)
    peer = TlsPeer(bed, client_context(AUTHORITY.certificate), server=False, name=expected.replace("*", "a"))
    bed.shake(asks_for_name(peer, name))
    assert peer.tls.getpeercert(True) == issued[expected].der


# --- certificates -----------------------------------------------------------------------------------------


def test_an_intermediate_authority_is_all_that_is_trusted(bed: TlsBed) -> None:
    """And a certificate of its root is none of its own."""
    between = Authority("Between", AUTHORITY)
    bed.add_trust("between", between.certificate)
    with bed.again() as other:
        other.push("TLS", server_name="localhost", trust="between")
        exchange(other, other.connect_to(server_context(between.issue("localhost"))))
    bed.push("TLS", server_name="localhost", trust="between")
    with pytest.raises(OSError):
        bed.connect_to(server_context(SERVER))
    assert "issuer" in bed.error().text


def test_one_certificate_is_all_that_is_trusted(bed: TlsBed) -> None:
    """Of the same key and name another one is not it."""
    bed.add_trust("pinned", SERVER.certificate)
    with bed.again() as other:
        other.push("TLS", server_name="localhost", trust="pinned")
        exchange(other, other.connect_to(server_context(SERVER)))
    bed.push("TLS", server_name="localhost", trust="pinned")
    with pytest.raises(OSError):
        bed.connect_to(server_context(AUTHORITY.issue("localhost")))
    assert "issuer" in bed.error().text


def test_a_pinned_certificate_expires_all_the_same(bed: TlsBed) -> None:
    old = AUTHORITY.issue("localhost", expired=True)
    bed.add_trust("pinned", old.certificate)
    bed.push("TLS", server_name="localhost", trust="pinned")
    with pytest.raises(OSError):
        bed.connect_to(server_context(old))
    assert "expired" in bed.error().text


@VERSIONS
@ROLES
def test_a_chain_of_60_kb(bed: TlsBed, version: ssl.TLSVersion, serves: bool) -> None:
    """A server's, and a client's."""
    issued = AUTHORITY.issue("localhost", more_bytes=60_000)
    if serves:
        bed.push("TLS", server_name="localhost")
        peer = bed.connect_to(server_context(issued, maximum_version=version))
    else:
        bed.push("TLS", identity="server", verify=2, trust="default")
        peer = bed.accept_from(client_context(AUTHORITY.certificate, issued, maximum_version=version))
    exchange(bed, peer)
    assert bed.tell(CHAIN).startswith(issued.der) and len(issued.der) > 60_000


def test_nine_authorities_between(bed: TlsBed) -> None:
    authority, chain = AUTHORITY, b""
    for number in range(9):
        authority = Authority(f"Between {number}", authority)
        chain = authority.certificate + chain
    issued = authority.issue("localhost")
    own = issued.certificate[: -len(authority.certificate)]
    bed.push("TLS", server_name="localhost")
    exchange(bed, bed.connect_to(server_context(Issued(own + chain, issued.key, issued.x509))))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("rsa1024", "certificate: ee key too small"),
        ("secp256k1", "key: TLS has no signature algorithm for secp256k1"),
        ("dsa", "key: TLS has no signature algorithm for DSA"),
    ],
)
def test_an_identity_that_no_handshake_can_use(bed: TlsBed, kind: str, reason: str) -> None:
    """It is refused when the configuration is read, and not by each handshake."""
    with pytest.raises(OSError, match=reason):
        bed.add_identity("useless", self_signed("localhost", kind=kind))


@pytest.mark.parametrize("kind", ["ec", "ec384", "ec521", "rsa", "rsa4096", "ed25519", "ed448"])
@VERSIONS
@ROLES
def test_keys_of_every_kind(bed: TlsBed, kind: str, version: ssl.TLSVersion, serves: bool) -> None:
    issued = AUTHORITY.issue("localhost", kind=kind)
    if serves:
        bed.push("TLS", server_name="localhost")
        exchange(bed, bed.connect_to(server_context(issued, maximum_version=version)))
        return
    bed.add_identity("kind", issued)
    bed.push("TLS", identity="kind")
    exchange(bed, bed.accept_from(client_context(AUTHORITY.certificate, maximum_version=version)))


# --- handshakes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("curve", ["secp384r1", "secp521r1"])
@ROLES
def test_another_key_share_is_asked_for(bed: TlsBed, curve: str, serves: bool) -> None:
    """HelloRetryRequest: one of the two begins with a group that the other does not take."""
    bed.add_identity("rsa", AUTHORITY.issue("localhost", kind="rsa"))
    context = server_context(SERVER) if serves else client_context(AUTHORITY.certificate)
    context.minimum_version = ONE_THREE
    context.set_ecdh_curve(curve)
    if serves:
        bed.push("TLS", server_name="localhost")
        exchange(bed, bed.connect_to(context))
    else:
        bed.push("TLS", identity="rsa")
        exchange(bed, bed.accept_from(context))


@ROLES
def test_only_one_side_speaks_of_protocols(bed: TlsBed, serves: bool) -> None:
    """ALPN: there is none then, and no fault."""
    bed.push("TLS", alpn="h2", **({"server_name": "localhost"} if serves else {"identity": "server"}))
    if serves:
        exchange(bed, bed.connect_to(server_context(SERVER)))
    else:
        exchange(bed, bed.accept_from(client_context(AUTHORITY.certificate)))
    assert bed.tell(ALPN) == b""


def test_a_server_speaks_before_the_handshake_is_over(bed: TlsBed) -> None:
    """Its data is behind its Finished, and before ours (RFC 8446 2)."""
    bed.push("TLS", server_name="localhost")
    bed.start(client=True)
    peer = TlsPeer(bed, server_context(SERVER), server=True)
    bed.handshake()
    peer.pull()
    library, count = ctypes.CDLL(_ssl.__file__), ctypes.c_size_t()
    of_openssl = ctypes.c_void_p.from_address(id(peer.tls._sslobj) + object.__basicsize__ + 8)  # type: ignore[attr-defined]
    into = ctypes.create_string_buffer(16)
    finished = 2
    assert library.SSL_read_early_data(of_openssl, into, ctypes.c_size_t(16), ctypes.byref(count)) == finished
    assert library.SSL_write_early_data(of_openssl, b"220 ready", ctypes.c_size_t(9), ctypes.byref(count)) == 1
    peer.push()
    bed.shake(peer)
    assert received(bed) == b"220 ready"
    exchange(bed, peer)


def test_a_client_speaks_with_its_finished(bed: TlsBed) -> None:
    """In one segment, and more than is read ahead."""
    bed.push("TLS", identity="server")
    bed.start(client=False)
    peer = TlsPeer(bed, client_context(AUTHORITY.certificate), server=False, name="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    peer.push()
    bed.handshake()
    peer.pull()
    peer.tls.do_handshake()
    data = bytes(range(250)) * 300
    peer.tls.write(data)
    peer.push()
    peer.done = True
    bed.shake(peer)
    assert received(bed) == data
    exchange(bed, peer)


# --- records ----------------------------------------------------------------------------------------------


@VERSIONS
@ROLES
def test_records_of_a_byte(bed: TlsBed, version: ssl.TLSVersion, serves: bool) -> None:
    peer = joined(bed, version, serves=serves)
    for _ in range(10):
        for _ in range(200):
            peer.tls.write(b"x")
        peer.push()
        assert received(bed) == b"x" * 200
    exchange(bed, peer)


@VERSIONS
@ROLES
def test_bytes_that_come_one_by_one(bed: TlsBed, version: ssl.TLSVersion, serves: bool) -> None:
    """Data, a KeyUpdate where there is such a thing, and data."""
    peer, got = joined(bed, version, serves=serves), b""
    peer.tls.write(b"a" * 300)
    if version == ONE_THREE:
        updates_keys(peer.tls, asks=True)
    peer.tls.write(b"c" * 20)
    for byte in peer.outgoing.read():
        bed.peer_send(bytes([byte]))
        got += received(bed)
    assert got == b"a" * 300 + b"c" * 20
    exchange(bed, peer)


@ROLES
@pytest.mark.parametrize("asks", [True, False])
def test_new_keys_before_each_message(bed: TlsBed, asks: bool, serves: bool) -> None:
    """That is no flood: data comes with each."""
    peer = joined(bed, ONE_THREE, serves=serves)
    for number in range(400):
        updates_keys(peer.tls, asks=asks)
        peer.send(b"%d" % number)
        assert received(bed) == b"%d" % number
        if number % 7 == 0:
            assert bed.write(b"answer %d" % number)
            assert peer.recv() == b"answer %d" % number
    exchange(bed, peer)
