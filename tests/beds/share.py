"""A bed for tests of shared listeners and parked connections: scripted hosts that speak SHARE."""

from __future__ import annotations

import contextlib
import errno
import itertools
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, flags

from beds.patience import SLOWER
from beds.scripted_host import WINDOW, ScriptedHost, Worker

LOOPBACK = "127.0.0.1"
SHARE = table.FEATURES["SHARE"][0]
SHARE_BOUND = table.FEATURES["SHARE_BOUND"][0]
KEEP_MS = 10_000
QUIET_MS = 100

#: Attaches a host to a worker, with an epoch of its own.
Join = Callable[[Worker], ScriptedHost]

_epochs = itertools.count(100)


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


@pytest.fixture
def other_worker(worker: Worker) -> Iterator[Worker]:
    with Worker(tenant=worker.tenant) as made:
        yield made


@pytest.fixture
def join() -> Iterator[Join]:
    """Attaches hosts that speak SHARE."""
    with contextlib.ExitStack() as stack:
        yield lambda worker: stack.enter_context(worker.attach(new_epoch(), features=SHARE)).open()


def new_epoch() -> int:
    return next(_epochs)


def new_key() -> int:
    return secrets.randbits(64) | 1


@dataclass
class Listener:
    """A member of a shared listener, on one host."""

    host: ScriptedHost
    number: int
    proxy_id: int
    port: int
    serving: dict[int, int] = field(default_factory=dict)  # taken and not answered: XTS socket -> proxy's identifier

    def credit(self, count: int) -> None:
        self.host.send("XTS_CMD_SEND", id=self.proxy_id, post_credits=count)

    def offered(self) -> codec.Frame:
        frame = self.host.expect("XTS_REPLY_NEWCONN")
        assert frame.id == self.number
        return frame

    def take(self, offer: codec.Frame, window: int = WINDOW) -> int:
        """Accepts an offer; the new socket's number."""
        number = self.host.new_socket()
        self.host.send("XTS_CMD_NEWCONN_ACK", id=offer.fields["proxy_id"], xts_socket=number, post_credits=window)
        return number

    def give_back(self, offer: codec.Frame) -> None:
        self.host.send("XTS_CMD_NEWCONN_ACK", id=offer.fields["proxy_id"], error=errno.EAGAIN)

    def close(self) -> None:
        self.host.send("XTS_CMD_SEND", id=self.proxy_id, flags=flags("CLOSE"))
        assert self.host.expect("XTS_REPLY_RECV").flags & flags("CLOSED")

    def quiet(self) -> None:
        with pytest.raises(TimeoutError):
            self.host.receive(QUIET_MS)


def bind(host: ScriptedHost, port: int = 0) -> tuple[int, codec.Frame]:
    number = host.new_socket()
    host.send("XTS_CMD_BIND", xts_socket=number, token=1, domain=4, local=Endpoint.of(LOOPBACK, port))
    return number, host.expect("XTS_REPLY_BIND_ACK")


def listen(host: ScriptedHost, credits: int = 0, port: int = 0) -> Listener:
    number, bound = bind(host, port)
    assert bound.error == 0
    proxy_id = bound.fields["proxy_id"]
    host.send("XTS_CMD_LISTEN", id=proxy_id, xts_socket=number, token=2, post_credits=credits, domain=4, backlog=64)
    assert host.expect("XTS_REPLY_LISTEN_ACK").error == 0
    return Listener(host, number, proxy_id, bound.fields["local"].port)


def share(host: ScriptedHost, key: int, proxy_id: int = 0, number: int = 0, keep_ms: int = KEEP_MS) -> codec.Frame:
    number = number or host.new_socket()
    token = secrets.randbits(32)
    host.send("XTS_CMD_SHARE", id=proxy_id, xts_socket=number, token=token, key=key, keep_ms=keep_ms)
    answer = host.expect("XTS_REPLY_SHARE_ACK")
    assert answer.id == number and answer.fields["token"] == token
    return answer


def shared(host: ScriptedHost, credits: int = 0, keep_ms: int = KEEP_MS) -> tuple[int, Listener]:
    """A new listener under a new key."""
    key, listener = new_key(), listen(host, credits)
    answer = share(host, key, listener.proxy_id, listener.number, keep_ms)
    assert answer.error == 0 and answer.fields["proxy_id"] == listener.proxy_id
    assert answer.fields["local"].port == listener.port
    return key, listener


def joined(host: ScriptedHost, key: int, credits: int = 0) -> Listener:
    answer = share(host, key)
    assert answer.error == 0
    member = Listener(host, answer.id, answer.fields["proxy_id"], answer.fields["local"].port)
    if credits:
        member.credit(credits)
    return member


def client(port: int) -> socket.socket:
    made = socket.create_connection((LOOPBACK, port), 5)
    made.settimeout(5 * SLOWER)
    return made


def port_of(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


def goodbye(host: ScriptedHost, error: int = 0) -> None:
    """What the agent says for a process that has ended."""
    host.raw(
        codec.encode(
            codec.Frame(
                "XTS_LINK_GOODBYE",
                {"epoch": host.epoch},
                error=error,
                destination=host.queue.peer_mac,
                source=host.queue.local_mac,
            )
        )
    )


def refused(port: int, timeout_s: float = 5 * SLOWER) -> bool:
    """Waits until nobody listens there."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            socket.create_connection((LOOPBACK, port), 5).close()
        except ConnectionRefusedError:
            return True
        time.sleep(0.005)
    return False
