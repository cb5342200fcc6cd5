"""What hosts use is charged to their tenant: over all its channels, and to nobody else."""

from __future__ import annotations

import errno
import re
import secrets
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from beds.scripted_host import WINDOW, ScriptedHost, Worker, make_tenant
from beds.share import KEEP_MS, SHARE, client, goodbye, joined, shared
from xts_messages.wire import codec
from xts_proxy._native import ffi, lib
from xts_proxy.tenants.tenants import RESOURCES

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


# --- orphans ------------------------------------------------------------------------------------------------


@dataclass
class Stalled:
    """A connection whose peer has taken nothing yet of what was sent."""

    peer: socket.socket
    sent: bytes


def stalled(host: ScriptedHost, server: socket.socket) -> Stalled:
    """Sends to a peer that does not read until no more credits come: a window waits in the spill buffer."""
    ack = connect(host, server)
    assert ack.error == 0
    peer, sent, held = server.accept()[0], bytearray(), ack.fields["post_credits"]
    while True:
        data = secrets.token_bytes(min(held, 16000))
        if data:
            host.send("XTS_CMD_SEND", data, id=ack.fields["proxy_id"])
            held -= len(data)
            sent += data
            continue
        try:
            held += host.receive(100).fields["post_credits"]
        except TimeoutError:
            return Stalled(peer, bytes(sent))


def received(peer: socket.socket) -> bytes:
    """Everything up to the end of the stream."""
    peer.settimeout(5)
    with peer:
        return b"".join(iter(lambda: peer.recv(65536), b""))


def reattached(worker: Worker, tenant: Any, server: socket.socket, count: int) -> list[Stalled]:
    """A process that fills connections and dies."""
    with worker.attach(tenant=tenant).open() as host:
        made = [stalled(host, server) for _ in range(count)]
        goodbye(host)
        worker.wait(lambda s: s.channels_up == 0, "still up")
    return made


def test_orphans_are_counted_apart_and_the_oldest_gives_way(server: socket.socket) -> None:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    tenant = make_tenant(connections=2, spill_bytes=2 * WINDOW, orphans=3, window_bytes=WINDOW)
    with Worker(tenant=tenant) as worker:
        gone = reattached(worker, tenant, server, 2) + reattached(worker, tenant, server, 2)  # which all limits allow
        worker.wait(lambda s: s.orphans == 3 and s.orphans_cut == 1, "the oldest did not give way")
        assert used(tenant, "orphans") == 3 and used(tenant, "connections") == used(tenant, "spill_bytes") == 0
        assert 0 < used(tenant, "orphan_bytes") <= 3 * WINDOW
        with pytest.raises(ConnectionResetError):
            received(gone[0].peer)
        assert [received(one.peer) == one.sent for one in gone[1:]] == [True] * 3  # what was accepted is delivered
        worker.wait(lambda s: s.connections == 0 and s.orphans == 0, "orphans do not end")
        assert used(tenant, "orphans") == used(tenant, "orphan_bytes") == 0


def test_bytes_of_orphans_are_limited(server: socket.socket) -> None:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    tenant = make_tenant(orphan_bytes=WINDOW)
    with Worker(tenant=tenant) as worker:
        first, second = reattached(worker, tenant, server, 2)
        worker.wait(lambda s: s.orphans == 1 and s.orphans_cut == 1, "more is kept than allowed")
        with pytest.raises(ConnectionResetError):
            received(first.peer)
        assert received(second.peer) == second.sent


def test_orphans_of_one_tenant_leave_those_of_another(server: socket.socket) -> None:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one, two = make_tenant("one", 0, orphans=1), make_tenant("two", 1, orphans=1)
    with Worker(tenant=one) as worker:
        (first,) = reattached(worker, one, server, 1)
        second, third = reattached(worker, two, server, 2)
        assert received(first.peer) == first.sent and received(third.peer) == third.sent
        with pytest.raises(ConnectionResetError):
            received(second.peer)


def test_data_that_a_dead_process_has_not_read_resets_as_the_kernel_does(server: socket.socket) -> None:
    with Worker() as worker, worker.attach().open() as host:
        ack = host.connect(LOOPBACK, server.getsockname()[1], window=4)[1]  # credits for four bytes of it
        assert ack.error == 0
        peer = server.accept()[0]
        peer.sendall(b"nobody reads this")
        assert host.expect("XTS_REPLY_RECV").payload == b"nobo"
        goodbye(host)
        with pytest.raises(ConnectionResetError):
            received(peer)


def test_the_oldest_orphan_gives_way_whatever_worker_has_it(server: socket.socket) -> None:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    tenant = make_tenant(orphans=2)
    with Worker(tenant=tenant) as worker, Worker(tenant=tenant) as other:
        first, second = reattached(worker, tenant, server, 2)
        (third,) = reattached(other, tenant, server, 1)
        other.wait(lambda s: s.orphans == 1, "the youngest was reset")
        worker.wait(lambda s: s.orphans == s.orphans_cut == 1, "the oldest has not given way")
        assert used(tenant, "orphans") == 2
        with pytest.raises(ConnectionResetError):
            received(first.peer)
        assert [received(one.peer) == one.sent for one in (second, third)] == [True] * 2
        for one in (worker, other):
            one.wait(lambda s: s.connections == s.orphans == 0, "orphans do not end")
    assert not any(used(tenant, name) for name in RESOURCES.values() if name != "cpu_ns")


def test_orphans_of_another_worker_give_way_to_new_sockets(server: socket.socket) -> None:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    tenant = make_tenant()
    with (
        pools(descriptors=2 * OF_A_CHANNEL + 3),
        Worker(tenant=tenant) as worker,
        Worker(tenant=tenant) as other,
        ExitStack() as stack,
    ):
        for one in reattached(worker, tenant, server, 3):
            stack.enter_context(one.peer)
        worker.wait(lambda s: s.orphans == 3, "no orphans")
        with other.attach(2) as second:
            assert connects(second.open(), server, 3) == 3
        worker.wait(lambda s: s.orphans_cut == 3 and not s.orphans, "they have not given way")
    assert not any(used(tenant, name) for name in RESOURCES.values() if name != "cpu_ns")


def test_the_time_of_orphans_is_their_tenants(server: socket.socket) -> None:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one, two = make_tenant("one", 0), make_tenant("two", 1)
    with Worker(tenant=two) as worker:
        (orphan,) = reattached(worker, one, server, 1)
        before = used(one, "cpu_ns")
        assert received(orphan.peer) == orphan.sent
        worker.wait(lambda s: s.orphans == 0, "it does not end")
        assert used(one, "cpu_ns") > before


# --- the kernel's share -------------------------------------------------------------------------------------

#: Of a socket: TENANT_SOCKET_BYTES of tenant.h, and what of it is for a buffer.
SOCKET_BYTES, BUFFER_BYTES = 12288, 4096


def size_of(host: ScriptedHost, ack: codec.Frame, option: int, size: int = 0) -> int:
    """What a buffer is in the kernel, when its program has asked for such a size."""
    fields = {"xts_socket": ack.id, "token": 1, "domain": 4, "level": socket.SOL_SOCKET, "option": option}
    answers = []
    for name, value in [("XTS_CMD_SETSOCKOPT", size)] * bool(size) + [("XTS_CMD_GETSOCKOPT", 0)]:
        host.send(name, struct.pack("i", value), id=ack.fields["proxy_id"], **fields)
        while (answer := host.receive()).name != "XTS_REPLY_SOCKOPT_ACK":
            pass
        assert answer.error == 0
        answers.append(answer.payload)
    return int(struct.unpack("i", answers[-1])[0])


@pytest.mark.parametrize("option", [socket.SO_SNDBUF, socket.SO_RCVBUF])
def test_buffers_that_a_program_has_sized_are_charged(server: socket.socket, option: int) -> None:
    tenant = make_tenant()
    with Worker(tenant=tenant) as worker, worker.attach(features=SHARE) as host:
        ack = connect(host.open(), server)
        with server.accept()[0]:
            assert used(tenant, "socket_bytes") == SOCKET_BYTES
            large = size_of(host, ack, option, 100_000)
            assert large >= 200_000
            assert used(tenant, "socket_bytes") == SOCKET_BYTES + large - BUFFER_BYTES
            key = secrets.randbits(64) | 1
            host.send("XTS_CMD_PARK", id=ack.fields["proxy_id"], xts_socket=ack.id, token=2, key=key, keep_ms=KEEP_MS)
            assert host.expect("XTS_REPLY_PARK_ACK").error == 0
            worker.stats()
            assert used(tenant, "socket_bytes") == SOCKET_BYTES + large - BUFFER_BYTES  # it has them yet
            host.send("XTS_CMD_CLAIM", xts_socket=host.new_socket(), token=3, key=key, post_credits=WINDOW, unread=0)
            ack = host.expect("XTS_REPLY_CLAIM_ACK")
            worker.stats()
            assert used(tenant, "socket_bytes") == SOCKET_BYTES + large - BUFFER_BYTES
            small = size_of(host, ack, option, 10_000)
            assert used(tenant, "socket_bytes") == SOCKET_BYTES + small - BUFFER_BYTES
        goodbye(host)
        worker.wait(lambda s: not s.connections, "a connection is left")
        assert used(tenant, "socket_bytes") == 0


def test_buffers_of_what_a_member_gives_back_stay_charged() -> None:
    """They are as large while it waits for another member, and nobody is charged twice."""
    tenant = make_tenant()
    with Worker(tenant=tenant) as worker, ExitStack() as stack:
        hosts = [stack.enter_context(worker.attach(epoch, features=SHARE)).open() for epoch in (1, 2)]
        key, first = shared(hosts[0], credits=1)
        fields = {"xts_socket": first.number, "token": 1, "domain": 4, "level": socket.SOL_SOCKET}
        size = struct.pack("i", 100_000)
        hosts[0].send("XTS_CMD_SETSOCKOPT", size, id=first.proxy_id, option=socket.SO_RCVBUF, **fields)
        assert hosts[0].expect("XTS_REPLY_SOCKOPT_ACK").error == 0
        second = joined(hosts[1], key)
        before = used(tenant, "socket_bytes")
        with client(first.port):
            offer = first.offered()
            charged = used(tenant, "socket_bytes")
            assert charged > before + SOCKET_BYTES + 200_000 - BUFFER_BYTES - 1
            first.give_back(offer)
            worker.wait(lambda s: s.given_back == 1, "it is not given back")
            assert used(tenant, "socket_bytes") == charged
            second.credit(1)
            second.take(second.offered())
            assert used(tenant, "socket_bytes") == charged
        for host in hosts:
            goodbye(host)
        worker.wait(lambda s: not s.connections and not s.listeners, "something is left")
    assert used(tenant, "socket_bytes") == 0


def test_buffers_are_not_larger_than_their_tenants_memory(server: socket.socket) -> None:
    with pools(memory=10 * WINDOW), Worker() as worker, worker.attach() as host, ExitStack() as stack:
        acks = [connect(host.open() if not i else host, server) for i in range(4)]
        for _ in acks:
            stack.enter_context(server.accept()[0])
        sizes = [size_of(host, ack, socket.SO_RCVBUF, 100_000) for ack in acks]
        assert sizes[0] >= 200_000 and max(sizes[2:]) < 100_000  # as with rmem_max: no error


# --- pools --------------------------------------------------------------------------------------------------

#: Descriptors of a channel (CHANNEL_DESCRIPTORS of channel.c).
OF_A_CHANNEL = 8


@contextmanager
def pools(descriptors: int = 0, memory: int = 0) -> Iterator[None]:
    """So much for all tenants of this process."""
    lib.xts_pools_configure([descriptors, memory])
    try:
        yield
    finally:
        lib.xts_pools_configure([0, 0])


def connects(host: ScriptedHost, server: socket.socket, most: int) -> int:
    """How many connections it gets before it is refused one."""
    for count in range(most):
        if (error := connect(host, server).error) != 0:
            assert error == errno.ENOBUFS
            return count
    return most


def test_a_guaranteed_share_is_there_whatever_others_take(server: socket.socket) -> None:
    greedy, modest = make_tenant("greedy", 0), make_tenant("modest", 1, guaranteed={"descriptors": OF_A_CHANNEL + 5})
    with pools(descriptors=2 * OF_A_CHANNEL + 20), Worker(tenant=greedy) as worker, worker.attach(1) as first:
        assert connects(first.open(), server, 100) == 15  # all but what the other is guaranteed
        with worker.attach(2, tenant=modest) as second:
            assert connects(second.open(), server, 100) == 5
            goodbye(first)
            worker.wait(lambda s: s.channels_up == 1, "still up")
            assert connects(second, server, 100) == 15  # the rest goes by need
    assert used(greedy, "descriptors") == used(modest, "descriptors") == 0


def test_windows_come_out_of_the_memory_of_all(server: socket.socket) -> None:
    greedy, modest = make_tenant("greedy", 0), make_tenant("modest", 1, guaranteed={"memory": 2 * WINDOW + 8192})
    with pools(memory=8 * WINDOW), Worker(tenant=greedy) as worker, worker.attach(1) as first:
        assert 4 <= connects(first.open(), server, 100) < 100
        with worker.attach(2, tenant=modest) as second:
            assert connects(second.open(), server, 2) == 2


def test_guarantees_that_change_leave_the_account_right(server: socket.socket) -> None:
    tenants = [make_tenant(f"t{i}", i, guaranteed={"descriptors": OF_A_CHANNEL + 2}) for i in range(2)]
    with pools(descriptors=40), Worker(tenant=tenants[0]) as worker, worker.attach(1) as first:
        assert connects(first.open(), server, 100) == 40 - OF_A_CHANNEL - (OF_A_CHANNEL + 2)
        config = ffi.new("struct xts_tenant_config *", {"name": b"t1", "weight": 1})
        config.limit = [1 << 30] * len(RESOURCES)
        lib.xts_tenant_configure(tenants[1], config)  # guaranteed nothing now
        assert connects(first, server, 100) == OF_A_CHANNEL + 2


def test_orphans_give_way_to_new_sockets_when_descriptors_run_out(server: socket.socket) -> None:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    tenant = make_tenant()
    with pools(descriptors=2 * OF_A_CHANNEL + 3), Worker(tenant=tenant) as worker, ExitStack() as stack:
        for one in reattached(worker, tenant, server, 3):
            stack.enter_context(one.peer)
        worker.wait(lambda s: s.orphans == 3, "no orphans")
        with worker.attach(2) as second:
            assert connects(second.open(), server, 3) == 3
        assert worker.stats().orphans_cut == 3


# --- the log ------------------------------------------------------------------------------------------------


def lines(worker: Worker) -> list[str]:
    line, found = ffi.new("char[]", 512), []
    while lib.xts_worker_log_next(worker.native, line, 512) > 0:
        found.append(ffi.string(line).decode())
    return found


def test_a_tenant_that_floods_the_log_is_cut_and_others_are_not() -> None:
    one, two = make_tenant("one", 0), make_tenant("two", 1)
    with Worker(tenant=one) as worker:
        for epoch in range(1, 200):
            with worker.attach(epoch) as host:
                goodbye(host.open())
        with worker.attach(200, tenant=two) as host:
            host.open()
            found = lines(worker)
    assert any(line.startswith("tenant two: queue 199: open") for line in found)
    ours = [line for line in found if line.startswith("tenant one: ")]
    assert len(ours) < 200
    time.sleep(1)  # a second of its own, whatever is in it
    with Worker(tenant=one) as worker, worker.attach() as host:
        host.open()
        assert any(re.fullmatch(r"tenant one: \d+ lines suppressed", line) for line in lines(worker))


# --- names --------------------------------------------------------------------------------------------------

SO_REUSEPORT = 15


def bound(host: ScriptedHost, address: str, port: int) -> tuple[codec.Frame, int]:
    """A socket with SO_REUSEADDR and SO_REUSEPORT that BIND is tried on: the answer, and its number."""
    number, local = host.new_socket(), codec.Endpoint.of(address, port)
    proxy_id = 0
    for option in (socket.SO_REUSEADDR, SO_REUSEPORT):
        fields = {
            "xts_socket": number,
            "token": 1,
            "domain": local.ip_version,
            "level": socket.SOL_SOCKET,
            "option": option,
        }
        host.send("XTS_CMD_SETSOCKOPT", struct.pack("i", 1), id=proxy_id, **fields)
        answer = host.expect("XTS_REPLY_SOCKOPT_ACK")
        assert answer.error == 0
        proxy_id = answer.fields["proxy_id"]
    host.send("XTS_CMD_BIND", id=proxy_id, xts_socket=number, token=2, domain=local.ip_version, local=local)
    return host.expect("XTS_REPLY_BIND_ACK"), number


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", "::"])
def test_a_port_is_shared_within_a_tenant_only(address: str) -> None:
    one, two = make_tenant("one", 0), make_tenant("two", 1)
    with Worker() as worker, Worker() as elsewhere, ExitStack() as stack:
        owner, friend, stranger = (
            stack.enter_context(place.attach(epoch, tenant=tenant)).open()
            for epoch, (place, tenant) in enumerate([(worker, one), (elsewhere, one), (elsewhere, two)], 1)
        )
        first, _ = bound(owner, "127.0.0.1", 0)
        port = first.fields["local"].port
        assert first.error == 0
        assert bound(stranger, address, port)[0].error == errno.EADDRINUSE
        assert bound(stranger, "127.0.0.2", port)[0].error == 0  # another address of the device
        if address == "127.0.0.1":
            assert bound(friend, address, port)[0].error == 0
            goodbye(friend)
        goodbye(owner)
        worker.wait(lambda s: s.connections == 0, "still bound")
        elsewhere.wait(lambda s: s.connections <= 2, "still bound")
        if address in ("127.0.0.1", "::ffff:127.0.0.1"):
            assert bound(stranger, address, port)[0].error == 0  # nobody's any more


def test_a_listener_that_is_kept_gives_way_to_its_tenant_only() -> None:
    one, two = make_tenant("one", 0), make_tenant("two", 1)
    with Worker() as worker, ExitStack() as stack:
        owner = stack.enter_context(worker.attach(1, tenant=one, features=SHARE)).open()
        answer, number = bound(owner, LOOPBACK, 0)
        local, proxy_id = answer.fields["local"], answer.fields["proxy_id"]
        fields = {"xts_socket": number, "token": 3, "domain": 4, "post_credits": 0, "backlog": 8}
        owner.send("XTS_CMD_LISTEN", id=proxy_id, **fields)
        assert owner.expect("XTS_REPLY_LISTEN_ACK").error == 0
        assert share(owner, secrets.randbits(64) | 1, proxy_id, number).error == 0
        goodbye(owner)
        worker.wait(lambda s: s.kept_listeners == 1, "not kept")
        with socket.create_connection((LOOPBACK, local.port)) as client:
            for address in (LOOPBACK, "0.0.0.0"):
                stranger = stack.enter_context(worker.attach(2, tenant=two)).open()
                assert bound(stranger, address, local.port)[0].error == errno.EADDRINUSE
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):  # it waits yet
                client.recv(1)
            friend = stack.enter_context(worker.attach(3, tenant=one)).open()
            assert bound(friend, LOOPBACK, local.port)[0].error == 0
        assert worker.stats().kept_listeners == 0
