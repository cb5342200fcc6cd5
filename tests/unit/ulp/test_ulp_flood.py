"""Peers that send what costs work and brings nothing: a turn of the connection ends after a bounded amount of it, so
that the others have theirs, and TLS ends a connection that brings no data. Counted in turns, not in time."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from beds.grpc import DATA as GRPC_DATA
from beds.grpc import END_HEADERS, HEADERS, SETTINGS, WINDOW_UPDATE, frame
from beds.ready import readable
from beds.ulp import RECEIVE, Mark, UlpBed
from beds.ulp_tls import (
    AUTHORITY,
    OPENSSL,
    SERVER,
    VERSIONS,
    TlsBed,
    TlsPeer,
    bed,
    client_context,
    exchange,
    server_context,
)
from oracles.tls_records import BY_NAME, HANDSHAKE, KEY_UPDATE, TLS12, TLS13, Sealer, Secret
from test_tls_keys import USER, KeysBed, keys_of

__all__ = ["bed"]  # fixture

ASKING = KEY_UPDATE[:4] + b"\1"  # update_requested
SUITE = BY_NAME["aes-256-gcm"]
UPDATES_IN_A_TURN = 9  # of 25 us each, where nothing but the first slice came with them
RECORDS_IN_A_TURN = 70
QUIET_MAX = 32


class HostilePeer:
    """Has done the handshake by Python's ssl, and makes records of its own from then on."""

    def __init__(self, bed: TlsBed, folder: Path, *, server: bool) -> None:
        keylog = folder / "keylog"
        context = server_context(SERVER, num_tickets=0) if server else client_context(AUTHORITY.certificate)
        context.keylog_filename = str(keylog)
        self.bed = bed
        self.peer: TlsPeer = bed.connect_to(context) if server else bed.accept_from(context)
        label = "SERVER_TRAFFIC_SECRET_0" if server else "CLIENT_TRAFFIC_SECRET_0"
        lines = [line.split() for line in keylog.read_text().splitlines()]
        self.secret = Secret(SUITE, next(bytes.fromhex(line[2]) for line in lines if line[0] == label))
        self.seal = Sealer(self.secret.keys())

    def update(self, message: bytes = KEY_UPDATE, padding: int = 0) -> bytes:
        """The record of a KeyUpdate; those behind it have the next keys."""
        record = self.seal(message, HANDSHAKE, padding=padding)
        self.secret = self.secret.next()
        self.seal = Sealer(self.secret.keys())
        return record


def hostile(bed: TlsBed, folder: Path, *, server: bool) -> HostilePeer:
    if server:
        bed.push("TLS", server_name="localhost")
    else:
        bed.push("TLS", identity="server")
    return HostilePeer(bed, folder, server=server)


def turns_until_fault(bed: UlpBed, most: int) -> int:
    """Each but the last has asked for the next."""
    for turn in range(1, most + 1):
        try:
            assert bed.turn() == []
        except OSError as error:
            assert error.errno == errno.EPROTO
            return turn
        assert bed.asks_for_a_turn
    raise AssertionError(f"no fault in {most} turns")


ROLES = pytest.mark.parametrize("server", [False, True], ids=["by a client", "by a server"])


def in_records_of(flight: bytes, size: int) -> bytes:
    """The same messages in records that short."""
    short = bytearray()
    while flight:
        head, length = flight[:3], int.from_bytes(flight[3:5], "big")
        body, flight = flight[5 : 5 + length], flight[5 + length :]
        for at in range(0, length, size):
            part = body[at : at + size]
            short += head + len(part).to_bytes(2, "big") + part
    return bytes(short)


@VERSIONS
@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_a_hello_in_many_records(bed: TlsBed, version: ssl.TLSVersion, size: int) -> None:
    """As clients send it that hope to pass a censor; 3 KB of it, as with keys against quantum computers."""
    bed.push("TLS", identity="server")
    bed.start(client=False)
    context = client_context(AUTHORITY.certificate, maximum_version=version)
    context.set_alpn_protocols([f"{i:0250}" for i in range(11)])
    peer = TlsPeer(bed, context, server=False, name="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    hello = peer.outgoing.read()
    assert len(hello) > 2900
    bed.peer_send(in_records_of(hello, size))
    while not readable(bed.peer):  # each call is a turn, and has some records
        assert not bed.handshake()
    exchange(bed, bed.shake(peer))


def test_a_hello_that_does_not_end(bed: TlsBed) -> None:
    """However short its records are, it is only so long, and the end is told."""
    bed.push("TLS", identity="server")
    bed.start(client=False)
    hello = in_records_of(b"\x16\3\1\0\4\1" + (130_000).to_bytes(3, "big"), 1)
    sent = 0
    with pytest.raises(OSError) as ours:
        while sent < 1 << 20:
            bed.peer_send(hello)
            sent += len(hello)
            for _ in range(20):  # turns, each of some 60 records
                bed.handshake()
            hello = b"\x16\3\1\0\1x" * 1000
    assert ours.value.errno == errno.EPROTO and bed.faults("FLOOD") == 1
    assert 512 << 10 < sent < 600 << 10 and "more than 512 KiB" in bed.error().text
    told = bed.peer_recv()
    assert told[0] == 21 and told[5:] == b"\2\x0a", "a fatal alert: unexpected_message"


@ROLES
@pytest.mark.parametrize("message", [KEY_UPDATE, ASKING], ids=["update", "asking"])
def test_a_flood_of_key_updates(bed: TlsBed, tmp_path: Path, server: bool, message: bytes) -> None:
    """It is spread over turns, and ends the connection with the right alert and a fault of its own."""
    peer = hostile(bed, tmp_path, server=server)
    bed.wakeups.clear()
    bed.peer_send(b"".join(peer.update(message) for _ in range(200)))
    bed.becomes_readable()
    turns = turns_until_fault(bed, 20)
    assert turns >= QUIET_MAX // UPDATES_IN_A_TURN
    assert bed.faults("FLOOD") == 1 and "no data" in bed.error().text
    with pytest.raises(ssl.SSLError, match="UNEXPECTED_MESSAGE"):
        peer.peer.recv()


@ROLES
def test_key_updates_between_data(bed: TlsBed, tmp_path: Path, server: bool) -> None:
    """They are no fault, but no more of them have a turn."""
    peer = hostile(bed, tmp_path, server=server)
    pattern = [part for i in range(12) for part in ([peer.update() for _ in range(QUIET_MAX)], [peer.seal(bytes([i]))])]
    bed.peer_send(b"".join(record for part in pattern for record in part))
    bed.becomes_readable()
    received, turns = b"", 0
    while len(received) < 12:
        received += b"".join(data for data, _ in bed.turn())
        turns += 1
        assert turns < 1000
    assert received == bytes(range(12))
    assert turns >= 12 * QUIET_MAX // UPDATES_IN_A_TURN


def test_long_records_of_key_updates(bed: TlsBed, tmp_path: Path) -> None:
    """Padding does not help."""
    peer = hostile(bed, tmp_path, server=False)
    bed.wakeups.clear()
    bed.peer_send(b"".join(peer.update(padding=1000) for _ in range(40)))
    bed.becomes_readable()
    assert turns_until_fault(bed, 20) >= 3


def test_a_record_full_of_tickets(bed: TlsBed, tmp_path: Path) -> None:
    """Hundreds of messages in one record: no more of them are looked at than in a row of records."""
    ticket = b"\4" + (14).to_bytes(3, "big") + bytes([0, 0, 1, 0]) + bytes(4) + b"\0" + b"\0\1x" + bytes(2)
    assert len(ticket) == 18
    peer = hostile(bed, tmp_path, server=True)
    bed.peer_send(peer.seal(ticket * 900, HANDSHAKE) * 1)
    with pytest.raises(OSError) as ours:
        for _ in range(20):
            bed.becomes_readable()
            bed.turn()
    assert ours.value.errno == errno.EPROTO and bed.faults("FLOOD") == 1
    assert f"{QUIET_MAX + 1} messages" in bed.error().text
    with pytest.raises(ssl.SSLError, match="UNEXPECTED_MESSAGE"):
        peer.peer.recv()


def test_few_tickets_are_no_flood(bed: TlsBed) -> None:
    bed.push("TLS", server_name="localhost")
    peer = bed.connect_to(server_context(SERVER, num_tickets=30))
    peer.send(b"data")
    assert [pdu.data for pdu in bed.read_all()] == [b"data"]


def test_small_records_have_turns(bed: TlsBed, tmp_path: Path) -> None:
    """Of one byte each: data, so no fault, but a record costs more than its byte."""
    peer = hostile(bed, tmp_path, server=False)
    bed.peer_send(b"".join(peer.seal(b"x") for _ in range(2000)))
    bed.becomes_readable()
    received = turns = 0
    while received < 2000:
        got = sum(len(data) for data, _ in bed.turn())
        assert got <= RECORDS_IN_A_TURN
        received += got
        turns += 1
    assert turns <= 2000 // 50, "turns are not shorter than they have to be"


def test_large_records_are_not_held_up(bed: TlsBed) -> None:
    """What is worth its while: all of it in the turns that the reads alone would take."""
    bed.push("TLS", identity="server")
    peer = bed.accept_from(client_context(AUTHORITY.certificate))
    bed.peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    peer.send(bytes(180_000))
    bed.becomes_readable()
    assert sum(len(data) for data, _ in bed.turn()) > 150_000


@pytest.mark.parametrize("first", [b"", b"before"])
def test_a_flood_is_told_after_data(bed: TlsBed, tmp_path: Path, first: bytes) -> None:
    peer = hostile(bed, tmp_path, server=False)
    records = [peer.seal(first)] if first else []
    bed.peer_send(b"".join(records + [peer.update() for _ in range(100)]))
    received = b""
    with pytest.raises(OSError) as ours:
        for _ in range(30):
            bed.becomes_readable()
            received += b"".join(data for data, _ in bed.turn())
    assert received == first and ours.value.errno == errno.EPROTO and bed.faults("FLOOD") == 1


# --- keys of the host's ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [TLS12, TLS13])
def test_empty_records_under_pushed_keys(version: int) -> None:
    with KeysBed(USER) as bed:
        keys = keys_of(version, BY_NAME["aes-128-gcm"])
        bed.push_keys(keys, RECEIVE)
        seal = Sealer(keys)
        bed.peer_send(b"".join(seal(b"") for _ in range(QUIET_MAX)) + seal(b"data"))
        assert [pdu.data for pdu in bed.read_all()] == [b"data"]
        bed.peer_send(b"".join(seal(b"") for _ in range(QUIET_MAX + 1)))
        with pytest.raises(OSError) as ours:
            bed.read_all()
        assert ours.value.errno == errno.EPROTO and bed.faults("FLOOD") == 1


def test_key_updates_under_pushed_keys() -> None:
    """The host pushes other keys after each, and reads no data."""
    secret = Secret(BY_NAME["aes-128-gcm"], bytes(32))
    with KeysBed(USER) as bed:
        bed.push_keys(secret.keys(), RECEIVE)
        for _ in range(QUIET_MAX):
            bed.peer_send(Sealer(secret.keys())(KEY_UPDATE, HANDSHAKE))
            assert [pdu.data for pdu in bed.read_all()] == [KEY_UPDATE]
            secret = secret.next()
            bed.push_keys(secret.keys(), RECEIVE)
        bed.peer_send(Sealer(secret.keys())(KEY_UPDATE, HANDSHAKE))
        with pytest.raises(OSError):
            bed.read_all()
        assert bed.faults("FLOOD") == 1


# --- every layer that goes on while there is more -------------------------------------------------------


def grpc() -> UlpBed:
    bed = UlpBed()
    bed.push("HTTP2")
    bed.push("GRPC")
    bed.start()
    assert bed.write(frame(HEADERS, b"\x82", END_HEADERS, 1)) > 0
    bed.peer_recv()
    return bed


@pytest.mark.parametrize(
    ("make", "nothing", "something", "got"),
    [
        (grpc, frame(WINDOW_UPDATE, b"\0\0\0\1", 0, 0), frame(SETTINGS, b"", 0, 0), frame(SETTINGS, b"", 0, 0)),
        (grpc, frame(GRPC_DATA, b"", 0, 1), frame(SETTINGS, b"", 0, 0), frame(SETTINGS, b"", 0, 0)),
    ],
    ids=["windows", "empty DATA"],
)
def test_what_a_layer_keeps_has_turns(make: Callable[[], UlpBed], nothing: bytes, something: bytes, got: bytes) -> None:
    """4,000 of them take some ten turns, each of which asks for the next, and nothing is lost."""
    with make() as bed:
        bed.peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        bed.wakeups.clear()
        bed.peer_send(nothing * 4000 + something)
        bed.becomes_readable()
        turns = 1
        while not (parts := bed.turn()):
            assert bed.asks_for_a_turn and turns < 100
            turns += 1
        assert b"".join(data for data, _ in parts) == got
        assert turns >= 4


def test_a_turn_reads_so_many_bytes() -> None:
    """A PDU that is gathered gives nothing before it ends."""
    with grpc() as bed:
        bed.peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        bed.wakeups.clear()
        size = 600_000
        message = b"\0" + size.to_bytes(4, "big") + bytes(size)
        parts = [message[i : i + 16_000] for i in range(0, len(message), 16_000)]
        bed.peer_send(b"".join(frame(GRPC_DATA, part, 0, 1) for part in parts))
        bed.becomes_readable()
        turns = 1
        while not bed.turn():
            assert bed.asks_for_a_turn and turns < 100
            turns += 1
        assert turns >= 3


def test_the_rest_of_a_message_that_never_comes(bed: TlsBed, tmp_path: Path) -> None:
    """The peer's stream ends inside KeyUpdate: OpenSSL sends nothing any more, and that is a fault."""
    bed.configure(records=OPENSSL)  # ours goes on sending: test_tls_leave.py
    peer = hostile(bed, tmp_path, server=True)
    bed.peer_send(peer.seal(KEY_UPDATE[:4], HANDSHAKE))
    bed.peer.shutdown(socket.SHUT_WR)
    with pytest.raises(OSError) as cut:
        bed.read_all()
    assert cut.value.errno == errno.EBADMSG
    with pytest.raises(OSError) as ours:
        bed.write(b"answer")
    assert ours.value.errno == errno.EBADMSG and "inside a message" in bed.error().text


@ROLES
@pytest.mark.parametrize("message_socket", [False, True], ids=["stream", "records"])
def test_a_write_waits_for_the_rest_of_a_message(tmp_path: Path, server: bool, message_socket: bool) -> None:
    """OpenSSL sends nothing while it has a part of KeyUpdate. What it did not take is offered again, and asked for."""
    with TlsBed(message_socket=message_socket, records=OPENSSL) as bed:
        bed.add_trust("default", AUTHORITY.certificate)
        bed.add_identity("server", SERVER)
        peer = hostile(bed, tmp_path, server=server)
        peer.peer.recv()  # tickets
        if message_socket:
            assert bed.write(b"first ", Mark(pdu=True, more=True)) == 6
        bed.peer_send(peer.seal(KEY_UPDATE[:4], HANDSHAKE))
        assert bed.read_all() == []
        assert bed.write(b"and last") == 0
        bed.wakeups.clear()
        bed.peer_send(peer.seal(KEY_UPDATE[4:], HANDSHAKE))
        assert bed.read_all() == []
        assert 0 in bed.wakeups
        assert bed.write(b"and last") == 8
        assert list(peer.peer.records()) == [b"first and last" if message_socket else b"and last"]
