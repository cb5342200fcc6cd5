"""Ports that nobody names (dpu_proxy/native/addresses/local_ports.h): tenants have some of their own, which no other
can use up; and the kernel looks in pieces of the range only, for it takes milliseconds of the worker to try all."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.datagrams import FEATURES, Udp, endpoint_of, open_datagram, peer
from beds.scripted_host import WINDOW, ScriptedHost, Worker, make_tenant
from beds.share import LOOPBACK, bind, goodbye
from beds.worker import server
from beds.worker_clock import Clock, Connect, clock, connect, has_ended
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, Frame
from xts_messages.wire.datagram import Datagram
from xts_proxy._native import ffi, lib
from xts_proxy.tenants.tenants import RESOURCES

__all__ = ["clock", "connect", "peer", "server"]  # fixtures

IP_LOCAL_PORT_RANGE = 51
PIECE = 64
MINE = 16
FIRST, LAST = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())


def has_option() -> bool:
    with socket.socket() as sock:
        try:
            sock.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, 0)
        except OSError:
            return False
    return True


pytestmark = [
    pytest.mark.skipif(not has_option(), reason="the kernel has no IP_LOCAL_PORT_RANGE (Linux 6.3)"),
    pytest.mark.skipif(LAST - FIRST < 4 * PIECE, reason="net.ipv4.ip_local_port_range is too small for pieces of it"),
]


@contextlib.contextmanager
def host_of(ports: tuple[int, int]) -> Iterator[ScriptedHost]:
    with Worker(ports=ports) as worker, worker.attach() as host:
        yield host.open()


def parts() -> set[tuple[int, int]]:
    """Of the sockets of this process, which the worker is a thread of: their ranges, where they have one."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError), socket.fromfd(int(entry.name), socket.AF_INET, socket.SOCK_STREAM) as sock:
            both = sock.getsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE)
            if both:
                found.add((both & 0xFFFF, both >> 16 & 0xFFFF))
    return found


@contextlib.contextmanager
def taken(ports: range, peer: tuple[str, int]) -> Iterator[dict[int, socket.socket]]:
    """Connections to the peer from each of these ports."""
    with contextlib.ExitStack() as stack:
        made = {}
        for port in ports:
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("=HH", port, port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no TIME-WAIT afterwards
            with contextlib.suppress(OSError):  # somebody has bound it, and nobody else gets it
                sock.connect(peer)
                made[port] = sock
        yield made


def test_sockets_look_in_different_pieces_of_the_range(server: socket.socket) -> None:
    with host_of((FIRST, LAST)) as host:
        for _ in range(4):
            assert not host.connect(*server.getsockname())[1].error
        assert not bind(host)[1].error
        chosen = parts()
    assert len(chosen) > 1
    assert all(low >= FIRST and high == low + PIECE - 1 <= LAST for low, high in chosen)


@pytest.mark.parametrize(("ports", "chosen"), [((0, 0), set()), ((FIRST, FIRST + 9), {(FIRST, FIRST + 9)})])
def test_a_range_that_is_small_is_one_piece(
    server: socket.socket, ports: tuple[int, int], chosen: set[tuple[int, int]]
) -> None:
    with host_of(ports) as host:
        assert not host.connect(*server.getsockname())[1].error
        assert parts() == chosen


def test_other_ports_are_not_looked_at(server: socket.socket) -> None:
    """Every piece of this range is full, although the kernel's own has room."""
    server.listen(2 * PIECE)
    ports = range(FIRST + PIECE, FIRST + 2 * PIECE + 1)
    with taken(ports, server.getsockname()) as made, host_of((ports[0], ports[-1])) as host:
        assert host.connect(*server.getsockname())[1].error == errno.EADDRNOTAVAIL
        free = next(port for port in ports[PIECE // 2 :] if port in made)  # in all pieces that there are
        made[free].close()
        ack = host.connect(*server.getsockname())[1]
        assert (ack.error, ack.fields["local"].port) == (0, free)


# --- turns -----------------------------------------------------------------------------------------------

FULL = range(FIRST, FIRST + 2 * PIECE)


@contextlib.contextmanager
def two_hosts_without_ports(
    clock: Clock, connect: Connect
) -> Iterator[tuple[Worker, ScriptedHost, ScriptedHost, int, socket.socket]]:
    """The second one has a connection, by its identifier and the peer. Then all ports are taken, the worker stands
    still, and will see together what both send next."""
    connect.listener.listen(4 * PIECE)
    with Worker(clock_ns=clock.callback, ports=(FULL[0], FULL[-1])) as worker:
        with worker.attach(1, features=FEATURES) as searcher, worker.attach(2) as bystander:
            searcher.open()
            _, id, peer = connect(bystander.open())
            with taken(FULL, connect.listener.getsockname()):
                clock.going.clear()
                bystander.send("XTS_CMD_SEND", b"wakes the worker", id=id)
                assert clock.waiting.wait(10)
                yield worker, searcher, bystander, id, peer
                clock.going.set()


def send_connect(host: ScriptedHost, server: socket.socket) -> int:
    number, to = host.new_socket(), Endpoint.of(*server.getsockname())
    host.send("XTS_CMD_CONNECT", xts_socket=number, post_credits=1000, domain=4, peer=to)
    return number


def test_a_bystander_does_not_wait_until_all_pieces_are_looked_through(clock: Clock, connect: Connect) -> None:
    refused: list[int] = []
    with two_hosts_without_ports(clock, connect) as (worker, searcher, bystander, id, peer):

        def arrived() -> bool:
            if has_ended(peer) and b"!" in peer.recv(64):
                refused.append(ports_refused(worker.tenant)[1])
            return bool(refused)

        clock.arrived = arrived
        numbers = [send_connect(searcher, connect.listener) for _ in range(2)]
        bystander.send("XTS_CMD_SEND", b"!", id=id)
        clock.going.set()
        for number in numbers:  # the second one waits for the first one
            answer = searcher.expect("XTS_REPLY_CONNECT_ACK")
            assert (answer.id, refusal(answer)) == (number, "LOCAL_PORTS")
        worker.wait(lambda stats: clock.arrived_ns, "the bystander's byte did not arrive")
        assert refused == [0]
        assert ports_refused(worker.tenant)[1] == 2


def stop_in_the_search(clock: Clock, worker: Worker, searcher: ScriptedHost, server: socket.socket) -> None:
    """The worker stands still in the middle of the search of a CONNECT."""

    def stop() -> bool:
        if clock.going.is_set() and worker.used("connections") == 2:  # the bystander's, and the one that searches
            clock.arrived = lambda: False
            clock.going.clear()
        return False

    clock.arrived = stop
    send_connect(searcher, server)
    clock.waiting.clear()
    clock.going.set()
    assert clock.waiting.wait(10)
    assert ports_refused(worker.tenant)[1] == 0


def test_a_link_that_ends_and_begins_again_while_a_connect_looks_for_a_port(clock: Clock, connect: Connect) -> None:
    """The search comes to its end first, as nothing is received meanwhile. The next process knows nothing of it."""
    with two_hosts_without_ports(clock, connect) as (worker, searcher, *_):
        stop_in_the_search(clock, worker, searcher, connect.listener)
        goodbye(searcher)
        successor = ScriptedHost(searcher.queue, searcher.epoch + 1, searcher.changes, next_socket=100)
        clock.going.set()
        successor.open()
        assert worker.stats().goodbyes == 1
        assert ports_refused(worker.tenant)[1] == 1
        number = send_connect(successor, connect.listener)
        answer = successor.expect("XTS_REPLY_CONNECT_ACK")
        assert (answer.id, refusal(answer)) == (number, "LOCAL_PORTS")
        assert ports_refused(worker.tenant)[1] == 2


def test_a_channel_may_go_while_a_connect_looks_for_a_port(clock: Clock, connect: Connect) -> None:
    with two_hosts_without_ports(clock, connect) as (worker, searcher, bystander, id, peer):
        stop_in_the_search(clock, worker, searcher, connect.listener)
        going = threading.Thread(target=lib.xts_worker_remove_channel, args=(worker.native, 0))
        going.start()
        clock.going.set()
        going.join()
        worker.wait(lambda stats: stats.connections == 1, "the socket that searched is still there")
        bystander.send("XTS_CMD_SEND", b"!", id=id)
        peer.settimeout(10)
        while b"!" not in peer.recv(64):
            pass


# --- tenants ---------------------------------------------------------------------------------------------

OF_FIRST = range(FIRST, FIRST + MINE)
OF_SECOND = range(FIRST + MINE, FIRST + 2 * MINE)
COMMON = range(FIRST + 2 * MINE, FIRST + 3 * MINE)


def first_and_last(ports: range) -> tuple[int, int]:
    return ports[0], ports[-1]


def refusal(answer: Frame) -> str:
    """Its name; the errno fits."""
    name, (_, error, _) = next(row for row in table.REFUSALS.items() if row[1][0] == answer.refusal)
    assert answer.error == error
    return name


@contextlib.contextmanager
def two_tenants() -> Iterator[tuple[Worker, ScriptedHost, ScriptedHost]]:
    tenants = [make_tenant(f"t{i}", i, ports=first_and_last(ports)) for i, ports in enumerate((OF_FIRST, OF_SECOND))]
    with Worker(tenant=tenants[0], ports=first_and_last(COMMON)) as worker:
        with worker.attach(1, features=FEATURES) as first:
            with worker.attach(2, tenant=tenants[1], features=FEATURES) as second:
                yield worker, first.open(), second.open()


def connect_until_refused(host: ScriptedHost, server: socket.socket) -> tuple[list[int], Frame]:
    """The ports it got; the refusal."""
    ports: list[int] = []
    while not (answer := host.connect(*server.getsockname())[1]).error:
        ports.append(answer.fields["local"].port)
        assert len(ports) <= 3 * MINE
    return ports, answer


def ports_refused(tenant: object) -> tuple[int, int]:
    """Of its own; how often none was left."""
    out = ffi.new("struct xts_tenant_stats *")
    lib.xts_tenant_stats(tenant, out)
    return int(out.ports_guaranteed), int(out.ports_refused)


def test_a_tenant_that_uses_up_ports_leaves_others_theirs(server: socket.socket) -> None:
    server.listen(4 * MINE)
    with two_tenants() as (worker, first, second):
        got, refused = connect_until_refused(first, server)
        assert set(got) <= {*OF_FIRST, *COMMON} and set(got) & set(COMMON)
        assert refusal(refused) == "LOCAL_PORTS"
        assert ports_refused(worker.tenant) == (MINE, 1)
        got, refused = connect_until_refused(second, server)
        assert len(got) > 1 and set(got) <= set(OF_SECOND)
        assert refusal(refused) == "LOCAL_PORTS"


def test_what_nobody_has_goes_to_who_needs_it(server: socket.socket) -> None:
    server.listen(4 * MINE)
    with two_tenants() as (_, first, second):
        port = second.connect(*server.getsockname())[1].fields["local"].port
        assert port in OF_SECOND
        ports, _ = connect_until_refused(first, server)
        assert set(ports[: MINE // 2]) <= set(OF_FIRST)  # its own before those of all
        assert len(set(ports) & set(COMMON)) > MINE // 2


def test_a_port_that_is_named_may_be_in_anothers_part(server: socket.socket) -> None:
    with two_tenants() as (_, first, _):
        for port in OF_SECOND:
            number, bound = bind(first, port)
            if not bound.error:  # else somebody has it who is no part of this
                break
        answer = first.connect(*server.getsockname(), id=bound.fields["proxy_id"], number=number)[1]
        assert (answer.error, answer.fields["local"].port) == (0, port)


@contextlib.contextmanager
def kernel_has(ports: range, kind: socket.SocketKind) -> Iterator[None]:
    """Somebody of the machine is bound to all of them."""
    with contextlib.ExitStack() as stack:
        for port in ports:
            sock = stack.enter_context(socket.socket(socket.AF_INET, kind))
            with contextlib.suppress(OSError):
                sock.bind(("", port))
        yield


def test_a_port_to_bind_to_is_of_the_tenant_or_of_all(server: socket.socket) -> None:
    with two_tenants() as (worker, first, second), kernel_has(OF_FIRST, socket.SOCK_STREAM):
        assert bind(first)[1].fields["local"].port in COMMON
        with kernel_has(COMMON, socket.SOCK_STREAM):
            assert refusal(bind(first)[1]) == "BIND_PORTS"
            assert ports_refused(worker.tenant) == (MINE, 1)
            assert bind(second)[1].fields["local"].port in OF_SECOND


def test_a_listener_that_was_not_bound_has_a_port_of_its_tenant() -> None:
    with two_tenants() as (_, _, second):
        second.send("XTS_CMD_LISTEN", xts_socket=second.new_socket(), token=1, post_credits=4, domain=4, backlog=4)
        assert second.expect("XTS_REPLY_LISTEN_ACK").fields["local"].port in OF_SECOND


def test_the_ports_of_datagram_sockets_are_divided_too(peer: socket.socket) -> None:
    to = endpoint_of(peer)
    with two_tenants() as (worker, first, second), kernel_has(COMMON, socket.SOCK_DGRAM):
        assert Udp.open(second, peer=to).local.port in OF_SECOND
        assert Udp.open(second, local=Endpoint.of(LOOPBACK, 0)).local.port in OF_SECOND
        sender = Udp.open(second)
        sender.send(Datagram(b"from a port of its own", to))
        assert peer.recvfrom(100)[1][1] in OF_SECOND
        with kernel_has(OF_FIRST, socket.SOCK_DGRAM):
            assert open_datagram(first, peer=to)[1].error == errno.EAGAIN  # as on the kernel
            assert refusal(open_datagram(first, local=Endpoint.of(LOOPBACK, 0))[1]) == "BIND_PORTS"
            sender = Udp.open(first)
            sender.send(Datagram(b"from no port", to))
            while not sender.errors:
                sender.take()
            assert sender.errors == [errno.EAGAIN]
            assert ports_refused(worker.tenant) == (MINE, 3)
        sender.send(Datagram(b"from a port that has come free", to))
        assert peer.recvfrom(100)[1][1] in OF_FIRST


def test_parts_may_change() -> None:
    tenant = make_tenant(ports=first_and_last(OF_FIRST))
    config = ffi.new("struct xts_tenant_config *", {"name": b"default", "weight": 1})
    config.limit = [1 << 30] * len(RESOURCES)
    config.window_bytes = config.window_bytes_max = WINDOW
    with Worker(tenant=tenant, ports=first_and_last(COMMON)) as worker, worker.attach() as host:
        assert bind(host.open())[1].fields["local"].port in OF_FIRST
        config.port_first, config.port_last = first_and_last(OF_SECOND)
        lib.xts_tenant_configure(tenant, config)
        assert bind(host)[1].fields["local"].port in OF_SECOND
        config.port_first = config.port_last = 0
        lib.xts_tenant_configure(tenant, config)
        assert bind(host)[1].fields["local"].port in COMMON


def test_a_socket_that_is_bound_and_has_no_port_yet_is_in_nobodys_way(server: socket.socket) -> None:
    """IP_BIND_ADDRESS_NO_PORT: its port is picked when it connects. Port 0 was its tenant's meanwhile, and no other
    could bind to any that the kernel picks."""
    with two_tenants() as (_, first, second):
        for host in (first, second):
            number = host.new_socket()
            fields = {"level": socket.IPPROTO_IP, "option": 24, "domain": 4}
            host.send("XTS_CMD_SETSOCKOPT", struct.pack("=i", 1), xts_socket=number, token=1, **fields)
            made = host.expect("XTS_REPLY_SOCKOPT_ACK")
            assert made.error == 0
            host.send(
                "XTS_CMD_BIND", id=made.fields["proxy_id"], xts_socket=number, token=2, domain=4,
                local=Endpoint.of(LOOPBACK, 0),
            )  # fmt: skip
            bound = host.expect("XTS_REPLY_BIND_ACK")
            assert (bound.error, bound.fields["local"].port) == (0, 0)
            answer = host.connect(*server.getsockname(), id=made.fields["proxy_id"], number=number)[1]
            assert answer.fields["local"].port in (OF_FIRST if host is first else OF_SECOND)
