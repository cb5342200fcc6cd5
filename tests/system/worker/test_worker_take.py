"""Connections that several processes have: TAKE asks the holder (YIELD), which gives it up by PARK and RETURN; and what
of all that a host may not do."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from beds.handover import Connection, claim, connected, server
from beds.scripted_host import WINDOW, ScriptedHost, Worker, make_tenant
from beds.share import KEEP_MS, QUIET_MS, Join, goodbye, new_epoch, new_key, other_worker, share, shared, worker
from beds.worker import prefixed
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

__all__ = ["other_worker", "server", "worker"]  # fixtures

FEATURES = table.FEATURES["SHARE"][0] | table.FEATURES["TAKE"][0] | table.FEATURES["ULP"][0]
RENEW_KEY = table.FEATURES["RENEW_KEY"][0]
POLL, RECEIVE, USE = 1, 2, 3
END, STREAM, PDU = 0, 1, 2


@pytest.fixture
def join() -> Iterator[Join]:
    """Attaches hosts that speak TAKE."""
    with contextlib.ExitStack() as stack:
        yield lambda worker: stack.enter_context(worker.attach(new_epoch(), features=FEATURES)).open()


def named(
    host: ScriptedHost, server: socket.socket, window: int = WINDOW, keep_ms: int = KEEP_MS
) -> tuple[int, Connection, socket.socket]:
    """A connection that has a key."""
    connection, peer = connected(host, server, window)
    answer = share(host, key := new_key(), connection.proxy_id, connection.number, keep_ms)
    assert answer.error == 0
    return key, connection, peer


def take(host: ScriptedHost, key: int, purpose: int = USE, window: int = WINDOW) -> codec.Frame:
    number = host.new_socket()
    host.send("XTS_CMD_TAKE", xts_socket=number, token=9, key=key, post_credits=window, purpose=purpose)
    answer = host.expect("XTS_REPLY_TAKE_ACK")
    assert (answer.id, answer.fields["token"]) == (number, 9)
    return answer


def taken(host: ScriptedHost, key: int, window: int = WINDOW) -> tuple[Connection, codec.Frame]:
    deadline = time.monotonic() + 5
    while (answer := take(host, key, USE, window)).error == errno.EBUSY:  # what other channels sent is on its way
        assert time.monotonic() < deadline
    assert answer.error == 0, errno.errorcode[answer.error]
    fields = answer.fields
    return Connection(host, answer.id, fields["proxy_id"], fields["post_credits"]), answer


def taken_at_last(worker: Worker, host: ScriptedHost, key: int) -> tuple[Connection, codec.Frame]:
    """Of a channel that ends meanwhile."""
    worker.wait(lambda s: s.parked_connections == 1, "it is not parked")
    return taken(host, key)


def returns(host: ScriptedHost, key: int, *pieces: bytes, end: bool = True, kind: int = STREAM, **more: Any) -> None:
    for piece in pieces:
        host.send("XTS_CMD_RETURN", piece, key=key, kind=kind, record_bytes=0, **more)
    if end:
        host.send("XTS_CMD_RETURN", key=key, kind=END, record_bytes=0)


def receive_all(connection: Connection, size: int) -> bytes:
    while len(connection.received) < size:
        connection.receive()
    return bytes(connection.received)


# --- a new key --------------------------------------------------------------------------------------------------------


def test_a_holder_gives_its_connection_another_key(worker: Worker, join: Join, server: socket.socket) -> None:
    """Who knows the one before has nothing any more: a process that has closed it, for instance."""
    others, _, other_peer = named(join(worker), server)
    with worker.attach(new_epoch(), features=FEATURES | RENEW_KEY) as holder:
        key, connection, peer = named(holder.open(), server)
        asker = join(worker)
        with peer, other_peer:
            assert share(holder, others, connection.proxy_id, connection.number).error == errno.EEXIST
            assert share(holder, 0, connection.proxy_id, connection.number).error == errno.EINVAL
            assert take(asker, key, USE).error == errno.EBUSY
            holder.expect("XTS_REPLY_YIELD")
            renewed = new_key()
            assert share(holder, renewed, connection.proxy_id, connection.number).error == 0
            assert take(asker, key, USE).error == errno.ENOENT
            assert take(asker, renewed, USE).error == errno.EAGAIN, "the new key is an answer"
            holder.expect("XTS_REPLY_YIELD")
            assert connection.park(renewed).error == 0
            returns(holder, renewed)
            second, _ = taken(asker, renewed)
            second.send(b"goes on")
            assert peer.recv(10) == b"goes on"


def test_without_the_feature_a_key_is_for_good(worker: Worker, join: Join, server: socket.socket) -> None:
    holder = join(worker)
    key, connection, peer = named(holder, server)
    with peer:
        assert share(holder, new_key(), connection.proxy_id, connection.number).error == errno.EINVAL
        assert take(join(worker), key, 0).error == errno.EBUSY


# --- by turns ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["same worker", "other worker"])
def test_the_holder_is_asked_and_gives_it_up(
    worker: Worker, other_worker: Worker, join: Join, server: socket.socket, place: str
) -> None:
    holder, asker = join(worker), join(worker if place == "same worker" else other_worker)
    key, first, peer = named(holder, server)
    with peer:
        assert take(asker, key, USE).error == errno.EBUSY
        question = holder.expect("XTS_REPLY_YIELD")
        assert (question.id, question.fields["purpose"]) == (first.number, USE)
        assert take(asker, key, USE).error == errno.EBUSY  # it has not answered
        peer.sendall(b"read" + b"not read")
        assert receive_all(first, 12) == b"readnot read"
        assert first.park(key).error == 0
        peer.sendall(b", after that")
        assert take(asker, key, USE).error == errno.EBUSY  # what was unread is not back yet
        returns(holder, key, b"not ", b"read")
        second, answer = taken(asker, key)
        assert not answer.fields["died"] and answer.fields["peer"].port == server.getsockname()[1]
        assert receive_all(second, 20) == b"not read, after that"
        second.send(b"mine")
        assert peer.recv(10) == b"mine"
        # … and back, the other way.
        assert take(holder, key, USE).error == errno.EBUSY
        asker.expect("XTS_REPLY_YIELD")
        assert second.park(key).error == 0
        returns(asker, key)
        third, _ = taken(holder, key)
        third.close()
        assert peer.recv(1) == b""
        assert take(asker, key).error == errno.ENOENT


def test_nobody_claims_it_while_bytes_are_given_back(
    worker: Worker, other_worker: Worker, join: Join, server: socket.socket
) -> None:
    """The rest would be missing from the stream."""
    holder, asker = join(worker), join(other_worker)
    key, first, peer = named(holder, server)
    with peer:
        peer.sendall(b"not read")
        receive_all(first, 8)
        assert first.park(key).error == 0
        returns(holder, key, b"not ", end=False)
        worker.wait(lambda s: s.parked_connections == 1, "it is not parked")
        assert claim(asker, key).error == errno.EBUSY
        returns(holder, key, b"read")
        second, _ = taken(asker, key)
        assert receive_all(second, 8) == b"not read"


def test_a_holder_that_needs_it_says_so(worker: Worker, join: Join, server: socket.socket) -> None:
    holder, asker = join(worker), join(worker)
    key, first, peer = named(holder, server)
    with peer:
        assert take(asker, key, POLL).error == errno.EBUSY
        for _ in range(3):  # asked again each time, at once
            holder.expect("XTS_REPLY_YIELD")
            assert share(holder, key, first.proxy_id, first.number).error == 0
            assert take(asker, key, RECEIVE).error == errno.EAGAIN


def test_without_a_purpose_nobody_is_asked(worker: Worker, join: Join, server: socket.socket) -> None:
    holder, asker = join(worker), join(worker)
    key, _, peer = named(holder, server)
    with peer:
        assert take(asker, key, 0).error == errno.EBUSY
        with pytest.raises(TimeoutError):
            holder.receive(QUIET_MS)


@pytest.mark.parametrize("unread", [0, 5])
def test_a_holder_that_dies_leaves_it(worker: Worker, join: Join, server: socket.socket, unread: int) -> None:
    """How many bytes went each way is said, for the process that takes it to compare."""
    holder, asker = join(worker), join(worker)
    key, first, peer = named(holder, server)
    with peer:
        first.send(b"seven b")
        assert peer.recv(10) == b"seven b"
        peer.sendall(bytes(unread))
        receive_all(first, unread)
        goodbye(holder)
        second, answer = taken_at_last(worker, asker, key)
        fields = answer.fields
        assert (fields["died"], fields["delivered_bytes"], fields["accepted_bytes"]) == (1, unread, 7)
        second.send(b"on")
        assert peer.recv(10) == b"on"


@pytest.mark.parametrize("unread", [0, 5])
def test_a_holder_that_dies_before_it_returns_leaves_it(
    worker: Worker, join: Join, server: socket.socket, unread: int
) -> None:
    """It may have read all that it was sent: who takes it compares."""
    holder, asker = join(worker), join(worker)
    key, first, peer = named(holder, server)
    with peer:
        first.send(b"last", "FIN")
        peer.sendall(bytes(unread))
        receive_all(first, unread)
        assert first.park(key).error == 0
        assert take(asker, key).error == errno.EBUSY
        goodbye(holder)
        second, answer = taken(asker, key)
        fields = answer.fields
        assert (fields["died"], fields["delivered_bytes"], fields["accepted_bytes"]) == (1, unread, 4)
        assert peer.recv(10) == b"last" and peer.recv(10) == b""
        peer.sendall(b"on")
        assert receive_all(second, 2) == b"on"


def test_what_is_sent_after_the_fin_of_another_process_ends_this_connection_only(
    worker: Worker, join: Join, server: socket.socket
) -> None:
    """The process may not know of the FIN."""
    holder, asker = join(worker), join(worker)
    key, first, peer = named(holder, server)
    second, second_peer = connected(asker, server)
    with peer, second_peer:
        first.send(b"last", "FIN")
        assert first.park(key).error == 0
        returns(holder, key)
        taken(asker, key)[0].send(b"more")
        answer = asker.expect("XTS_REPLY_RECV")
        assert (answer.flags, answer.error) == (codec.flags("RESET"), errno.EPIPE)
        assert peer.recv(10) == b"last"
        second.send(b"goes on")
        assert second_peer.recv(10) == b"goes on"


def test_what_was_returned_and_not_sent_again_survives_the_next_turns(
    worker: Worker, join: Join, server: socket.socket
) -> None:
    """The next holder has a window for a part only, and gives back all of that; the one after it dies."""
    hosts = [join(worker) for _ in range(4)]
    key, first, peer = named(hosts[0], server)
    with peer:
        sent = os.urandom(3000)
        peer.sendall(sent)
        receive_all(first, len(sent))
        assert first.park(key).error == 0
        returns(hosts[0], key, sent[:1000], sent[1000:])
        second, _ = taken(hosts[1], key, window=1500)
        part = receive_all(second, 1500)
        assert second.park(key).error == 0
        returns(hosts[1], key, part)
        third, _ = taken(hosts[2], key, window=10)
        assert receive_all(third, 10) == sent[:10]
        goodbye(hosts[2])
        fourth, answer = taken_at_last(worker, hosts[3], key)
        assert answer.fields["delivered_bytes"] == 10
        assert receive_all(fourth, 2990) == sent[10:]
    worker.wait(lambda s: s.connections == 1, "left over")


def test_pdus_are_returned_with_their_lengths(worker: Worker, join: Join, server: socket.socket) -> None:
    holder, asker = join(worker), join(worker)
    key, first, peer = named(holder, server)
    with peer:
        assert holder.push("LENGTH_PREFIXED", first.proxy_id, first.number).error == 0
        peer.sendall(prefixed(b"one", b"", b"three"))
        pdus = [holder.expect("XTS_REPLY_RECV_PDU") for _ in range(3)]
        assert first.park(key).error == 0
        for pdu in pdus:
            record = pdu.fields["record_bytes"]
            holder.send("XTS_CMD_RETURN", pdu.payload, key=key, kind=PDU, record_bytes=record)
        returns(holder, key)
        _, answer = taken(asker, key)
        again = [asker.expect("XTS_REPLY_RECV_PDU") for _ in range(3)]
        assert [(f.payload, f.fields["record_bytes"]) for f in again] == [
            (f.payload, f.fields["record_bytes"]) for f in pdus
        ]
        peer.sendall(prefixed(b"four"))
        assert asker.expect("XTS_REPLY_RECV_PDU").payload == b"four"
        assert answer.error == 0


def test_nothing_is_pushed_over_what_was_returned(worker: Worker, join: Join, server: socket.socket) -> None:
    holder, asker = join(worker), join(worker)
    key, first, peer = named(holder, server)
    with peer:
        peer.sendall(b"unread")
        receive_all(first, 6)
        assert first.park(key).error == 0
        returns(holder, key, b"unread")
        second, _ = taken(asker, key, window=1)
        assert second.receive().payload == b"u"
        pushed = asker.push("LENGTH_PREFIXED", second.proxy_id, second.number)
        assert pushed.error == errno.EBUSY


def test_a_key_is_taken_away_again(worker: Worker, join: Join, server: socket.socket) -> None:
    holder, asker = join(worker), join(worker)
    key, first, peer = named(holder, server)
    with peer:
        assert share(holder, key, first.proxy_id, first.number, keep_ms=0).error == 0
        assert take(asker, key).error == errno.ENOENT
        goodbye(holder)
        assert peer.recv(1) == b""


# --- what a host may not do ----------------------------------------------------------------------------------


def test_a_key_of_something_else_is_not_taken(worker: Worker, join: Join, server: socket.socket) -> None:
    host = join(worker)
    listener_key, _ = shared(host)
    key, first, peer = named(host, server)
    with peer:
        for forged, error in ((listener_key, errno.ENOENT), (0, errno.ENOENT), (key, errno.EISCONN)):
            assert take(host, forged).error == error
        assert claim(join(worker), key).error == errno.ENOENT  # it is held, not parked
        assert share(host, new_key(), first.proxy_id, first.number).error == errno.EINVAL  # it has another one
        assert share(host, 0, first.proxy_id, first.number).error == errno.EINVAL
        other, other_peer = connected(host, server)
        with other_peer:
            assert share(host, key, other.proxy_id, other.number).error == errno.EEXIST
            assert other.park(key).error == errno.EEXIST
            first.send(b"unharmed")
            assert peer.recv(10) == b"unharmed"


def test_another_tenant_takes_nothing(worker: Worker, join: Join, server: socket.socket) -> None:
    holder = join(worker)
    key, first, peer = named(holder, server)
    tenant = make_tenant("other", 1)
    with peer, worker.attach(new_epoch(), tenant=tenant, features=FEATURES) as stranger:
        stranger.open()
        assert take(stranger, key).error == errno.ENOENT
        with pytest.raises(TimeoutError):
            holder.receive(QUIET_MS)  # it is not even asked
        peer.sendall(b"x")
        receive_all(first, 1)
        assert first.park(key).error == 0
        assert take(stranger, key).error == errno.ENOENT
        returns(stranger, key, b"forged")
        worker.wait(lambda s: s.bad_identifiers == 2, "taken from a stranger")
        returns(holder, key, b"x")
        assert receive_all(taken(holder, key)[0], 1) == b"x"


def test_only_the_last_holder_returns_and_only_what_it_was_sent(
    worker: Worker, join: Join, server: socket.socket
) -> None:
    holder, other = join(worker), join(worker)
    key, first, peer = named(holder, server)
    with peer:
        peer.sendall(b"four")
        receive_all(first, 4)
        returns(holder, key, b"four")  # it is not parked
        assert first.park(key).error == 0
        returns(other, key, b"four")  # this one has not parked it
        returns(holder, key, b"12345", end=False)  # more than it was sent
        returns(holder, key, b"", end=False)  # nothing
        returns(holder, key, b"four", end=False, kind=PDU)  # no protocol is there
        returns(holder, new_key(), b"four")  # no such key
        returns(holder, key, b"fo", b"ur", b"more")
        returns(holder, key, b"four")  # it has ended
        worker.wait(lambda s: s.bad_identifiers == 2 + 2 + 3 + 2 + 1 + 2, "something was taken")
        second, _ = taken(other, key)
        assert receive_all(second, 4) == b"four"
        with pytest.raises(TimeoutError):
            other.receive(QUIET_MS)


def test_pdus_for_a_protocol_that_only_sends_are_refused(worker: Worker, join: Join, server: socket.socket) -> None:
    holder = join(worker)
    key, first, peer = named(holder, server)
    with peer:
        pushed = holder.push("LENGTH_PREFIXED", first.proxy_id, first.number, way="PUSH_ULP_TX")
        assert pushed.error == 0
        peer.sendall(b"bytes")
        receive_all(first, 5)
        assert first.park(key).error == 0
        returns(holder, key, b"bytes", end=False, kind=PDU)
        returns(holder, key, b"bytes")
        worker.wait(lambda s: s.bad_identifiers == 1, "taken")
        assert receive_all(taken(holder, key)[0], 5) == b"bytes"


@pytest.mark.parametrize("how", ["its channel ends", "over budget"])
def test_without_all_that_was_unread_it_is_reset(join: Join, server: socket.socket, how: str) -> None:
    """What follows would come after a gap."""
    with Worker(kept_bytes=4000) as worker:
        holder, asker = join(worker), join(worker)
        key, first, peer = named(holder, server)
        peer.sendall(bytes(8000))
        receive_all(first, 8000)
        assert first.park(key).error == 0
        returns(holder, key, bytes(100), end=False)
        if how == "over budget":
            returns(holder, key, bytes(7900))
        else:
            goodbye(holder)
        with peer, pytest.raises(ConnectionResetError):
            peer.recv(1)
        assert take(asker, key).error == errno.ENOENT
        worker.wait(lambda s: s.parked_connections == 0, "left over")
        worker.wait(lambda s: worker.used("kept_bytes") == 0, "charged")


def test_a_holder_that_never_ends_its_returns_is_waited_for_so_long(
    worker: Worker, join: Join, server: socket.socket
) -> None:
    holder, asker = join(worker), join(worker)
    key, first, peer = named(holder, server)
    with peer:
        assert first.park(key, keep_ms=200).error == 0
        assert take(asker, key).error == errno.EBUSY
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
        assert take(asker, key).error == errno.ENOENT


def test_a_flood_of_empty_pdus_is_charged(join: Join, server: socket.socket) -> None:
    with Worker(kept_bytes=20_000) as worker:
        holder = join(worker)
        key, first, peer = named(holder, server)
        assert holder.push("LENGTH_PREFIXED", first.proxy_id, first.number).error == 0
        assert first.park(key).error == 0
        returns(holder, key, *[b""] * 1000, kind=PDU)
        with peer, pytest.raises(ConnectionResetError):
            peer.recv(1)
        worker.wait(lambda s: s.parked_connections == 0, "left over")
        assert worker.stats().refused_limit == 1


def test_a_flood_of_takes_asks_the_holder_once_for_each_answer(
    worker: Worker, other_worker: Worker, join: Join, server: socket.socket
) -> None:
    holder, asker = join(worker), join(other_worker)
    key, first, peer = named(holder, server)
    with peer:
        for _ in range(2):
            for _ in range(100):
                take(asker, key)
            holder.expect("XTS_REPLY_YIELD")
            with pytest.raises(TimeoutError):
                holder.receive(QUIET_MS)
            assert share(holder, key, first.proxy_id, first.number).error == 0


@pytest.mark.parametrize("name", ["XTS_CMD_TAKE", "XTS_CMD_RETURN"])
def test_both_are_refused_without_the_feature(worker: Worker, name: str) -> None:
    fields = {"xts_socket": 1, "token": 1, "post_credits": 1, "purpose": 1} if name == "XTS_CMD_TAKE" else {"kind": 0}
    with worker.attach(features=table.FEATURES["SHARE"][0]) as host:
        host.open().send(name, key=1, **fields)
        assert host.wait_down() == errno.EPROTO


def test_a_connection_has_no_key_without_the_feature(worker: Worker, server: socket.socket) -> None:
    with worker.attach(features=table.FEATURES["SHARE"][0]) as host:
        connection, peer = connected(host.open(), server)
        with peer:
            assert share(host, new_key(), connection.proxy_id, connection.number).error == errno.EINVAL
