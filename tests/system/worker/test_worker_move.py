"""A channel that goes to another worker, by raw messages: MOVE, what becomes of each state, and what may come in."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from beds.examples import examples
from beds.moves import MOVE, answer, ask, claim, is_open, moved, take, take_in, waits
from beds.scripted_host import WINDOW, ScriptedHost, Worker, worker_lib
from beds.share import SHARE, client, goodbye, joined, new_epoch, new_key, port_of, share, shared
from beds.worker import FEATURES, LOOPBACK, Conn, connected, prefixed, receive_exactly
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, Frame, encode


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as made:
        made.settimeout(5)
        yield made


@pytest.fixture
def host(worker: Worker) -> Iterator[ScriptedHost]:
    with worker.attach(features=FEATURES | MOVE) as made:
        yield made.open()


def of(host: ScriptedHost) -> dict[str, bytes]:
    """The addresses of its frames."""
    return {"destination": host.queue.peer_mac, "source": host.queue.local_mac}


def test_a_connection_moves_with_what_is_unread(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    with Worker(tenant=worker.tenant) as next_worker, connected(host, server) as connection:
        connection.send(b"before")
        connection.peer.sendall(b"unread")
        assert connection.receive_data().payload == b"unread"  # and the program has not read it
        left = moved(host, worker, next_worker)
        connection.peer.sendall(b"meanwhile")
        with next_worker.attach(features=FEATURES | MOVE) as after:
            after.open()
            id, _ = claim(after, left.ticket, connection.id, 77, unread=len(b"unread"))
            there = Conn(after, 77, id, WINDOW, connection.peer)
            there.held = 0
            assert there.receive_data().payload == b"meanwhile"
            after.send("XTS_CMD_SEND", b"after", id=id)
            assert receive_exactly(connection.peer, 11) == b"beforeafter"
            there.read_bytes = len(b"unreadmeanwhile")
            there.close()  # all was read, so this is FIN and no reset
            assert connection.peer.recv(10) == b""
        left.close()


@pytest.mark.parametrize("late", ["nothing", "PING", "MOVE_ACK", "SEND", "PART"])
def test_a_host_that_ends_before_it_claims(
    worker: Worker, host: ScriptedHost, server: socket.socket, late: str
) -> None:
    """What it had sent arrives, and then an end, as of any process. What it sends to a process that has left is lost:
    its peer must not take that for the end. MOVE_ACK, and what the link itself says, is no loss."""
    lost = late in ("SEND", "PART")
    sent = bytes(1 << 15)
    with Worker(tenant=worker.tenant) as next_worker, connected(host, server) as connection:
        connection.peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.send(sent)
        left = moved(host, worker, next_worker)
        _, after = next_worker.resume(left.ticket, left.epoch, left.known, features=FEATURES | MOVE)
        with after:
            if late == "SEND":
                after.raw(encode(Frame("XTS_CMD_SEND", {}, b"more", id=connection.id, **of(after))))
            elif late == "PART":
                after.raw(encode(Frame("XTS_LINK_PART", {"frame_bytes": 9000}, bytes(1000), **of(after))))
            elif late == "MOVE_ACK":
                after.raw(encode(Frame("XTS_CMD_MOVE_ACK", {"ticket": left.ticket}, **of(after))))
            elif late == "PING":
                after.raw(encode(Frame("XTS_LINK_PING", {"token": 1}, **of(after))))
            goodbye(after)
            if lost:
                with pytest.raises(ConnectionResetError):
                    receive_exactly(connection.peer, len(sent) + 1)
            else:
                assert receive_exactly(connection.peer, len(sent)) == sent
                assert connection.peer.recv(1) == b""
            next_worker.wait(lambda s: s.connections == 0, "connections remain")
        left.close()


def test_a_listener_moves_with_its_backlog(worker: Worker, host: ScriptedHost) -> None:
    number = host.new_socket()
    host.send("XTS_CMD_BIND", xts_socket=number, token=1, domain=4, local=Endpoint.of(LOOPBACK, 0))
    bound = host.expect("XTS_REPLY_BIND_ACK").fields
    host.send("XTS_CMD_LISTEN", id=bound["proxy_id"], xts_socket=number, token=2, backlog=8, post_credits=0)
    assert host.expect("XTS_REPLY_LISTEN_ACK").error == 0
    with Worker(tenant=worker.tenant) as next_worker:
        with socket.create_connection((LOOPBACK, bound["local"].port)) as waiting:
            left = moved(host, worker, next_worker)
            with next_worker.attach(features=FEATURES | MOVE) as after:
                after.open()
                claim(after, left.ticket, bound["proxy_id"], 9)
                come = after.expect("XTS_REPLY_NEWCONN")
                assert come.id == 9 and come.fields["peer"].port == waiting.getsockname()[1]
            left.close()


def test_others_join_a_shared_listener_whose_member_sleeps(worker: Worker) -> None:
    """The master of a pre-fork server sleeps, and has not noticed the move; a worker of it comes on a new channel. The
    master joins when it wakes up. What a member leaves is the others'."""
    with worker.attach(features=SHARE | MOVE) as host, Worker(tenant=worker.tenant) as next_worker:
        key, listener = shared(host.open())
        assert ask(worker) == 0
        left = take(worker)
        assert take_in(next_worker, left.records, left.descriptors) == 1
        left.descriptors = []
        with next_worker.attach(new_epoch(), features=SHARE | MOVE) as other:
            assert share(other.open(), new_key()).error == errno.ENOENT
            member = joined(other, key, credits=1)
            assert member.port == listener.port
            with client(listener.port) as first, next_worker.attach(new_epoch(), features=SHARE | MOVE) as after:
                offer = member.offered()
                assert offer.fields["peer"].port == port_of(first)
                id, _ = claim(after.open(), left.ticket, listener.proxy_id, 9, unread=WINDOW)
                assert share(after, key, id, 9).error == 0
                member.give_back(offer)
                member.close()
                after.send("XTS_CMD_SEND", id=id, post_credits=1)
                assert after.expect("XTS_REPLY_NEWCONN").fields["peer"].port == port_of(first)
        left.close()


def test_what_members_leave_waits_for_the_one_that_sleeps(worker: Worker) -> None:
    with worker.attach(features=SHARE | MOVE) as host, Worker(tenant=worker.tenant) as next_worker:
        key, listener = shared(host.open())
        assert ask(worker) == 0
        left = take(worker)
        assert take_in(next_worker, left.records, left.descriptors) == 1
        left.descriptors = []
        with next_worker.attach(new_epoch(), features=SHARE | MOVE) as other:
            joined(other.open(), key).close()
        with client(listener.port), next_worker.attach(new_epoch(), features=SHARE | MOVE) as after:
            id, _ = claim(after.open(), left.ticket, listener.proxy_id, 9, unread=WINDOW)
            assert share(after, key, id, 9).error == 0
            after.send("XTS_CMD_SEND", id=id, post_credits=1)
            assert after.expect("XTS_REPLY_NEWCONN").id == 9
        left.close()


PUSHED = FEATURES | MOVE | table.FEATURES["MOVE_PUSHED"][0]


def pushed_listener(host: ScriptedHost) -> tuple[int, int, int]:
    """Its number, identifier and port."""
    number = host.new_socket()
    host.send("XTS_CMD_BIND", xts_socket=number, token=1, domain=4, local=Endpoint.of(LOOPBACK, 0))
    bound = host.expect("XTS_REPLY_BIND_ACK").fields
    assert host.push("LENGTH_PREFIXED", bound["proxy_id"], number).error == 0
    host.send("XTS_CMD_LISTEN", id=bound["proxy_id"], xts_socket=number, token=2, backlog=8, post_credits=1)
    assert host.expect("XTS_REPLY_LISTEN_ACK").error == 0
    return number, bound["proxy_id"], bound["local"].port


def test_a_listener_with_protocols_gets_them_again(worker: Worker) -> None:
    """Its host pushes them, and then lets it accept. What they keep is charged no more here."""
    with worker.attach(features=PUSHED) as host, Worker(tenant=worker.tenant) as next_worker:
        _, listener, port = pushed_listener(host.open())
        left = moved(host, worker, next_worker)
        assert worker.used("ulp_bytes") == 0
        with next_worker.attach(features=PUSHED) as after, socket.create_connection((LOOPBACK, port)) as waiting:
            id, _ = claim(after.open(), left.ticket, listener, 9, unread=WINDOW)
            assert after.push("LENGTH_PREFIXED", id, 9).error == 0
            after.send("XTS_CMD_SEND", id=id, post_credits=1)
            come = after.expect("XTS_REPLY_NEWCONN")
            assert come.fields["peer"].port == waiting.getsockname()[1]
            after.send("XTS_CMD_NEWCONN_ACK", id=come.fields["proxy_id"], xts_socket=10, post_credits=WINDOW)
            waiting.sendall(prefixed(b"a PDU"))
            pdu = after.expect("XTS_REPLY_RECV_PDU")
            assert pdu.payload == b"a PDU"
        left.close()


def test_a_listener_with_protocols_of_a_host_that_does_not_push_again_ends(worker: Worker) -> None:
    """Else it would accept connections without them."""
    with worker.attach(features=FEATURES | MOVE) as host:
        _, _, port = pushed_listener(host.open())
        assert ask(worker) == 0
        left = take(worker)
        assert left.descriptors == []
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, port))
        left.close()


def test_what_waits_for_tcp_is_sent_by_one_of_them(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    """A worker sends nothing of what has come to it before its channel is its own: the one that has given it may take
    it back, and would send the same."""
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with Worker(tenant=worker.tenant) as next_worker, connected(host, server) as connection:
        sent = random.Random(7).randbytes(8 << 20)
        count = 0
        with contextlib.suppress(TimeoutError):  # no more credits come, since the peer does not read
            while True:
                while not connection.held:
                    connection.receive(200)
                piece = sent[count : count + min(connection.held, 16_000)]
                connection.send(piece)
                count += len(piece)
        left = moved(host, worker, next_worker)
        connection.peer.settimeout(0.2)
        got = bytearray()
        with pytest.raises(TimeoutError):
            while more := connection.peer.recv(65_536):
                got += more
        assert len(got) < count and next_worker.stats().sent_bytes == 0
        connection.peer.settimeout(5)
        with next_worker.attach(features=FEATURES | MOVE) as after:
            after.open()
            claim(after, left.ticket, connection.id, 77)
            got += receive_exactly(connection.peer, count - len(got))
            assert got == sent[:count]
        left.close()


def test_a_copy_that_ends_does_nothing_to_the_socket(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    """The worker that it comes from may go on with it, and then closes it as its program says."""
    with connected(host, server) as connection:
        assert waits(worker) == (0, {})
        answer(host)
        left = take(worker)
        with socket.socket(fileno=os.dup(left.descriptors[0])) as kept:
            with Worker(tenant=worker.tenant) as next_worker:
                assert take_in(next_worker, left.records, left.descriptors) == 1
            left.descriptors = []
            assert kept.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == bytes(8)
        assert connection.peer.recv(1) == b""
        left.close()


def test_sockets_whose_channel_never_comes_end(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    """Who has given them has died before their queue was there: their peers hear of that, and nothing is charged."""
    with connected(host, server) as connection:
        assert waits(worker) == (0, {})
        answer(host)
        left = take(worker)
        with Worker(tenant=worker.tenant) as next_worker:
            assert take_in(next_worker, left.records, left.descriptors) == 1
            left.descriptors = []
            assert worker.used("kept") == 1
            worker_lib.xts_worker_forget_arrived(next_worker.native)
            with contextlib.suppress(ConnectionResetError):
                assert connection.peer.recv(1) == b""
            assert worker.used("kept") == worker.used("kept_bytes") == 0
        left.close()


def test_a_host_that_sleeps_is_asked_and_not_waited_for(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    with connected(host, server) as connection:
        begun = time.monotonic()
        assert ask(worker) == 0
        left = take(worker)
        assert time.monotonic() - begun >= table.MOVE_QUIET_MS / 1000
        assert len(left.descriptors) == 1 and left.reset == 0
        connection.peer.sendall(b"x")  # nobody has closed it
        left.close()


def is_reset(worker: Worker, connection: Conn) -> None:
    """Its channel is left, and it does not move."""
    assert ask(worker, 1) == 0
    left = take(worker)
    assert left.descriptors == [] and left.reset == 1
    with pytest.raises(ConnectionResetError):
        connection.peer.recv(1)
    left.close()


def test_what_does_not_move_is_waited_for_and_then_reset(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    """TLS with keys of the host's program."""
    keys = struct.pack("=HH8s16s4s8s", 0x0304, 51, bytes(8), bytes(16), bytes(4), bytes(8))
    with connected(host, server) as connection:
        of = connection.id, connection.number
        answer = host.push("TLS_KEYS", *of, way="PUSH_ULP_RX", message=False, crypto=1, crypto_info=keys)
        assert answer.error == 0, answer
        assert ask(worker) == errno.EBUSY
        is_reset(worker, connection)


def test_a_host_of_an_earlier_version(worker: Worker, server: socket.socket) -> None:
    with worker.attach(features=FEATURES) as host:
        host.open()
        with connected(host, server) as connection:
            assert ask(worker) == errno.EOPNOTSUPP
            is_reset(worker, connection)


def test_an_answer_that_nobody_has_asked_for_ends_the_link(worker: Worker, host: ScriptedHost) -> None:
    host.send("XTS_CMD_MOVE_ACK", ticket=1)
    worker.wait(lambda figures: figures.link_failures == 1, "end of the link")


@given(data=st.data())
@examples(60)
def test_what_comes_in_is_not_believed(data: st.DataObject) -> None:
    """Whatever the records are, and the descriptors: no descriptor is left, and the worker goes on."""
    with Worker() as worker, worker.attach(features=FEATURES | SHARE | MOVE) as host:
        shared(host.open())  # with a note of its key behind the records
        with socket.create_server((LOOPBACK, 0)) as server, connected(host, server) as connection:
            assert ask(worker) == 0
            host.send("XTS_CMD_MOVE_ACK", ticket=host.expect("XTS_REPLY_MOVE").fields["ticket"])
            left = take(worker)
            records = bytearray(left.records)
            for _ in range(data.draw(st.integers(1, 6))):
                records[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
            records = records[: data.draw(st.integers(0, len(records)))]
            others = [os.open(os.devnull, os.O_RDONLY), socket.socket().detach()]
            descriptors = data.draw(st.permutations(left.descriptors + others))
            taken = take_in(worker, bytes(records), list(descriptors))
            assert taken + len([fd for fd in descriptors if not is_open(fd)]) == len(descriptors)
            left.descriptors = []
            left.close()
            connection.peer.close()
