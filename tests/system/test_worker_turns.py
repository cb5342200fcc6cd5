"""What a bystander on another queue waits for while a host keeps the worker busy, by a clock of the test: each
look at it takes 10 us, and the worker looks at it after everything that costs time."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from scripted_host import ScriptedHost, Worker
from xts_messages import codec
from xts_messages.codec import Endpoint, flags
from xts_proxy._native import ffi, lib

LOOPBACK = "127.0.0.1"
US, MS = 1000, 1_000_000
LOOK_NS = 10 * US


class Clock:
    """The worker's clock. Stopped, it keeps the worker waiting; going again, it tells when `arrived` became true."""

    def __init__(self, *, made_up: bool = True) -> None:
        self.made_up = made_up
        self.now_ns = 1000 * MS
        self.going = threading.Event()
        self.waiting = threading.Event()
        self.looks_left = 1  # by who wakes, for when that was
        self.going.set()
        self.arrived: Callable[[], bool] = lambda: False
        self.arrived_ns = 0
        self.callback = ffi.callback("uint64_t(void)", self._look)

    def _look(self) -> int:
        if not self.going.is_set() and self.looks_left:
            self.looks_left -= 1
        elif not self.going.is_set():
            self.waiting.set()
            self.going.wait(10)
        self.now_ns = self.now_ns + LOOK_NS if self.made_up else time.monotonic_ns()
        if not self.arrived_ns and self.arrived():
            self.arrived_ns = self.now_ns
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def worker(clock: Clock) -> Iterator[Worker]:
    with Worker(clock_ns=clock.callback) as made:
        yield made


class Connect:
    """Connects hosts to a server; the peers are closed at the end."""

    def __init__(self, listener: socket.socket, stack: contextlib.ExitStack) -> None:
        self.listener, self.stack = listener, stack

    def __call__(self, host: ScriptedHost) -> tuple[int, int, socket.socket]:
        number, ack = host.connect(LOOPBACK, self.listener.getsockname()[1])
        peer, _ = self.listener.accept()
        return number, ack.fields["proxy_id"], self.stack.enter_context(peer)


@pytest.fixture
def connect() -> Iterator[Connect]:
    with contextlib.ExitStack() as stack:
        yield Connect(stack.enter_context(socket.create_server((LOOPBACK, 0), backlog=64)), stack)


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
        clock.arrived = lambda: bool(select.select([peer], [], [], 0)[0]) and b"!" in peer.recv(64)
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
        clock.arrived = lambda: bool(select.select([peer], [], [], 0)[0]) and b"!" in peer.recv(64)
        clock.going.set()
        worker.wait(lambda stats: clock.arrived_ns, "the bystander's byte did not arrive")
        assert clock.arrived_ns - begun_ns < 250 * US


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
