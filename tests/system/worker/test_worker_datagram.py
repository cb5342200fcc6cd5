"""Datagram sockets in the worker: what a host that keeps to the protocol gets, over frames of each size."""

from __future__ import annotations

import errno
import random
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from beds.datagrams import FEATURES, LOOPBACK, NOBODY, WINDOW, Udp, endpoint_of, open_datagram, peer, udp_peer
from beds.scripted_host import ScriptedHost, Worker
from beds.worker import wait_for, worker
from xts_messages._native import ffi, lib
from xts_messages.wire import datagram
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint
from xts_messages.wire.datagram import Datagram, item
from xts_proxy._native import ffi as proxy_ffi
from xts_proxy._native import lib as proxy_lib

__all__ = ["peer", "worker"]

UDP_SEGMENT, UDP_GRO = 103, 104
CONTROL_MOST = 96  # DATAGRAM_CONTROL_MOST
SIZES = (0, 1, 512, 3800, 3840, 9000, 61_440, 65_507)


@pytest.fixture(params=[table.FRAME_BYTES_MAX, table.FRAME_BYTES_SINGLE], ids=["large frames", "small frames"])
def host(worker: Worker, request: pytest.FixtureRequest) -> Iterator[ScriptedHost]:
    with worker.attach(features=FEATURES, largest_message=request.param) as made:
        yield made.open()


def loopback6() -> bool:
    try:
        with udp_peer("::1"):
            return True
    except OSError:
        return False


def test_echo_by_address_and_when_connected(host: ScriptedHost, peer: socket.socket) -> None:
    udp = Udp.open(host)
    udp.send(Datagram(b"hello", endpoint_of(peer)))
    data, source = peer.recvfrom(100)
    assert data == b"hello"
    peer.sendto(b"world", source)
    answer = udp.receive()
    assert (answer.data, answer.endpoint) == (b"world", endpoint_of(peer))
    ack = udp.connect(endpoint_of(peer))
    assert ack.error == 0 and ack.fields["peer"] == endpoint_of(peer) and ack.fields["local"].port == source[1]
    udp.send(Datagram(b"connected"))
    assert peer.recv(100) == b"connected"
    assert udp.connect(NOBODY).error == 0
    udp.send(Datagram(b"nowhere"))
    assert udp.error() == errno.EDESTADDRREQ
    udp.close()


@pytest.mark.parametrize("size", SIZES)
def test_every_size_both_ways(host: ScriptedHost, peer: socket.socket, size: int) -> None:
    data = random.Random(size).randbytes(size)
    udp = Udp.open(host, peer=endpoint_of(peer))
    assert udp.peer == endpoint_of(peer)
    udp.send(Datagram(data))
    got, source = peer.recvfrom(1 << 17)
    assert got == data
    peer.sendto(data, source)
    answer = udp.receive()
    assert answer.data == data and answer.endpoint == endpoint_of(peer)
    udp.settle()
    wait_for(lambda: udp.held == WINDOW or bool(udp.host.pump(1)) or absorb(udp), "credits of what was sent are kept")


def absorb(udp: Udp) -> bool:
    """Takes credits that have come; true when all have."""
    while udp.host.backlog:
        udp.take()
    return udp.held > WINDOW - WINDOW // 4 - 1


def test_many_small_ones_travel_in_one_message(host: ScriptedHost, worker: Worker, peer: socket.socket) -> None:
    udp = Udp.open(host, window=table.DATAGRAM_WINDOW_MIN, peer=endpoint_of(peer))
    mine = [Datagram(b"%04d" % n) for n in range(100)]
    for at in range(0, 100, 50):
        udp.send(*mine[at : at + 50])
    source = None
    for each in mine:
        data, source = peer.recvfrom(100)
        assert data == each.data
    assert source
    # With few credits left most of them wait in the kernel: so the proxy then finds them all at once.
    peer.sendto(bytes(65_000), source)
    assert len(udp.receive(credit=False).data) == 65_000
    before = udp.messages
    for each in mine:
        peer.sendto(each.data, source)
    while udp.granted > 2 * table.DATAGRAM_CREDITS + CONTROL_MOST + 4:
        udp.take()
    assert udp.messages - before <= 20
    before = udp.messages
    assert [udp.receive().data for _ in mine] == [each.data for each in mine]
    assert udp.messages - before <= 10
    stats = worker.stats()
    assert stats.datagrams_sent == 100 and stats.datagrams_received == 101
    assert stats.datagram_sockets == 1 and stats.connections == 0


def test_credits_bound_what_comes_exactly_and_drops_are_counted(host: ScriptedHost, peer: socket.socket) -> None:
    udp = Udp.open(host, peer=endpoint_of(peer), receive_bytes=16_384)
    udp.send(Datagram(b"here I am"))
    _, source = peer.recvfrom(100)
    size, cost = 1000, 1000 + table.DATAGRAM_CREDITS
    while udp.granted >= cost + CONTROL_MOST:  # the proxy leaves room for control data
        peer.sendto(bytes(size), source)
        assert len(udp.receive(credit=False).data) == size
    for number in range(100):
        peer.sendto(number.to_bytes(2, "big") * 500, source)
    with pytest.raises(TimeoutError):
        udp.take(100)
    assert udp.dropped == 0  # nobody has said so yet
    udp.give()
    arrived = [udp.receive().data[:2]]
    with pytest.raises(TimeoutError):
        while True:
            arrived.append(udp.receive(100).data[:2])
    assert arrived == [number.to_bytes(2, "big") for number in range(len(arrived))], "not the newest were dropped"
    peer.sendto(b"last", source)
    assert udp.receive().data == b"last"
    assert 0 < len(arrived) < 100 and udp.dropped == 100 - len(arrived)


def test_icmp_is_the_pending_error(host: ScriptedHost, worker: Worker) -> None:
    with udp_peer() as gone:
        nobody = endpoint_of(gone)
    udp = Udp.open(host, peer=nobody)
    udp.send(Datagram(b"anybody?"))
    assert udp.error() == errno.ECONNREFUSED
    udp.send(Datagram(b"anybody?"))
    assert udp.error() == errno.ECONNREFUSED
    assert worker.stats().datagrams_refused == 0  # they were sent


def test_what_the_kernel_refuses_is_the_pending_error(host: ScriptedHost, worker: Worker, peer: socket.socket) -> None:
    udp = Udp.open(host, peer=endpoint_of(peer))
    udp.send(Datagram(bytes(65_508)), part=3000)
    assert udp.error() == errno.EMSGSIZE
    udp.send(Datagram(b"to IPv6", Endpoint.of("::1", 9)))
    assert udp.error() == errno.EAFNOSUPPORT
    udp.send(Datagram(b"strange", controls=((77, b"abc"),)))
    assert udp.error() == errno.EINVAL
    udp.send(Datagram(b"fine"))
    assert peer.recv(100) == b"fine"
    assert worker.stats().datagrams_refused == 3


def test_segments_of_a_train(host: ScriptedHost, peer: socket.socket) -> None:
    udp = Udp.open(host, peer=endpoint_of(peer))
    udp.send(Datagram(b"a" * 1000 + b"b" * 1000 + b"c" * 10, segment_bytes=1000))
    assert [peer.recv(2000) for _ in range(3)] == [b"a" * 1000, b"b" * 1000, b"c" * 10]


def test_gro_brings_a_train(host: ScriptedHost, peer: socket.socket) -> None:
    udp = Udp.open(host, peer=endpoint_of(peer))
    assert udp.set(socket.IPPROTO_UDP, UDP_GRO, 1) == 0
    udp.send(Datagram(b"here I am"))
    _, source = peer.recvfrom(100)
    peer.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 500)
    peer.sendto(b"".join(bytes([n]) * 500 for n in range(8)), source)
    got = udp.receive()
    pieces = [got]
    while sum(len(each.data) for each in pieces) < 4000:
        pieces.append(udp.receive())
    assert b"".join(each.data for each in pieces) == b"".join(bytes([n]) * 500 for n in range(8))
    assert len(pieces) == 8 or got.segment_bytes == 500


def test_control_data_both_ways(host: ScriptedHost, peer: socket.socket) -> None:
    udp = Udp.open(host, local=Endpoint.of(LOOPBACK, 0))
    for option in (8, 12, 13):  # IP_PKTINFO, IP_RECVTTL, IP_RECVTOS
        assert udp.set(socket.IPPROTO_IP, option, 1) == 0
    assert udp.set(socket.SOL_SOCKET, 35, 1) == 0  # SO_TIMESTAMPNS
    peer.setsockopt(socket.IPPROTO_IP, 12, 1)
    peer.setsockopt(socket.IPPROTO_IP, 13, 1)
    controls = (item("HOP_LIMIT", 9), item("TRAFFIC_CLASS", 0x20), item("PKTINFO", Endpoint.of(LOOPBACK, 0)))
    udp.send(Datagram(b"marked", endpoint_of(peer), controls=controls))
    data, said, _, source = peer.recvmsg(100, 200)
    values = {kind: int.from_bytes(value[:4], "little") for _, kind, value in said}
    assert (data, values[socket.IP_TTL], values[socket.IP_TOS]) == (b"marked", 9, 0x20)
    peer.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 7)
    peer.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)
    peer.sendto(b"back", source)
    back = udp.receive()
    assert back.control("HOP_LIMIT") == (7).to_bytes(4, "big")
    assert back.control("TRAFFIC_CLASS") == (0x10).to_bytes(4, "big")
    stamp, info = back.control("TIMESTAMP_NS"), back.control("PKTINFO")
    assert stamp and int.from_bytes(stamp, "big") > 10**18
    assert info and info[8:12] == socket.inet_aton(LOOPBACK) and int.from_bytes(info[4:8], "big") > 0


@pytest.mark.skipif(not loopback6(), reason="no IPv6 on loopback")
def test_ipv6_and_ipv4_on_one_socket(host: ScriptedHost, peer: socket.socket) -> None:
    with udp_peer("::1") as peer6:
        udp = Udp.open(host, domain=6)
        udp.send(Datagram(b"six", endpoint_of(peer6)))
        assert peer6.recv(100) == b"six"
        mapped = Endpoint.of(f"::ffff:{LOOPBACK}", endpoint_of(peer).port)
        udp.send(Datagram(b"mapped", mapped))
        data, source = peer.recvfrom(100)
        assert data == b"mapped"
        peer.sendto(b"back", source)
        assert udp.receive().endpoint.address == mapped.address
        for option in (49, 51, 66):  # IPV6_RECVPKTINFO, IPV6_RECVHOPLIMIT, IPV6_RECVTCLASS
            assert udp.set(socket.IPPROTO_IPV6, option, 1) == 0
        controls = (item("HOP_LIMIT", 5), item("TRAFFIC_CLASS", 8), item("PKTINFO", Endpoint.of("::1", 0)))
        udp.send(Datagram(b"marked", endpoint_of(peer6), controls=controls))
        data, source = peer6.recvfrom(100)
        peer6.sendto(b"back", source)
        back = udp.receive()
        assert {kind for kind, _ in back.controls} == {1, 2, 3}


def test_v6only_is_set_before_bind(host: ScriptedHost) -> None:
    if not loopback6():
        pytest.skip("no IPv6 on loopback")
    udp = Udp.open(host, domain=6)
    assert udp.set(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1) == 0
    ack = udp.bind(Endpoint.of("::1", 0))
    assert ack.error == 0 and ack.fields["local"].port
    assert udp.bind(Endpoint.of("::1", 0)).error == errno.EINVAL


def test_options(host: ScriptedHost) -> None:
    udp = Udp.open(host)
    assert udp.set(socket.SOL_SOCKET, socket.SO_BROADCAST, 1) == 0
    assert udp.option(socket.SOL_SOCKET, socket.SO_BROADCAST) == (0, 1)
    assert udp.set(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536) == 0
    assert udp.set(socket.IPPROTO_IP, 10, 2) == 0  # IP_MTU_DISCOVER
    assert udp.set(socket.IPPROTO_UDP, UDP_SEGMENT, 1200) == 0
    assert udp.set(socket.IPPROTO_UDP, 100, 1) == errno.EPERM  # UDP_ENCAP
    assert udp.set(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) in (errno.ENOPROTOOPT, errno.EOPNOTSUPP)
    assert udp.held == WINDOW


def test_an_address_in_use(host: ScriptedHost, peer: socket.socket) -> None:
    _, answer = open_datagram(host, local=endpoint_of(peer))
    assert answer.error == errno.EADDRINUSE and answer.fields["proxy_id"] == 0


def test_close_frees_everything(host: ScriptedHost, worker: Worker, peer: socket.socket) -> None:
    before = {name: worker.used(name) for name in ("connections", "descriptors", "spill_bytes", "socket_bytes")}
    udp = Udp.open(host, peer=endpoint_of(peer))
    assert worker.used("spill_bytes") == before["spill_bytes"] + WINDOW
    assert worker.used("socket_bytes") > before["socket_bytes"]
    udp.send(Datagram(b"hello"))
    udp.close()
    assert {name: worker.used(name) for name in before} == before
    assert worker.stats().datagram_sockets == 0
    udp.message(datagram.encode(Datagram(b"late")))
    worker.wait(lambda s: s.bad_identifiers == 1, "a socket that is closed takes datagrams")


def test_the_end_of_the_epoch_frees_everything(worker: Worker, peer: socket.socket) -> None:
    before = {name: worker.used(name) for name in ("connections", "spill_bytes", "socket_bytes")}
    with worker.attach(features=FEATURES) as host:
        host.open()
        for _ in range(20):
            Udp.open(host, peer=endpoint_of(peer)).message(datagram.encode(Datagram(bytes(5000)))[:3000], more=True)
        worker.wait(lambda s: s.datagram_sockets == 20, "they are not there")
    worker.wait(lambda s: s.datagram_sockets == 0, "they outlive their host")
    assert {name: worker.used(name) for name in before} == before
    assert worker.stats().spill_bytes == 0


def test_without_the_feature_the_link_ends(worker: Worker) -> None:
    with worker.attach(features=0) as host:
        host.open()
        host.send("XTS_CMD_OPEN_DATAGRAM", xts_socket=2, token=1, post_credits=WINDOW, domain=4)
        assert host.wait_down() == errno.EPROTO


def test_draining_refuses_new_sockets_and_waits_for_none(worker: Worker, host: ScriptedHost) -> None:
    udp = Udp.open(host)
    worker.drain()
    _, answer = open_datagram(host)
    assert answer.error == errno.ESHUTDOWN and answer.refusal == table.REFUSALS["STOPPING"][0]
    assert worker.stats().connections == 0 and worker.stats().datagram_sockets == 1
    udp.close()


def test_time_stamps_and_the_error_queue_are_for_hosts_that_know_them(worker: Worker) -> None:
    with worker.attach(features=table.FEATURES["DATAGRAM"][0]) as made:
        udp = Udp.open(made.open())
        for option in (29, 35, 37, 63, 64, 65):
            assert udp.set(socket.SOL_SOCKET, option, 1) == errno.ENOPROTOOPT
        assert udp.set(socket.IPPROTO_IP, 11, 1) == errno.ENOPROTOOPT  # IP_RECVERR


def test_a_datagram_may_ask_for_stamps_of_sending_alone(host: ScriptedHost, peer: socket.socket) -> None:
    udp = Udp.open(host, peer=endpoint_of(peer))
    assert udp.set(socket.SOL_SOCKET, 37, 1 << 4 | 1 << 11) == 0  # reported, without data
    for wrong in (1 << 3, 1 << 4, 1 << 31):
        udp.send(Datagram(b"wrong", controls=(item("STAMP_SEND", wrong),)))
        assert udp.error() == errno.EINVAL
    for kind in ("TIMESTAMP_NS", "STAMPING", "STAMP_PKTINFO"):
        udp.send(Datagram(b"wrong", controls=(item(kind, 1),)))
        assert udp.error() == errno.EINVAL
    udp.send(Datagram(b"right", controls=(item("STAMP_SEND", 1 << 1),)))
    assert peer.recv(100) == b"right"
    stamped = udp.receive()
    stamps, error = stamped.control("STAMPING"), stamped.control("ERROR")
    assert stamped.data == b"" and stamps and error
    assert int.from_bytes(stamps[:8], "big") > 10**18 and not any(stamps[8:])
    assert (int.from_bytes(error[:4], "big"), error[4]) == (errno.ENOMSG, 4)  # SO_EE_ORIGIN_TIMESTAMPING


def test_the_device_tells_its_time(worker: Worker) -> None:
    told: list[tuple[int, int]] = []

    @ffi.callback("void(void *, struct xts_clock_ack *)")  # type: ignore[untyped-decorator]
    def hears(_: Any, ack: Any) -> None:
        told.append((int(ack.time_ns), int(ack.error_ns)))

    clock = proxy_ffi.new("struct xts_device_clock *", {"bound_ns": 3_000_000 - time.monotonic_ns() // 2000})
    proxy_lib.xts_device_clock_is(clock)
    try:
        with worker.attach(features=FEATURES, clock=hears) as made:
            host = made.open()
            before = time.time_ns()
            lib.xts_link_ask_clock(host.link)
            while not told:
                host.pump(10)
    finally:
        proxy_lib.xts_device_clock_is(proxy_ffi.NULL)
    ((time_ns, error_ns),) = told
    assert before <= time_ns <= time.time_ns() and 3_000_000 <= error_ns < 8_000_000
