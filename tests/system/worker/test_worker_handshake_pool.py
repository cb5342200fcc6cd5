"""Handshakes on other threads: a worker, its other connections and other tenants do not wait for those of one."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from beds.scripted_host import WINDOW, ScriptedHost, Worker, make_tenant
from beds.share import goodbye
from beds.ulp_tls import client_context
from beds.worker import FEATURES, LOOPBACK, connected, server
from test_worker_handshake import AUTHORITY, OWN, TLS, Peer, dial, listening, make_config, take, trusting
from xts_messages.wire.codec import Endpoint, flags
from xts_proxy._native import ffi, lib

__all__ = ["server"]

FLOOD = 200  # half handshakes, each of which takes a signature by this key:
SLOW = AUTHORITY.issue("localhost", kind="rsa")


BUSY_FLOOD = 60


@contextlib.contextmanager
def slow_worker() -> Iterator[Worker]:
    config = make_config(60_000)
    why = ffi.new("char[256]")
    chain, key = SLOW.certificate, SLOW.key
    assert lib.xts_tls_add_identity(
        config, b"slow", chain, len(chain), key, len(key), ffi.NULL, 0, ffi.NULL, 0, why, 256
    ) == 0  # fmt: skip
    with Worker(ulp=config) as made:
        lib.xts_ulp_config_release(config)
        yield made


@pytest.fixture
def worker() -> Iterator[Worker]:
    with slow_worker() as made:
        yield made


def hello() -> bytes:
    """Of a client that does not go on."""
    outgoing = ssl.MemoryBIO()
    client = client_context(None).wrap_bio(ssl.MemoryBIO(), outgoing, False, "localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@contextlib.contextmanager
def flood(port: int, count: int = FLOOD) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        begun = [stack.enter_context(socket.create_connection((LOOPBACK, port))) for _ in range(count)]
        for one in begun:
            one.sendall(hello())
        yield begun


SLOW_PUSH: dict[str, Any] = OWN | {"identity": "slow"}


def begin_handshake(host: ScriptedHost, server: socket.socket) -> tuple[int, int]:
    """A client of TLS connects to a server that says nothing; its numbers."""
    number = host.new_socket()
    answer = host.push(number=number, **TLS)
    assert answer.error == 0
    peer = Endpoint.of(LOOPBACK, server.getsockname()[1])
    id = answer.fields["proxy_id"]
    host.send("XTS_CMD_CONNECT", id=id, xts_socket=number, post_credits=WINDOW, domain=4, peer=peer)
    return number, id


def answered(begun: list[socket.socket]) -> int:
    """How many have got their ServerHello, which is behind the signature."""
    count = 0
    for one in begun:
        with contextlib.suppress(BlockingIOError):
            count += bool(one.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    return count


def test_a_bystander_does_not_wait_for_signatures(worker: Worker, server: socket.socket) -> None:
    """Requests are answered while most of the flood waits."""
    with (
        worker.attach(1, features=FEATURES) as hostile,
        worker.attach(2, features=FEATURES) as quiet,
        connected(quiet.open(), server) as c,
    ):
        _, _, port = listening(hostile.open(), SLOW_PUSH)
        with flood(port) as begun:
            for _ in range(3):
                c.send(b"x" * 64)
                assert c.peer.recv(64) == b"x" * 64
                c.peer.sendall(b"y" * 64)
                assert c.read().payload == b"y" * 64
            assert answered(begun) < FLOOD
        worker.wait(lambda s: s.connections == 1, "the flood is still there")


def test_a_tenant_does_not_wait_for_anothers_handshakes(worker: Worker) -> None:
    one, two = make_tenant("one", 1), make_tenant("two", 2)
    with (
        worker.attach(1, tenant=one, features=FEATURES) as hostile,
        worker.attach(2, tenant=two, features=FEATURES) as quiet,
    ):
        _, _, port = listening(hostile.open(), SLOW_PUSH)
        number, id, own_port = listening(quiet.open(), OWN)
        with flood(port) as begun:
            peer = Peer(dial(own_port), trusting(), is_server=False)
            with take(quiet, number, id) as c:
                assert answered(begun) < FLOOD
                c.close()
            assert peer.join() is None


def test_a_tenant_has_so_many_handshakes_under_way(server: socket.socket) -> None:
    """Of connections of its own; the others' are others'."""
    config = make_config(60_000)
    one, two = make_tenant("one", 1, handshakes=2), make_tenant("two", 2, handshakes=1)
    with Worker(ulp=config, tenant=one) as worker, contextlib.ExitStack() as stack:
        lib.xts_ulp_config_release(config)
        hosts = [
            stack.enter_context(worker.attach(epoch, tenant=tenant, features=FEATURES)).open()
            for epoch, tenant in enumerate((one, two), 1)
        ]
        begun = [begin_handshake(hosts[0], server) for _ in range(2)]
        for _ in begun:
            stack.enter_context(server.accept()[0])
        worker.wait(lambda s: s.ulp_handshakes == worker.used("handshakes") == 2, "they are not counted")
        number, id = begin_handshake(hosts[0], server)
        stack.enter_context(server.accept()[0])
        ack = hosts[0].expect("XTS_REPLY_CONNECT_ACK")
        assert (ack.id, ack.error) == (number, errno.ENOBUFS)
        assert "this tenant has as many handshakes" in hosts[0].ulp_error(id, number).text
        begin_handshake(hosts[1], server)
        stack.enter_context(server.accept()[0])
        worker.wait(lambda s: s.ulp_handshakes == 3, "another tenant's was refused")
        hosts[0].send("XTS_CMD_SEND", id=begun[0][1], flags=flags("CLOSE", "ABORT"))
        worker.wait(lambda s: worker.used("handshakes") == 1, "one that has ended is counted yet")
        for host in hosts:
            goodbye(host)
        worker.wait(lambda s: not s.connections and not worker.used("handshakes"), "some are counted yet")


def test_clients_of_a_listener_share_the_handshakes_of_its_tenant() -> None:
    """Who comes next takes the place of the oldest that is silent, as if the listener had no room."""
    config = make_config(60_000)
    with Worker(ulp=config, handshakes=2) as worker, worker.attach(features=FEATURES) as host:
        lib.xts_ulp_config_release(config)
        number, id, port = listening(host.open(), OWN)
        with socket.create_connection((LOOPBACK, port)) as first, socket.create_connection((LOOPBACK, port)) as second:
            worker.wait(lambda s: s.ulp_handshakes == 2, "they have not begun")
            peer = Peer(dial(port), trusting(), is_server=False)
            with take(host, number, id) as c:
                c.close()
            assert peer.join() is None
            first.settimeout(5)
            with pytest.raises(ConnectionResetError):
                first.recv(1)
            second.setblocking(False)
            with pytest.raises(BlockingIOError):
                second.recv(1)
        worker.wait(lambda s: not s.ulp_handshakes and not worker.used("handshakes"), "some are counted yet")


@pytest.mark.parametrize("how", ["reset", "close"])
def test_what_ends_meanwhile(worker: Worker, how: str) -> None:
    """Connections that are reset, or whose listener goes, while their handshakes are on other threads."""
    with worker.attach(features=FEATURES) as host:
        _, id, port = listening(host.open(), SLOW_PUSH)
        with flood(port) as begun:
            worker.wait(lambda s: s.ulp_handshakes > 0, "no handshake has begun")
            if how == "close":
                host.send("XTS_CMD_SEND", id=id, flags=flags("CLOSE"))
                host.expect("XTS_REPLY_RECV")
            for one in begun if how == "reset" else []:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.close()
            worker.wait(lambda s: s.connections == 0 and s.ulp_handshakes == 0, "something is left")


def test_the_worker_stops_meanwhile() -> None:
    config = make_config(60_000)
    with Worker(ulp=config) as worker:
        lib.xts_ulp_config_release(config)
        with worker.attach(features=FEATURES) as host:
            _, _, port = listening(host.open(), OWN)
            with flood(port, 50):
                worker.wait(lambda s: s.ulp_handshakes > 0, "no handshake has begun")


@pytest.fixture
def busy_core() -> Iterator[None]:
    """Everything that is started here shares a core with a process that never sleeps."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
            try:
                yield
            finally:
                busy.kill()
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("busy_core")
def test_handshakes_get_on_where_the_core_is_never_idle() -> None:
    """Threads in the background get some three thousandths of it, in which this many would take half a minute."""
    with slow_worker() as made, made.attach(features=FEATURES) as host:
        _, _, port = listening(host.open(), SLOW_PUSH)
        with flood(port, BUSY_FLOOD) as begun:
            deadline = time.monotonic() + 15
            while answered(begun) < BUSY_FLOOD:
                assert time.monotonic() < deadline, f"only {answered(begun)} of {BUSY_FLOOD}"
                host.pump(10)


def test_what_a_handshake_took_is_charged(worker: Worker) -> None:
    tenant = make_tenant("one", 1)
    with worker.attach(tenant=tenant, features=FEATURES) as host:
        number, id, port = listening(host.open(), SLOW_PUSH)
        serve(host, number, id, port)
        out = ffi.new("struct xts_tenant_stats *")
        lib.xts_tenant_stats(tenant, out)
        assert out.used[lib.XTS_USE_CPU_NS] > 100_000


def serve(host: ScriptedHost, number: int, id: int, port: int) -> None:
    peer = Peer(dial(port), trusting(), is_server=False)
    with take(host, number, id) as c:
        c.send(b"data")
        assert c.read().payload == b"data"
        c.close()
    assert peer.join() is None
