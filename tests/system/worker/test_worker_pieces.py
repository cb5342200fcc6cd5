"""What takes a worker long for reasons of its own, and not of a message, is done a piece at a time: a bystander on
another queue does not wait for all of it. By a clock of the test, as test_worker_turns.py."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from beds.datagrams import Udp, endpoint_of, udp_peer
from beds.scripted_host import ScriptedHost, Worker
from beds.share import KEEP_MS, bind, goodbye, joined, new_key, port_of, refused, share
from beds.worker import FEATURES
from beds.worker_clock import LOOPBACK, MS, US, Clock, Connect, clock, connect, has_ended, worker
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint
from xts_messages.wire.datagram import Datagram
from xts_proxy._native import ffi, lib

__all__ = ["clock", "connect", "worker"]  # fixtures

MANY = 60
RETURNED = 3000
RECORDS = 600
RECEIVED = 200  # SO_RCVBUF has room for them
TAKING = FEATURES | table.FEATURES["SHARE"][0] | table.FEATURES["TAKE"][0] | table.FEATURES["DATAGRAM"][0]


class Bystander:
    """Its byte is sent while the worker's clock stands still, and arrives after it goes on."""

    def __init__(self, worker: Worker, clock: Clock, host: ScriptedHost, id: int, peer: socket.socket) -> None:
        self._worker, self._clock = worker, clock
        self._host, self._id, self._peer = host, id, peer
        self.waited_ns = 0

    @contextmanager
    def waits(self, then: Callable[[], int] = lambda: 0) -> Iterator[list[int]]:
        """Inside, the worker stands still; the list gets what `then` says when the byte has arrived."""
        seen: list[int] = []

        def arrived() -> bool:
            if has_ended(self._peer) and b"!" in self._peer.recv(64):
                seen.append(then())
            return bool(seen)

        self._clock.going.clear()
        self._host.send("XTS_CMD_SEND", b"wakes the worker", id=self._id)
        assert self._clock.waiting.wait(10)
        begun_ns = self._clock.now_ns
        yield seen
        begun_ns = max(begun_ns, self._clock.now_ns)
        self._host.send("XTS_CMD_SEND", b"!", id=self._id)
        self._clock.arrived = arrived
        self._clock.going.set()
        self._worker.wait(lambda stats: self._clock.arrived_ns, "the bystander's byte did not arrive")
        self.waited_ns = self._clock.arrived_ns - begun_ns


@pytest.fixture
def bystander(worker: Worker, clock: Clock, connect: Connect) -> Iterator[Bystander]:
    with worker.attach(2) as host:
        _, id, peer = connect(host.open())
        yield Bystander(worker, clock, host, id, peer)


@contextmanager
def kept_listener(worker: Worker, stack: contextlib.ExitStack) -> Iterator[tuple[int, int, list[socket.socket]]]:
    """A listener whose only process has gone, with connections in its backlog: key, port, peers."""
    with worker.attach(1, features=FEATURES) as host:
        number = host.open().new_socket()
        host.send("XTS_CMD_LISTEN", xts_socket=number, token=1, domain=4, backlog=2 * MANY)
        ack = host.expect("XTS_REPLY_LISTEN_ACK")
        port, key = ack.fields["local"].port, new_key()
        assert share(host, key, ack.fields["proxy_id"], number, keep_ms=KEEP_MS).error == 0
        peers = [stack.enter_context(socket.create_connection((LOOPBACK, port))) for _ in range(MANY)]
        goodbye(host)
        worker.wait(lambda stats: stats.kept_listeners == 1, "the listener is not kept")
        yield key, port, peers


def test_a_kept_listener_that_expires_closes_its_backlog_in_turns(
    worker: Worker, clock: Clock, bystander: Bystander
) -> None:
    with contextlib.ExitStack() as stack, kept_listener(worker, stack) as (_, port, peers):
        with bystander.waits(lambda: sum(map(has_ended, peers))) as ended:
            clock.now_ns += (KEEP_MS + 1000) * MS
        assert ended[0] < MANY // 2
        worker.wait(lambda stats: not stats.kept_listeners, "the listener is kept yet")
        assert all(map(has_ended, peers))
        assert refused(port)
        assert not worker.used("names")


def test_a_bind_in_place_of_a_kept_listener_waits_until_its_backlog_is_closed(
    worker: Worker, clock: Clock, bystander: Bystander
) -> None:
    """What its host sends after it waits, too."""
    with (
        contextlib.ExitStack() as stack,
        kept_listener(worker, stack) as (_, port, peers),
        worker.attach(3, features=FEATURES) as host,
    ):
        number = host.open().new_socket()
        with bystander.waits(lambda: sum(map(has_ended, peers))) as ended:
            local = Endpoint.of(LOOPBACK, port)
            host.send("XTS_CMD_BIND", xts_socket=number, token=1, domain=4, local=local)
            host.send("XTS_CMD_BIND", xts_socket=number + 1, token=2, domain=4, local=Endpoint.of(LOOPBACK, 0))
        assert ended[0] < MANY // 2
        answers = [host.expect("XTS_REPLY_BIND_ACK") for _ in range(2)]
        assert [(answer.error, answer.fields["token"]) for answer in answers] == [(0, 1), (0, 2)]
        assert answers[0].fields["local"].port == port
        assert all(map(has_ended, peers)) and not worker.stats().kept_listeners


def test_a_host_ends_while_its_bind_waits(worker: Worker, bystander: Bystander) -> None:
    with (
        contextlib.ExitStack() as stack,
        kept_listener(worker, stack) as (_, port, peers),
        worker.attach(3, features=FEATURES) as host,
    ):
        host.open()
        with bystander.waits():
            local = Endpoint.of(LOOPBACK, port)
            host.send("XTS_CMD_BIND", xts_socket=1, token=1, domain=4, local=local)
            goodbye(host)
        worker.wait(lambda stats: not stats.kept_listeners and stats.connections == 1, "something is left")
        assert all(map(has_ended, peers))


def test_a_socket_that_is_bound_already_takes_no_place(worker: Worker) -> None:
    with (
        contextlib.ExitStack() as stack,
        kept_listener(worker, stack) as (key, port, peers),
        worker.attach(3, features=FEATURES) as host,
    ):
        number, bound = bind(host.open())
        fields = {"id": bound.fields["proxy_id"], "xts_socket": number, "token": 3, "domain": 4}
        host.send("XTS_CMD_BIND", **fields, local=Endpoint.of(LOOPBACK, port))
        assert host.expect("XTS_REPLY_BIND_ACK").error
        assert joined(host, key, credits=1).port == port
        host.expect("XTS_REPLY_NEWCONN")
        assert not any(map(has_ended, peers))


def is_closed(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex((LOOPBACK, port)) != 0


@pytest.mark.parametrize("backlog", [0, MANY])
def test_draining_closes_listeners_a_piece_at_a_time(worker: Worker, bystander: Bystander, backlog: int) -> None:
    """Many of them, or one with many in its backlog."""
    with worker.attach(1) as host, contextlib.ExitStack() as stack:
        host.open()
        ports = []
        for token in range(1 if backlog else MANY):
            host.send("XTS_CMD_LISTEN", xts_socket=host.new_socket(), token=token, domain=4, backlog=2 * MANY)
            ports.append(host.expect("XTS_REPLY_LISTEN_ACK").fields["local"].port)
        peers = [stack.enter_context(socket.create_connection((LOOPBACK, ports[0]))) for _ in range(backlog)]
        thread = threading.Thread(target=worker.drain)
        with bystander.waits(lambda: sum(map(has_ended, peers)) if peers else sum(map(is_closed, ports))) as ended:
            thread.start()
        assert bystander.waited_ns < 250 * US
        assert ended[0] < MANY // 2
        thread.join(10)
        assert not thread.is_alive()
        assert all(refused(port) for port in ports) and all(map(has_ended, peers))


@pytest.mark.parametrize("what", ["connection", "channel"])
def test_a_listing_is_made_a_piece_at_a_time(
    worker: Worker, clock: Clock, connect: Connect, bystander: Bystander, what: str
) -> None:
    """What is there all the time is in it, once."""
    with contextlib.ExitStack() as stack:
        hosts = [stack.enter_context(worker.attach(10 + n)).open() for n in range(MANY if what == "channel" else 1)]
        ports = {port_of(connect(hosts[n % len(hosts)])[2]) for n in range(MANY)}
        listed: list[int] = []
        out = ffi.new(f"struct xts_{what}_stats[256]")

        def ask() -> None:
            listed.append(getattr(lib, f"xts_worker_{what}s")(worker.native, out, 256))

        thread = threading.Thread(target=ask)
        with bystander.waits(lambda: sum(bool(item.queue_id) for item in out)) as filled:
            thread.start()
        assert bystander.waited_ns < 250 * US
        assert filled[0] < MANY // 2
        thread.join(10)
        assert listed == [MANY + 1]
        if what == "channel":
            assert sorted(item.queue_id for item in out[0 : MANY + 1]) == list(range(MANY + 1))
            assert all(item.connections == 1 for item in out[0 : MANY + 1])
        else:
            assert {item.peer.port for item in out[0 : MANY + 1]} >= ports
            assert len({item.proxy_id for item in out[0 : MANY + 1] if item.queue_id}) == MANY


# --- connections that several processes have -------------------------------------------------------------------


def parked_and_not_returned(host: ScriptedHost, connect: Connect, sent: bytes = b"") -> tuple[int, socket.socket]:
    """A connection with a key that its holder has parked, and of which it still returns what it had not read."""
    (number, id, peer), key = connect(host), new_key()
    assert share(host, key, id, number, KEEP_MS).error == 0
    peer.sendall(sent)
    received = 0
    while received < len(sent):
        received += len(host.expect("XTS_REPLY_RECV").payload)
    host.send("XTS_CMD_PARK", id=id, xts_socket=number, token=1, key=key, keep_ms=KEEP_MS)
    while (answer := host.receive()).name != "XTS_REPLY_PARK_ACK":
        pass
    assert answer.error == 0
    return key, peer


@pytest.fixture
def taker(worker: Worker) -> Iterator[ScriptedHost]:
    """Before the bystander, so that its channel is served first in each round."""
    with worker.attach(3, features=TAKING) as host:
        yield host.open()


@pytest.mark.parametrize("how", ["goodbye", "another epoch"])
def test_connections_that_a_host_has_not_returned_are_reset_in_turns(
    worker: Worker, taker: ScriptedHost, bystander: Bystander, connect: Connect, how: str
) -> None:
    """Of each a part has come, so that the rest is missing."""
    peers = []
    for _ in range(MANY):
        key, peer = parked_and_not_returned(taker, connect, b"two")
        taker.send("XTS_CMD_RETURN", b"x", key=key, kind=1, record_bytes=0)
        peers.append(peer)
    second = ScriptedHost(taker.queue, taker.epoch + 1)
    with bystander.waits(lambda: sum(map(has_ended, peers))) as ended:
        if how == "goodbye":
            goodbye(taker)
        else:
            second.pump(0)
    assert ended[0] < MANY // 2
    worker.wait(lambda stats: not stats.parked_connections, "they are kept yet")
    assert all(map(has_ended, peers))
    if how != "goodbye":
        second.open()


def test_what_was_returned_and_nobody_reads_is_freed_in_turns(
    worker: Worker, taker: ScriptedHost, bystander: Bystander, connect: Connect
) -> None:
    """Byte by byte, a host makes as many pieces as it has received bytes."""
    key, peer = parked_and_not_returned(taker, connect, bytes(RETURNED))
    for _ in range(RETURNED):
        taker.send("XTS_CMD_RETURN", b"x", key=key, kind=1, record_bytes=0)
    worker.wait(lambda _: worker.used("kept_bytes") > RETURNED, "nothing has been returned")
    with bystander.waits(lambda: worker.used("kept_bytes")) as left:
        goodbye(taker)
    assert left[0] > RETURNED
    worker.wait(lambda _: not worker.used("kept_bytes"), "it is kept yet")
    assert has_ended(peer)


# --- datagrams --------------------------------------------------------------------------------------------------


def drained(peer: socket.socket) -> int:
    """How many datagrams have come."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            peer.recv(64)
            count += 1
    return count


@pytest.mark.parametrize("size", [0, 32])
def test_a_message_full_of_datagrams_is_read_in_turns(
    worker: Worker, taker: ScriptedHost, bystander: Bystander, size: int
) -> None:
    """And nothing of it is copied, to be sent later. What its host sends next comes after it."""
    with udp_peer(SO_RCVBUF=4 << 20) as peer, udp_peer() as last:
        peer.setblocking(False)
        udp = Udp.open(taker)
        many = [Datagram(bytes(size), endpoint_of(peer))] * RECORDS
        with bystander.waits(lambda: drained(peer)) as came:
            udp.send(*many)
            udp.send(Datagram(b"last", endpoint_of(last)))
        assert came[0] < RECORDS // 2
        assert last.recv(64) == b"last"
        assert came[0] + drained(peer) == RECORDS
        assert not worker.stats().spilled_bytes
        udp.settle()
        assert udp.close().error == 0


def test_datagrams_of_a_peer_are_taken_in_turns(worker: Worker, taker: ScriptedHost, bystander: Bystander) -> None:
    with udp_peer() as peer:
        udp = Udp.open(taker, local=Endpoint.of(LOOPBACK, 0))
        with bystander.waits():
            for _ in range(RECEIVED):
                peer.sendto(b"x", (LOOPBACK, udp.local.port))
        sizes: list[int] = []
        while sum(sizes) < RECEIVED:
            udp.take()
            sizes.append(len(udp.ready))
            udp.ready.clear()
        assert sizes[0] < 100  # else as many as a message may have
