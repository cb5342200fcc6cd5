"""A TLS connection leaves OpenSSL when its handshake is done: the same bytes, by our own records. What both carriers do
is in the other tests of TLS, which run with each; here is what is ours."""

from __future__ import annotations

import _ssl
import ctypes
import errno
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.examples import examples
from beds.ulp_tls import (
    AUTHORITY,
    CIPHER,
    ONE_THREE,
    ONE_TWO,
    OPENSSL,
    RESUMED,
    SERVER,
    VERSIONS,
    TlsBed,
    TlsPeer,
    client_context,
    counts,
    exchange,
    server_context,
    updates_keys,
)
from hypothesis import given
from hypothesis import strategies as st
from oracles.tls_records import ALERT, BY_NAME, DATA, HANDSHAKE, KEY_UPDATE, Opener, Secret
from test_ulp_flood import ASKING, ROLES, hostile
from xts_proxy._native import ffi, lib

SUITES_12 = {
    "aes-128-gcm": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "aes-256-gcm": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "chacha20": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "aes-128-ccm": "ECDHE-ECDSA-AES128-CCM",
    "aes-256-ccm": "ECDHE-ECDSA-AES256-CCM",
    "aes-128-ccm8": "ECDHE-ECDSA-AES128-CCM8",
    "aes-256-ccm8": "ECDHE-ECDSA-AES256-CCM8",
}
SUITES_13 = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)
TICKET = b"\4" + (18).to_bytes(3, "big") + (7200).to_bytes(4, "big") + b"agea" + b"\1n" + b"\0\4tick" + b"\0\0"
CLOSE_NOTIFY, USER_CANCELED = b"\1\0", b"\1\x5a"
_LIBRARY = ctypes.CDLL(_ssl.__file__)


@pytest.fixture
def bed() -> Iterator[TlsBed]:
    with TlsBed() as made:
        made.add_trust("default", AUTHORITY.certificate)
        made.add_identity("server", SERVER)
        yield made


def with_suites(context: ssl.SSLContext, version: ssl.TLSVersion, suite: str) -> ssl.SSLContext:
    """The peer speaks this version and suite only, whatever its level of security says of it."""
    context.minimum_version = context.maximum_version = version
    if version == ONE_TWO:
        context.set_ciphers(suite + ":@SECLEVEL=0")
        return context
    raw = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    assert _LIBRARY.SSL_CTX_set_ciphersuites(raw, suite.encode()) == 1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    return context


def connected(bed: TlsBed, context: ssl.SSLContext, *, serves: bool) -> TlsPeer:
    """The peer serves, or we do."""
    if serves:
        bed.push("TLS", server_name="localhost")
        return bed.connect_to(context)
    bed.push("TLS", identity="server")
    return bed.accept_from(context)


def carrier(bed: TlsBed, receive: int) -> str:
    """As the operator is told."""
    out = ffi.new("char[]", 96)
    lib.ulp_stack_carrier(bed.stack, receive, out, 96)
    return ffi.string(out).decode()


def context_of(serves: bool) -> ssl.SSLContext:
    return server_context(SERVER) if serves else client_context(AUTHORITY.certificate)


# --- who carries it -------------------------------------------------------------------------------------


def carried(bed: TlsBed, version: ssl.TLSVersion, suite: str, *, serves: bool) -> dict[str, int]:
    """What was counted for a connection of this suite, which has worked both ways with long and short records."""
    before = counts()
    peer = connected(bed, with_suites(context_of(serves), version, suite), serves=serves)
    for size in (1, 1500, 16_384, 40_000):
        data = bytes(range(256)) * (size // 256 + 1)
        assert bed.write(data[:size], pieces=3) == size
        assert peer.recv() == data[:size]
        peer.send(data[:size])
        assert b"".join(pdu.data for pdu in bed.read_all()) == data[:size]
    assert carrier(bed, 1) == carrier(bed, 0)
    assert bed.tell(CIPHER) == peer.tls.cipher()[0].encode()  # type: ignore[index]
    after = counts()
    names = [name for name in after if name.startswith(("carried", "kept_"))]
    return {name: after[name] - before[name] for name in names if after[name] != before[name]}


@ROLES
@pytest.mark.parametrize("suite", SUITES_12.values(), ids=SUITES_12)
def test_suites_of_tls_12(bed: TlsBed, suite: str, server: bool) -> None:
    bed.configure(ciphers=suite + ":@SECLEVEL=0")
    assert carried(bed, ONE_TWO, suite, serves=server) == {"carried_ours": 1}


@ROLES
@pytest.mark.parametrize("suite", SUITES_13)
def test_suites_of_tls_13(bed: TlsBed, suite: str, server: bool) -> None:
    bed.configure(ciphersuites=suite, ciphers="DEFAULT:@SECLEVEL=0")
    assert carried(bed, ONE_THREE, suite, serves=server) == {"carried_ours": 1}


def test_cbc_stays(bed: TlsBed) -> None:
    suite = "ECDHE-ECDSA-AES128-SHA256"
    bed.configure(ciphers=suite)
    assert carried(bed, ONE_TWO, suite, serves=False) == {"kept_cipher": 1}
    assert carrier(bed, 1) == "openssl (the cipher is not an AEAD)"


@VERSIONS
def test_the_configuration_may_say_openssl(version: ssl.TLSVersion) -> None:
    with TlsBed(records=OPENSSL) as bed:
        bed.add_identity("server", SERVER)
        before = counts()["kept_configured"]
        bed.push("TLS", identity="server")
        exchange(bed, bed.accept_from(client_context(AUTHORITY.certificate, maximum_version=version)))
        assert counts()["kept_configured"] == before + 1
        assert carrier(bed, 1) == "openssl (the proxy's configuration says openssl)"


@VERSIONS
@ROLES
def test_a_connection_takes_little_memory(bed: TlsBed, version: ssl.TLSVersion, server: bool) -> None:
    """Counted for the tenant, without the SSL; a client's as soon as data has come."""
    context = context_of(server)
    context.maximum_version = version
    exchange(bed, connected(bed, context, serves=server))
    assert 0 < lib.ulp_stack_memory(bed.stack) < 4500
    assert carrier(bed, 0) == carrier(bed, 1) == "ours"


def rest(bed: TlsBed) -> None:
    """A second goes by, in which nothing comes."""
    bed.now_ns += 1_000_000_000
    assert bed.read_all() == []


# --- numbers --------------------------------------------------------------------------------------------


@ROLES
@pytest.mark.parametrize("suite", ["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-CCM"])
def test_no_nonce_comes_twice(bed: TlsBed, suite: str, server: bool) -> None:
    """In TLS 1.2 the records carry them: from OpenSSL's Finished to our close_notify each is one more than the last."""
    bed.configure(ciphers=suite)
    sent = bytearray()
    tap, bed.peer_recv = bed.peer_recv, lambda *a: (data := tap(*a), sent.extend(data))[0]  # type: ignore[assignment]
    peer = connected(bed, with_suites(context_of(server), ONE_TWO, suite), serves=server)
    for i in range(20):
        assert bed.write(b"x" * 3000 * i + b"end") == 3000 * i + 3
        peer.recv()
        if i % 7 == 6:
            rest(bed)
    assert bed.finish()
    peer.pull()
    records, at, keyed = [], 0, False
    while at < len(sent):
        body = int.from_bytes(sent[at + 3 : at + 5], "big")
        if keyed:
            records.append(int.from_bytes(sent[at + 5 : at + 13], "big"))
        keyed = keyed or sent[at] == 20
        at += 5 + body
    assert len(records) > 22
    assert records == [(records[0] + i) % (1 << 64) for i in range(len(records))]


# --- how long records are -------------------------------------------------------------------------------


def lengths(bed: TlsBed, peer: TlsPeer, size: int) -> list[int]:
    """Of the records in which so many bytes leave: their payload."""
    data = bytes(size)
    done = 0
    while done < size:
        done += bed.write(data[done:])
    return [len(record) for record in peer.records()]


@ROLES
@VERSIONS
def test_the_first_records_after_a_pause_are_short(bed: TlsBed, version: ssl.TLSVersion, server: bool) -> None:
    """A peer on a slow link has something to open sooner."""
    context = context_of(server)
    context.maximum_version = version
    peer = connected(bed, context, serves=server)
    assert lengths(bed, peer, 70_000) == [4096] * 8 + [16_384, 16_384, 4_464]
    bed.now_ns += 900_000_000
    assert lengths(bed, peer, 20_000) == [16_384, 3616]
    bed.now_ns += 1_100_000_000
    assert lengths(bed, peer, 20_000) == [4096] * 4 + [3616]
    assert lengths(bed, peer, 40_000) == [4096] * 4 + [16_384, 7232]


@ROLES
def test_a_pdu_is_one_record_after_a_pause_too(server: bool) -> None:
    with TlsBed(message_socket=True) as bed:
        bed.add_trust("default", AUTHORITY.certificate)
        bed.add_identity("server", SERVER)
        peer = connected(bed, context_of(server), serves=server)
        assert bed.write(bytes(16_000)) == 16_000
        assert [len(record) for record in peer.records()] == [16_000]


@ROLES
def test_each_number_once_in_tls_13(bed: TlsBed, tmp_path: Path, server: bool) -> None:
    """Over changes of keys: an opener that counts by itself can read all of it, from the first record on."""
    bed.configure(rekey_records=5)
    bed.push("TLS", **({"server_name": "localhost"} if server else {"identity": "server"}))
    context = context_of(server)
    context.keylog_filename = str(tmp_path / "keylog")
    peer = bed.connect_to(context) if server else bed.accept_from(context)
    label = "CLIENT_TRAFFIC_SECRET_0" if server else "SERVER_TRAFFIC_SECRET_0"
    lines = [line.split() for line in (tmp_path / "keylog").read_text().splitlines()]
    secret = Secret(BY_NAME["aes-256-gcm"], next(bytes.fromhex(line[2]) for line in lines if line[0] == label))
    opener = Opener(secret.keys())
    if not server:
        opener.keys = opener.keys.next().next()  # OpenSSL's tickets
        peer.recv()
    seen = []
    for i in range(23):
        assert bed.write(b"%d" % i) > 0
        wire = bed.peer_recv()
        while wire:
            body = 5 + int.from_bytes(wire[3:5], "big")
            (kind, payload) = opener(wire[:body])[0]
            wire = wire[body:]
            seen.append(payload)
            if kind == HANDSHAKE:
                assert payload == KEY_UPDATE
                secret = secret.next()
                opener = Opener(secret.keys())
    assert seen.count(KEY_UPDATE) == 4
    assert [one for one in seen if one != KEY_UPDATE] == [b"%d" % i for i in range(23)]


# --- messages -------------------------------------------------------------------------------------------


@ROLES
def test_writing_goes_on_inside_a_message(bed: TlsBed, tmp_path: Path, server: bool) -> None:
    """Half a KeyUpdate has come: OpenSSL would send nothing now."""
    peer = hostile(bed, tmp_path, server=server)
    bed.peer_send(peer.seal(ASKING[:3], HANDSHAKE))
    assert bed.read_all() == []
    assert bed.write(b"not held up") == 11
    assert peer.peer.recv() == b"not held up"
    bed.peer_send(peer.update(ASKING[3:]) + peer.seal(b"new keys"))
    assert [pdu.data for pdu in bed.read_all()] == [b"new keys"]
    assert bed.write(b"so are ours") == 11
    assert peer.peer.recv() == b"so are ours"


@ROLES
@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([(KEY_UPDATE[:4], HANDSHAKE), (b"data", DATA)], "inside a message"),
        ([(KEY_UPDATE[:4], HANDSHAKE), (USER_CANCELED, ALERT)], "inside a message"),
        ([(KEY_UPDATE + KEY_UPDATE, HANDSHAKE)], "does not end its record"),
        ([(KEY_UPDATE[:4] + b"\2", HANDSHAKE)], "KeyUpdate asks for 2"),
        ([(b"\x18\0\0\2\0\0", HANDSHAKE)], "has 2 bytes"),
        ([(b"\x0d\0\0\0", HANDSHAKE)], "unexpected message: 13"),
        ([(b"", HANDSHAKE)], "no part of a message"),
        ([(b"\1", 20)], "unexpected record: type 20"),
        ([(b"\2\0\0", ALERT)], "an alert of 3 bytes"),
    ],
)
def test_what_may_not_come(
    bed: TlsBed, tmp_path: Path, server: bool, records: list[tuple[bytes, int]], reason: str
) -> None:
    peer = hostile(bed, tmp_path, server=server)
    peer.peer.recv()
    bed.peer_send(b"".join(peer.seal(payload, kind) for payload, kind in records))
    with pytest.raises(OSError) as ours:
        bed.read_all()
    assert ours.value.errno in (errno.EPROTO, errno.EBADMSG) and reason in bed.error().text
    with pytest.raises(ssl.SSLError, match="ALERT"):
        peer.peer.recv()


@ROLES
def test_a_record_of_nothing_but_padding(bed: TlsBed, tmp_path: Path, server: bool) -> None:
    """Its tag is right, so that is not what the peer is told (RFC 8446 5.4)."""
    peer = hostile(bed, tmp_path, server=server)
    peer.peer.recv()
    bed.peer_send(peer.seal(b"", 0, padding=20))
    with pytest.raises(OSError) as ours:
        bed.read_all()
    assert ours.value.errno == errno.EBADMSG and "has no type, only padding" in bed.error().text
    with pytest.raises(ssl.SSLError, match="UNEXPECTED_MESSAGE"):
        peer.peer.recv()


@ROLES
@pytest.mark.parametrize("kind", [ALERT, HANDSHAKE])
def test_a_record_of_nothing(bed: TlsBed, tmp_path: Path, server: bool, kind: int) -> None:
    """No alert, and no part of a message: whatever the padding, it is unexpected, and not of a wrong length (5.4)."""
    peer = hostile(bed, tmp_path, server=server)
    peer.peer.recv()
    bed.peer_send(peer.seal(b"", kind, padding=5))
    with pytest.raises(OSError, match="Bad message"):
        bed.read_all()
    assert "a record with no " in bed.error().text
    with pytest.raises(ssl.SSLError, match="UNEXPECTED_MESSAGE"):
        peer.peer.recv()


@ROLES
def test_padding_and_empty_records(bed: TlsBed, tmp_path: Path, server: bool) -> None:
    peer = hostile(bed, tmp_path, server=server)
    bed.peer_send(
        peer.seal(b"", padding=2000) + peer.seal(b"a", padding=10_000) + peer.seal(b"") + peer.seal(b"b" * 16_384)
    )
    assert b"".join(pdu.data for pdu in bed.read_all()) == b"a" + b"b" * 16_384


def test_alerts(bed: TlsBed, tmp_path: Path) -> None:
    """A warning is passed over; after close_notify nothing is read, and much may be sent."""
    peer = hostile(bed, tmp_path, server=False)
    peer.peer.recv()
    bed.peer_send(
        peer.seal(USER_CANCELED, ALERT) + peer.seal(b"data") + peer.seal(CLOSE_NOTIFY, ALERT) + peer.seal(b"-")
    )
    assert [pdu.data for pdu in bed.read_all()] == [b"data"]
    assert bed.ended
    assert bed.write(b"half-closed") == 11 and bed.finish()
    assert peer.peer.recv() == b"half-closed"


@pytest.mark.parametrize(("alert", "reason"), [(b"\2\x28", "handshake_failure"), (b"\1\x74", "certificate_required")])
def test_alerts_end_it(bed: TlsBed, tmp_path: Path, alert: bytes, reason: str) -> None:
    """In TLS 1.3 their level means nothing."""
    peer = hostile(bed, tmp_path, server=False)
    bed.peer_send(peer.seal(alert, ALERT))
    with pytest.raises(OSError):
        bed.read_all()
    assert reason in bed.error().text


# --- tickets --------------------------------------------------------------------------------------------


def hello_after(bed: TlsBed, records: bytes) -> bytes:
    """The first flight of a connection after one in which these, with some data, have come."""
    bed.peer_send(records)
    assert b"".join(pdu.data for pdu in bed.read_all()) == b"data"
    with bed.again() as other:
        other.push("TLS", server_name="localhost")
        other.start(client=True)
        other.handshake()
        hello = other.peer_recv()
    return hello


@pytest.mark.parametrize("parts", [[TICKET], [TICKET[:7], TICKET[7:]], [TICKET + TICKET]])
def test_tickets_before_data_are_kept(bed: TlsBed, tmp_path: Path, parts: list[bytes]) -> None:
    """In one record or in parts, with a KeyUpdate behind them."""
    peer, late = hostile(bed, tmp_path, server=True), counts()["tickets_late"]
    sealed = b"".join(peer.seal(part, HANDSHAKE) for part in parts) + peer.update(TICKET + ASKING)
    assert b"tick" in hello_after(bed, sealed + peer.seal(b"data"))
    assert counts()["tickets_late"] == late
    assert bed.write(b"answered") == 8
    assert peer.peer.recv() == b"answered"


def test_tickets_are_read_when_no_more_can_come(bed: TlsBed, tmp_path: Path) -> None:
    """Not in the worker's turn: a thread of the pool shows OpenSSL the records that were kept, and they are charged."""
    peer = hostile(bed, tmp_path, server=True)
    waiting, record = lib.ulp_stack_memory(bed.stack), peer.seal(TICKET, HANDSHAKE)
    bed.peer_send(record)
    assert bed.read_all() == [] and lib.ulp_stack_memory(bed.stack) == waiting + len(record)
    with bed.again() as other:
        other.push("TLS", server_name="localhost")
        other.start(client=True)
        other.handshake()
        assert b"tick" not in other.peer_recv()
    assert b"tick" in hello_after(bed, peer.seal(b"data"))
    assert lib.ulp_stack_memory(bed.stack) < waiting - 8000


def test_tickets_of_a_connection_that_ends_without_data(tmp_path: Path) -> None:
    """A client that only sends resumes the next time, too."""
    with TlsBed() as bed:
        bed.add_trust("default", AUTHORITY.certificate)
        with bed.again() as first:
            peer = hostile(first, tmp_path, server=True)
            first.peer_send(peer.seal(TICKET, HANDSHAKE))
            assert first.read_all() == [] and first.write(b"a line of a log") == 15
        bed.push("TLS", server_name="localhost")
        bed.start(client=True)
        bed.handshake()
        assert b"tick" in bed.peer_recv()


def test_more_tickets_than_are_kept(bed: TlsBed, tmp_path: Path) -> None:
    """What is kept is bounded; the rest is late, as behind data."""
    peer, late = hostile(bed, tmp_path, server=True), counts()["tickets_late"]
    body = TICKET[4:14] + (4004).to_bytes(2, "big") + b"tick" + bytes(4000) + b"\0\0"
    long = b"\4" + len(body).to_bytes(3, "big") + body
    bed.peer_send(b"".join(peer.seal(long, HANDSHAKE) for _ in range(6)) + peer.seal(b"data"))
    assert [pdu.data for pdu in bed.read_all()] == [b"data"]
    assert counts()["tickets_late"] == late + 1


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize(
    "body",
    [TICKET[4:-1], TICKET[4:] + b"\0", TICKET[4:15] + b"\0\0\0\0", TICKET[4:8], TICKET[4:-2] + b"\0\1", b""],
    ids=["short", "long", "no ticket", "cut", "no extension", "empty"],
)
def test_what_is_no_ticket(bed: TlsBed, tmp_path: Path, body: bytes, pieces: int) -> None:
    """Found where it comes, for nobody reads the ticket yet; so the peer is told by an alert."""
    peer = hostile(bed, tmp_path, server=True)
    message = b"\4" + len(body).to_bytes(3, "big") + body
    size = -(-len(message) // pieces)
    parts = [message[at : at + size] for at in range(0, len(message), size)]
    bed.peer_send(b"".join(peer.seal(part, HANDSHAKE) for part in parts))
    with pytest.raises(OSError):
        bed.read_all()
    assert "a ticket of a wrong length" in bed.error().text
    with pytest.raises(ssl.SSLError, match="ALERT_DECODE_ERROR"):
        peer.peer.recv()


def test_a_ticket_after_data_is_dropped(bed: TlsBed, tmp_path: Path) -> None:
    peer, late = hostile(bed, tmp_path, server=True), counts()["tickets_late"]
    assert b"tick" not in hello_after(bed, peer.seal(b"data") + peer.seal(TICKET, HANDSHAKE))
    assert counts()["tickets_late"] == late + 1


def test_tickets_that_nobody_wants_are_not_late(bed: TlsBed) -> None:
    late = counts()["tickets_late"]
    bed.push("TLS", server_name="localhost", no_resumption=True)
    exchange(bed, bed.connect_to(server_context(SERVER)))
    assert counts()["tickets_late"] == late and lib.ulp_stack_memory(bed.stack) < 4500


def test_tickets_are_not_awaited_for_ever(bed: TlsBed, tmp_path: Path) -> None:
    bed.configure(ticket_wait_ms=700)
    peer = hostile(bed, tmp_path, server=True)
    assert 700 in bed.wakeups
    waiting = lib.ulp_stack_memory(bed.stack)
    bed.now_ns += 699_000_000
    assert bed.read_all() == [] and lib.ulp_stack_memory(bed.stack) == waiting
    bed.now_ns += 1_000_000
    assert bed.read_all() == [] and lib.ulp_stack_memory(bed.stack) < waiting - 8000
    bed.peer_send(peer.seal(TICKET, HANDSHAKE) + peer.seal(b"data"))
    assert [pdu.data for pdu in bed.read_all()] == [b"data"]


def test_a_bad_ticket_is_told(bed: TlsBed, tmp_path: Path) -> None:
    """By OpenSSL's reason, and its alert under our number."""
    peer = hostile(bed, tmp_path, server=True)
    bed.write(b"before")
    bed.peer_send(peer.seal(TICKET[:-1] + b"\7", HANDSHAKE))
    with pytest.raises(OSError):
        bed.read_all()
    assert bed.faults("HANDSHAKE") == 1
    with pytest.raises(ssl.SSLError, match="ALERT_DECODE_ERROR"):
        peer.peer.recv()


def test_a_failed_session_is_not_resumed(bed: TlsBed) -> None:
    with bed.again() as first:
        first.push("TLS", server_name="localhost")
        context = server_context(SERVER)
        peer = first.connect_to(context)
        exchange(first, peer)
        first.peer_send(b"\x17\3\3\0\x20" + bytes(32))
        with pytest.raises(OSError):
            first.read_all()
    with bed.again() as second:
        second.push("TLS", server_name="localhost")
        exchange(second, second.connect_to(context))
        assert second.tell(RESUMED) == b"\0"


# --- anything -------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("we"), st.integers(1, 50_000), st.integers(1, 5)),
        st.tuples(st.just("they"), st.integers(1, 50_000), st.integers(0, 20_000)),
        st.tuples(st.just("update"), st.booleans(), st.just(0)),
    ),
    max_size=12,
)
ANY = (
    st.sampled_from(
        [*[(ONE_TWO, suite) for suite in SUITES_12.values()], *[(ONE_THREE, suite) for suite in SUITES_13]]
    ),
    st.booleans(),
    st.sampled_from([1, 3, 1 << 24]),
    STEPS,
)


def anything(
    how: tuple[ssl.TLSVersion, str], serves: bool, rekey_records: int, steps: list[tuple[str, int, int]]
) -> None:
    """Against OpenSSL: what one side sends the other gets, whatever happens to keys, until both have ended."""
    version, suite = how
    with TlsBed() as bed:
        bed.add_trust("default", AUTHORITY.certificate)
        bed.add_identity("server", SERVER)
        tls13 = {"ciphersuites": suite, "ciphers": "DEFAULT:@SECLEVEL=0"}
        bed.configure(
            rekey_records=rekey_records, **(tls13 if version == ONE_THREE else {"ciphers": suite + ":@SECLEVEL=0"})
        )
        peer = connected(bed, with_suites(context_of(serves), version, suite), serves=serves)
        pattern = bytes(range(251)) * 200
        for what, size, other in steps:
            if what == "we":
                got, data = bytearray(), pattern[:size]
                while data:
                    data = data[bed.write(data, pieces=other) :]
                    got += peer.recv()
                while not bed.flush():
                    got += peer.recv()
                assert bytes(got + peer.recv()) == pattern[:size]
            elif what == "they":
                peer.send(pattern[:size])
                assert b"".join(pdu.data for pdu in bed.read_all([other] * bool(other))) == pattern[:size]
            elif version == ONE_THREE:
                updates_keys(peer.tls, asks=bool(size))
                peer.send(b"new keys")
                assert b"".join(pdu.data for pdu in bed.read_all()) == b"new keys"
        assert bed.finish()
        assert peer.recv() == b""
        peer.close_notify()
        assert bed.read_all() == [] and bed.ended


@examples(40)
@given(*ANY)
def test_anything(
    how: tuple[ssl.TLSVersion, str], serves: bool, rekey_records: int, steps: list[tuple[str, int, int]]
) -> None:
    anything(how, serves, rekey_records, steps)


@pytest.mark.long
@pytest.mark.timeout(3600)
@examples(15_000)
@given(*ANY)
def test_15_000_connections(
    how: tuple[ssl.TLSVersion, str], serves: bool, rekey_records: int, steps: list[tuple[str, int, int]]
) -> None:
    anything(how, serves, rekey_records, steps)
