"""A bed for tests of what a bystander on another queue waits for: a worker whose clock is the test's. Each look at it
takes 10 us, and the worker looks at it after everything that costs time."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from xts_proxy._native import ffi

from beds.ready import readable
from beds.scripted_host import ScriptedHost, Worker

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


def has_ended(peer: socket.socket) -> bool:
    return readable(peer)
