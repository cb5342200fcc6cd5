"""What a bystander on another queue waits for while a host keeps the worker busy, by a clock of the test: each
look at it takes 10 us, and the worker looks at it after everything that costs time."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import time
from collections.abc import Callable

import pytest
from beds.datagrams import FEATURES as DATAGRAM
from beds.datagrams import Udp, udp_peer
from beds.ready import readable
from beds.scripted_host import WINDOW, ScriptedHost, Worker, make_tenant
from beds.share import KEEP_MS, goodbye, share
from beds.worker import FEATURES, PREFIX, Conn, connected, receive_exactly
from beds.worker_clock import LOOK_NS, LOOPBACK, MS, US, Clock, Connect, clock, connect, has_ended, worker
from xts_messages.wire import codec
from xts_messages.wire.codec import Endpoint, flags
from xts_messages.wire.datagram import Datagram
from xts_proxy._native import ffi, lib

__all__ = ["clock", "connect", "worker"]  # fixtures


def ask_options(attacker: ScriptedHost, count: int, number: int, id: int) -> None:
    for token in range(count):
        fields = {"level": socket.IPPROTO_TCP, "option": socket.TCP_INFO, "length": 104}
        attacker.send("XTS_CMD_GETSOCKOPT", bytes(104), xts_socket=number, token=token, domain=4, id=id, **fields)


def bind_sockets(attacker: ScriptedHost, count: int, number: int, id: int) -> None:
    for token in range(count):
        local = Endpoint.of(LOOPBACK, 0)
        attacker.send("XTS_CMD_BIND", xts_socket=attacker.new_socket(), token=token, domain=4, local=local)


def connect_sockets(attacker: ScriptedHost, count: int, number: int, id: int) -> None:
    peer = Endpoint.of(LOOPBACK, 1)  # nobody listens there
    for _ in range(count):
        attacker.send("XTS_CMD_CONNECT", xts_socket=attacker.new_socket(), post_credits=1000, domain=4, peer=peer)


def say_hello(attacker: ScriptedHost, count: int, number: int, id: int) -> None:
    """The same greeting again and again: each is a new epoch if its number differs."""
    for epoch in range(count):
        fields = {"version": 1, "frame_window": 64, "largest_message": 61440, "features": 0, "required": 0}
        message = codec.Frame("XTS_LINK_HELLO", fields | {"epoch": 7000 + epoch, "pid": 1})
        message_bytes = bytearray(codec.encode(message))
        message_bytes[0:6], message_bytes[6:12] = attacker.queue.peer_mac, attacker.queue.local_mac
        attacker.raw(bytes(message_bytes))


@pytest.mark.parametrize("attack", [ask_options, bind_sockets, connect_sockets, say_hello])
def test_a_bystander_waits_for_a_turn_of_the_attacker_not_for_all_it_has_sent(
    worker: Worker, clock: Clock, connect: Connect, attack: Callable[[ScriptedHost, int, int, int], None]
) -> None:
    with worker.attach(1) as attacker, worker.attach(2) as bystander:
        number, id, _ = connect(attacker.open())
        _, bystander_id, peer = connect(bystander.open())
        clock.going.clear()
        bystander.send("XTS_CMD_SEND", b"wakes the worker", id=bystander_id)
        assert clock.waiting.wait(10)
        attack(attacker, 60, number, id)
        begun_ns = clock.now_ns
        bystander.send("XTS_CMD_SEND", b"!", id=bystander_id)
        clock.arrived = lambda: readable(peer) and b"!" in peer.recv(64)
        clock.going.set()
        worker.wait(lambda stats: clock.arrived_ns, "the bystander's byte did not arrive")
        # A round of at most 100 us is under way; the next one is the bystander's, after the attacker's turn.
        assert clock.arrived_ns - begun_ns < 250 * US
        worker.wait(lambda stats: clock.now_ns - begun_ns > 300 * US, "the attacker had no turns")


def test_many_closes_that_linger_do_not_keep_a_bystander_waiting(
    worker: Worker, clock: Clock, connect: Connect
) -> None:
    connect.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with worker.attach(1) as attacker, worker.attach(2) as bystander:
        attacker.open()
        connections = [connect(attacker) for _ in range(30)]
        for _, id, _ in connections:
            for _ in range(2):
                attacker.send("XTS_CMD_SEND", bytes(32768), id=id)
            attacker.send("XTS_CMD_SEND", id=id, flags=flags("CLOSE", "LINGER"))
        _, bystander_id, peer = connect(bystander.open())
        clock.going.clear()
        bystander.send("XTS_CMD_SEND", b"wakes the worker", id=bystander_id)
        assert clock.waiting.wait(10)
        clock.now_ns += 2000 * MS  # all timers are due
        begun_ns = clock.now_ns
        bystander.send("XTS_CMD_SEND", b"!", id=bystander_id)
        clock.arrived = lambda: readable(peer) and b"!" in peer.recv(64)
        clock.going.set()
        worker.wait(lambda stats: clock.arrived_ns, "the bystander's byte did not arrive")
        assert clock.arrived_ns - begun_ns < 250 * US


def ended_before(worker: Worker, clock: Clock, bystander: socket.socket, peers: list[socket.socket]) -> int:
    """Lets the worker go on. How many of the attacker's peers had seen the end when the bystander's byte arrived."""
    ended: list[int] = []

    def arrived() -> bool:
        if has_ended(bystander) and b"!" in bystander.recv(64):
            ended.append(sum(map(has_ended, peers)))
        return bool(ended)

    clock.arrived = arrived
    clock.going.set()
    worker.wait(lambda stats: clock.arrived_ns, "the bystander's byte did not arrive")
    return ended[0]


@pytest.mark.parametrize("how", ["goodbye", "another hello"])
def test_a_host_that_ends_with_many_connections_does_not_keep_a_bystander_waiting(
    worker: Worker, clock: Clock, connect: Connect, how: str
) -> None:
    with worker.attach(1) as attacker, worker.attach(2) as bystander:
        attacker.open()
        peers = [connect(attacker)[2] for _ in range(60)]
        _, bystander_id, peer = connect(bystander.open())
        clock.going.clear()
        bystander.send("XTS_CMD_SEND", b"wakes the worker", id=bystander_id)
        assert clock.waiting.wait(10)
        if how == "goodbye":
            goodbye(attacker)
        else:
            say_hello(attacker, 1, 0, 0)
        bystander.send("XTS_CMD_SEND", b"!", id=bystander_id)
        assert ended_before(worker, clock, peer, peers) < len(peers) // 2  # each is a look at the clock, of 10 us
        worker.wait(lambda stats: stats.connections == 1, "connections of a host that has gone")
        assert all(map(has_ended, peers))


@pytest.mark.parametrize("key", [0, 7], ids=["own", "shared"])
@pytest.mark.parametrize("how", ["close", "goodbye"])
def test_a_listener_that_ends_with_many_in_its_backlog_does_not_keep_a_bystander_waiting(
    worker: Worker, clock: Clock, connect: Connect, how: str, key: int
) -> None:
    """Its address is free for the next message of its host."""
    with (
        worker.attach(1, features=FEATURES) as attacker,
        worker.attach(2) as bystander,
        contextlib.ExitStack() as stack,
    ):
        number = attacker.open().new_socket()
        attacker.send("XTS_CMD_LISTEN", xts_socket=number, token=1, domain=4, backlog=100)
        ack = attacker.expect("XTS_REPLY_LISTEN_ACK")
        id, local = ack.fields["proxy_id"], ack.fields["local"]
        if key:
            assert share(attacker, key, id, number, keep_ms=0).error == 0
        peers = [stack.enter_context(socket.create_connection((LOOPBACK, local.port))) for _ in range(60)]
        _, bystander_id, peer = connect(bystander.open())
        clock.going.clear()
        bystander.send("XTS_CMD_SEND", b"wakes the worker", id=bystander_id)
        assert clock.waiting.wait(10)
        if how == "close":
            attacker.send("XTS_CMD_SEND", id=id, flags=flags("CLOSE"))
            fields = {"xts_socket": number + 1, "token": 2, "domain": 4, "local": Endpoint.of(LOOPBACK, local.port)}
            attacker.send("XTS_CMD_BIND", **fields)
        else:
            goodbye(attacker)
        bystander.send("XTS_CMD_SEND", b"!", id=bystander_id)
        assert ended_before(worker, clock, peer, peers) < len(peers) // 2
        worker.wait(lambda stats: stats.listeners == 0, "the listener is there")
        assert all(map(has_ended, peers))
        if how == "close":
            assert attacker.expect("XTS_REPLY_RECV").flags & flags("CLOSED")
            assert attacker.expect("XTS_REPLY_BIND_ACK").error == 0


def test_a_new_host_on_a_queue_finds_that_all_of_the_old_one_has_ended(worker: Worker, connect: Connect) -> None:
    """The port that it binds to first was a listener's of the host before."""
    with worker.attach(1) as host:
        host.open()
        local = Endpoint.of(LOOPBACK, 0)
        fields = {"token": 1, "domain": 4, "post_credits": 1, "backlog": 8}
        host.send("XTS_CMD_LISTEN", xts_socket=host.new_socket(), **fields)
        local = host.expect("XTS_REPLY_LISTEN_ACK").fields["local"]
        for _ in range(100):
            connect(host)
        second = ScriptedHost(host.queue, host.epoch + 1).open()
        second.send("XTS_CMD_BIND", xts_socket=1, token=2, domain=4, local=Endpoint.of(LOOPBACK, local.port))
        assert second.expect("XTS_REPLY_BIND_ACK").error == 0
        assert worker.stats().connections == 1


class Sampled:
    """What a figure was, each time the worker looked at its clock."""

    def __init__(self, clock: Clock, figure: Callable[[], int]) -> None:
        self.values: set[int] = set()
        clock.arrived = lambda: self.values.add(figure()) is not None


def fill(worker: Worker, c: Conn, send: Callable[[bytes], None], piece: bytes, waiting: int) -> int:
    """Sends until so many bytes wait in the worker; how many TCP has taken."""
    sent = 0
    while worker.channel().spill_bytes < waiting:
        send(piece)
        sent += len(piece)
    return sent - int(worker.channel().spill_bytes)


def test_what_waits_for_a_protocol_is_written_in_turns(worker: Worker, clock: Clock, connect: Connect) -> None:
    connect.listener.settimeout(5)
    with worker.attach(1, features=FEATURES) as host, connected(host.open(), connect.listener, PREFIX) as c:
        taken = fill(worker, c, c.send_pdu, bytes(2000), WINDOW // 2)
        clock.going.clear()
        receive_exactly(c.peer, taken)  # TCP has room for all now
        assert clock.waiting.wait(10)
        come = bytearray()

        def read_what_has_come() -> int:
            # FIONREAD alone would stop at what the peer's receive buffer holds.
            with contextlib.suppress(BlockingIOError):
                come.extend(os.read(c.peer.fileno(), WINDOW))
            return len(come)

        c.peer.setblocking(False)
        written = Sampled(clock, read_what_has_come)
        clock.going.set()
        worker.wait(lambda stats: not stats.spill_bytes, "what waited was not written")
        clock.arrived = lambda: False
        assert len(written.values) > 5  # in one piece there are two: before and after


def test_what_waits_in_a_parked_connection_is_delivered_in_turns(clock: Clock, connect: Connect) -> None:
    connect.listener.settimeout(5)
    window = 16 * WINDOW
    tenant = make_tenant(window_bytes=window, window_bytes_max=window)
    with (
        Worker(tenant=tenant, clock_ns=clock.callback) as worker,
        worker.attach(1, features=FEATURES) as host,
        connected(host.open(), connect.listener, window=window) as c,
    ):
        taken = fill(worker, c, c.send, bytes(32768), window // 2)
        fields = {"xts_socket": c.number, "token": 1, "key": secrets.randbits(64) | 1, "keep_ms": KEEP_MS}
        host.send("XTS_CMD_PARK", id=c.id, **fields)
        while host.receive().name != "XTS_REPLY_PARK_ACK":
            pass
        waits, cpu_ns = worker.used("kept_bytes"), worker.used("cpu_ns")
        clock.going.clear()
        receive_exactly(c.peer, taken)
        assert clock.waiting.wait(10)
        kept = Sampled(clock, lambda: worker.used("kept_bytes"))
        clock.going.set()
        receive_exactly(c.peer, waits)
        worker.wait(lambda stats: not worker.used("kept_bytes"), "what waited was not written")
        clock.arrived = lambda: False
        assert len(kept.values) > 5
        assert worker.used("cpu_ns") > cpu_ns
        goodbye(host)


def test_what_was_kept_for_too_long_ends_some_at_a_time(clock: Clock, connect: Connect) -> None:
    with Worker(clock_ns=clock.callback) as worker, worker.attach(1, features=FEATURES) as host:
        host.open()
        for _ in range(40):
            number, id, _ = connect(host)
            fields = {"xts_socket": number, "token": 1, "key": secrets.randbits(64) | 1, "keep_ms": 1000}
            host.send("XTS_CMD_PARK", id=id, **fields)
            assert host.expect("XTS_REPLY_PARK_ACK").error == 0
        kept = Sampled(clock, lambda: worker.used("kept"))
        clock.now_ns += 2000 * MS
        worker.wait(lambda stats: not worker.used("kept"), "they are kept yet")
        clock.arrived = lambda: False
        goodbye(host)
        assert len(kept.values) >= 40 // 8


def test_a_tenant_is_charged_the_time_of_its_channels(worker: Worker, clock: Clock, connect: Connect) -> None:
    with worker.attach(1) as host:
        number, id, _ = connect(host.open())
        before = worker.used("cpu_ns")
        ask_options(host, 20, number, id)
        worker.wait(lambda stats: worker.used("cpu_ns") - before >= 20 * LOOK_NS, "nothing was charged")


def test_a_worker_that_makes_no_progress_tells_where_it_is(clock: Clock, connect: Connect) -> None:
    clock.made_up = False
    with Worker(clock_ns=clock.callback) as worker, worker.attach(1) as host:
        _, id, _ = connect(host.open())
        pulse, stats = ffi.new("struct xts_worker_pulse *"), ffi.new("struct xts_worker_stats *")
        pulse.phase = lib.XTS_PHASE_REQUEST
        worker.wait(lambda _: lib.xts_worker_pulse(worker.native, pulse) or pulse.phase == 0, "it does not fall asleep")
        clock.going.clear()
        host.send("XTS_CMD_SEND", b"wakes the worker", id=id)
        assert clock.waiting.wait(10)
        assert lib.xts_worker_stats(worker.native, stats) == -errno.ETIMEDOUT  # after two seconds
        lib.xts_worker_pulse(worker.native, pulse)
        assert pulse.busy_ns > 1000 * MS and pulse.phase != lib.XTS_PHASE_ASLEEP
        clock.going.set()
        worker.wait(lambda stats: stats.rounds, "the worker does not go on")
        deadline = time.monotonic() + 5
        while pulse.busy_ns and time.monotonic() < deadline:
            lib.xts_worker_pulse(worker.native, pulse)
        assert (pulse.busy_ns, pulse.phase) == (0, lib.XTS_PHASE_ASLEEP)


def test_a_batch_of_datagrams_has_as_many_as_the_turn_has_time_for(
    worker: Worker, clock: Clock, connect: Connect
) -> None:
    """Where each takes the device's kernel 20 us, 16 at once are more than a turn, which others wait for."""
    batches: list[int] = []

    def took_time() -> bool:
        """What has come since the last look took so long."""
        count = 0
        with contextlib.suppress(BlockingIOError):
            while peer.recv(64):
                count += 1
        clock.now_ns += count * 20 * US
        batches.extend([count] if count else [])
        return False

    features = FEATURES | DATAGRAM
    with udp_peer() as peer, worker.attach(1, features=features) as attacker, worker.attach(2) as bystander:
        peer.setblocking(False)
        _, bystander_id, _ = connect(bystander.open())
        udp = Udp.open(attacker.open())
        bystander.send("XTS_CMD_SEND", b"is active", id=bystander_id)
        clock.arrived = took_time
        udp.send(*[Datagram(b"x", Endpoint.of(*peer.getsockname())) for _ in range(200)])
        worker.wait(lambda stats: stats.datagrams_sent == 200, "they were not sent")
        clock.arrived = lambda: False
        worker.stats()  # it looks at the clock without the peer from now on
    assert sum(batches) == 200
    assert max(batches[1:]) <= 3  # what the first ones cost says it; 50 us are a turn
