"""What hosts use is charged to their tenant: over all its channels, and to nobody else."""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from scripted_host import WINDOW, ScriptedHost, Worker, make_tenant
from share_bed import KEEP_MS, SHARE
from xts_messages import codec
from xts_proxy._native import ffi, lib
from xts_proxy.tenants import RESOURCES

LOOPBACK = "127.0.0.1"


def used(tenant: Any, resource: str) -> int:
    """What a tenant uses of a resource."""
    out = ffi.new("struct xts_tenant_stats *")
    lib.xts_tenant_stats(tenant, out)
    number = next(number for number, name in RESOURCES.items() if name == resource)
    return int(out.used[number])


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as made:
        made.settimeout(5)
        yield made


def connect(host: ScriptedHost, server: socket.socket) -> codec.Frame:
    return host.connect(LOOPBACK, server.getsockname()[1])[1]


def test_channels_of_a_tenant_share_its_limits_and_others_have_their_own(server: socket.socket) -> None:
    one, two = make_tenant("one", 0, connections=2), make_tenant("two", 1, connections=2)
    with Worker() as worker, Worker() as other, ExitStack() as stack:
        hosts = [
            stack.enter_context(place.attach(epoch, tenant=tenant)).open()
            for epoch, (place, tenant) in enumerate([(worker, one), (other, one), (worker, two)], 1)
        ]
        assert [connect(host, server).error for host in (hosts[0], hosts[1])] == [0, 0]
        assert [connect(host, server).error for host in (hosts[0], hosts[1])] == [errno.ENOBUFS] * 2
        assert connect(hosts[2], server).error == 0
        assert used(one, "connections") == 2 and used(two, "connections") == 1
        assert used(one, "spill_bytes") == 2 * WINDOW
    assert not any(used(tenant, name) for tenant in (one, two) for name in RESOURCES.values() if name != "cpu_ns")


def test_listeners_are_limited_over_channels(server: socket.socket) -> None:
    tenant = make_tenant(listeners=1)
    with Worker() as worker, worker.attach(1, tenant=tenant) as first, worker.attach(2, tenant=tenant) as second:
        answers = []
        for host in (first.open(), second.open()):
            host.send("XTS_CMD_LISTEN", xts_socket=host.new_socket(), token=1, domain=4, post_credits=8, backlog=8)
            answers.append(host.expect("XTS_REPLY_LISTEN_ACK").error)
        assert answers == [0, errno.ENOBUFS]
        assert (
            used(tenant, "listeners") == 1 and used(tenant, "connections") == 1
        )  # the one that was refused stays a socket


def listen(host: ScriptedHost) -> codec.Frame:
    number = host.new_socket()
    host.send("XTS_CMD_LISTEN", xts_socket=number, token=1, domain=4, post_credits=8, backlog=8)
    return host.expect("XTS_REPLY_LISTEN_ACK")


def share(host: ScriptedHost, key: int, id: int = 0, number: int = 0) -> codec.Frame:
    number = number or host.new_socket()
    host.send("XTS_CMD_SHARE", id=id, xts_socket=number, token=2, key=key, keep_ms=KEEP_MS)
    return host.expect("XTS_REPLY_SHARE_ACK")


def test_keys_are_names_within_a_tenant_only() -> None:
    one, two = make_tenant("one", 0), make_tenant("two", 1)
    key = secrets.randbits(64) | 1
    with Worker() as worker, ExitStack() as stack:
        owner, friend, stranger = (
            stack.enter_context(worker.attach(epoch, tenant=tenant, features=SHARE)).open()
            for epoch, tenant in enumerate((one, one, two), 1)
        )
        listening = listen(owner)
        assert share(owner, key, listening.fields["proxy_id"], listening.id).error == 0
        assert share(stranger, key).error == errno.ENOENT
        assert share(friend, key).error == 0
        assert used(one, "names") == 1 and used(two, "names") == 0


def test_names_of_one_tenant_leave_others_theirs() -> None:
    one, two = make_tenant("one", 0, listeners=2), make_tenant("two", 1, listeners=2)
    with Worker() as worker, ExitStack() as stack:
        results = []
        for epoch, tenant in enumerate((one, two), 1):
            host = stack.enter_context(worker.attach(epoch, tenant=tenant, features=SHARE)).open()
            for _ in range(2):
                listening = listen(host)
                ack = share(host, secrets.randbits(64) | 1, listening.fields["proxy_id"], listening.id)
                results.append(ack.error)
        assert results == [0] * 4
