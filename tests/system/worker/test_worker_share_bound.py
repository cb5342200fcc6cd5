"""Bound sockets that do not listen yet, shared by several hosts: the worker, against hosts made by hand."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Iterator

import pytest
from beds.scripted_host import WINDOW, ScriptedHost, Worker
from beds.share import (
    KEEP_MS,
    SHARE,
    SHARE_BOUND,
    Join,
    Listener,
    bind,
    client,
    goodbye,
    join,
    joined,
    new_epoch,
    new_key,
    other_worker,
    port_of,
    refused,
    share,
    worker,
)
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint

__all__ = ["join", "other_worker", "worker"]  # fixtures


# --- bound sockets that do not listen yet ------------------------------------------------------------------


@pytest.fixture
def join_bound() -> Iterator[Join]:
    """Attaches hosts that share bound sockets, too."""
    with contextlib.ExitStack() as stack:
        features = SHARE | SHARE_BOUND
        yield lambda worker: stack.enter_context(worker.attach(new_epoch(), features=features)).open()


def shared_bound(host: ScriptedHost, keep_ms: int = KEEP_MS) -> tuple[int, Listener]:
    key, (number, bound) = new_key(), bind(host)
    proxy_id = bound.fields["proxy_id"]
    assert share(host, key, proxy_id, number, keep_ms).error == 0
    return key, Listener(host, number, proxy_id, bound.fields["local"].port)


def listens(member: Listener, credits: int) -> None:
    member.host.send(
        "XTS_CMD_LISTEN",
        id=member.proxy_id,
        xts_socket=member.number,
        token=2,
        post_credits=credits,
        domain=4,
        backlog=64,
    )
    assert member.host.expect("XTS_REPLY_LISTEN_ACK").error == 0


def test_a_bound_socket_is_shared_and_each_member_listens_for_itself(
    worker: Worker, other_worker: Worker, join_bound: Join
) -> None:
    key, parent = shared_bound(join_bound(worker))
    children = [joined(join_bound(worker), key), joined(join_bound(other_worker), key)]
    assert {child.port for child in children} == {parent.port}
    assert refused(parent.port, 0.05)
    for child in children:
        listens(child, 1)
    with client(parent.port), client(parent.port):
        for child in children:
            child.take(child.offered())
        parent.quiet()
    assert worker.stats().listeners == 1 and other_worker.stats().listeners == 1


def test_who_joins_after_the_first_listen_listens(worker: Worker, join_bound: Join) -> None:
    key, parent = shared_bound(join_bound(worker))
    first = joined(join_bound(worker), key)
    listens(first, 0)
    late = joined(join_bound(worker), key, 1)
    with client(parent.port):
        late.take(late.offered())
        late.close()
    first.close()
    with client(parent.port):  # still listening, as in the kernel: the parent has it open
        parent.close()
    assert refused(parent.port)
    worker.wait(lambda s: s.shared_listeners == s.listeners == s.kept_listeners == 0, "something is left")


def test_a_bound_socket_outlives_who_named_it(worker: Worker, join_bound: Join) -> None:
    host = join_bound(worker)
    key, parent = shared_bound(host)
    goodbye(host)
    worker.wait(lambda s: s.kept_listeners == 1, "it is not kept")
    child = joined(join_bound(worker), key)
    listens(child, 1)
    with client(parent.port):
        child.take(child.offered())


def test_a_bound_socket_that_nobody_joined_is_closed_by_the_last(worker: Worker, join_bound: Join) -> None:
    host = join_bound(worker)
    key, parent = shared_bound(host)
    parent.close()
    assert share(host, key).error == errno.ENOENT
    assert bind(host, parent.port)[1].error == 0


def test_only_the_last_member_of_a_bound_socket_connects_it(worker: Worker, join_bound: Join) -> None:
    key, parent = shared_bound(join_bound(worker))
    child = joined(join_bound(worker), key)
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = {"post_credits": WINDOW, "domain": 4, "peer": Endpoint.of("127.0.0.1", port_of(server))}
        child.host.send("XTS_CMD_CONNECT", id=child.proxy_id, xts_socket=child.number, **connect)
        assert child.host.expect("XTS_REPLY_CONNECT_ACK").error == errno.EOPNOTSUPP
        child.close()
        parent.host.send("XTS_CMD_CONNECT", id=parent.proxy_id, xts_socket=parent.number, **connect)
        assert parent.host.expect("XTS_REPLY_CONNECT_ACK").error == 0
        accepted, peer = server.accept()
        with accepted:
            assert peer[1] == parent.port
            assert share(parent.host, key).error == errno.ENOENT
            parent.close()
            assert accepted.recv(1) == b""  # its FIN: no other descriptor keeps the socket open


def test_a_connect_with_protocols_is_refused_as_one_without(worker: Worker) -> None:
    """What is wrong with the protocols spends the socket: it must not be a member of what others may join, then."""
    features = SHARE | SHARE_BOUND | table.FEATURES["ULP"][0]
    with worker.attach(new_epoch(), features=features) as one, worker.attach(new_epoch(), features=features) as two:
        key, parent = shared_bound(one.open())
        child = joined(two.open(), key)
        connect = {"post_credits": WINDOW, "domain": 4, "peer": Endpoint.of("127.0.0.1", parent.port)}

        def connects(member: Listener) -> int:
            """With a push that is cut off."""
            member.host.send("XTS_CMD_CONNECT", b"?", id=member.proxy_id, xts_socket=member.number, **connect)
            error: int = member.host.expect("XTS_REPLY_CONNECT_ACK").error
            return error

        assert connects(child) == errno.EOPNOTSUPP
        joined(two, key).close()  # nothing has become of it
        child.close()
        assert connects(parent) == errno.EINVAL
        assert share(two, key).error == errno.ENOENT
        parent.close()


def test_what_is_not_bound_is_not_shared(worker: Worker, join: Join, join_bound: Join) -> None:
    host = join_bound(worker)
    number = host.new_socket()
    option = {"level": socket.SOL_SOCKET, "option": socket.SO_REUSEADDR}
    host.send("XTS_CMD_SETSOCKOPT", struct.pack("=i", 1), xts_socket=number, token=1, domain=4, **option)
    proxy_id = host.expect("XTS_REPLY_SOCKOPT_ACK").fields["proxy_id"]
    assert share(host, new_key(), proxy_id, number).error == errno.EINVAL
    old = join(worker)  # a host that has not been told of it
    number, bound = bind(old)
    assert share(old, new_key(), bound.fields["proxy_id"], number).error == errno.EINVAL
