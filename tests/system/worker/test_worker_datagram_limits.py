"""Datagram sockets in the worker: hosts that break the protocol, policy, limits, floods, and a device without room."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from beds.datagrams import FEATURES, LOOPBACK, WINDOW, Udp, endpoint_of, host, host_of, open_datagram, peer, udp_peer
from beds.scripted_host import ScriptedHost, Worker
from beds.worker import wait_for, worker
from xts_messages.wire import datagram
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, flags
from xts_messages.wire.datagram import Datagram, item

__all__ = ["host", "peer", "worker"]

PROGRAMS = Path(__file__).parent / "programs"
LISTEN, CONNECT = 2, 1
SMALL = datagram.encode(Datagram(b"small", Endpoint.of(LOOPBACK, 9)))


def refusal(name: str) -> tuple[int, int]:
    number, error, _ = table.REFUSALS[name]
    return error, number


# --- what no host that keeps to the protocol sends -------------------------------------------------------


def malformed(raw: bytes, more: bool = False) -> Callable[[Udp], None]:
    return lambda udp: udp.message(raw, more)


def too_many_credits(udp: Udp) -> None:
    udp.message(b"", post_credits=table.CREDITS_MAX)


BREACHES: dict[str, Callable[[Udp], None]] = {
    "a record cut off": malformed(SMALL[:31]),
    "half a record behind a whole one": malformed(SMALL + SMALL[:10]),
    "data cut off": malformed(SMALL[:-1]),
    "MORE, and nothing goes on": malformed(SMALL, more=True),
    "MORE, and no data": malformed(b"", more=True),
    "control items beyond the message": malformed(datagram.encode(Datagram(control_bytes=4))),
    "control items beyond their limit": malformed(datagram.encode(Datagram(bytes(300), control_bytes=260))),
    "a control item that is cut off": malformed(datagram.encode(Datagram(bytes(2), control_bytes=2))),
    "a control item beyond the others": malformed(datagram.encode(Datagram(b"\0\1\0\x18", control_bytes=4))),
    "an endpoint of IP version 5": malformed(datagram.encode(Datagram(b"x", Endpoint(5)))),
    "a small frame's worth of zeros too few": malformed(bytes(31)),
    "credits that overflow": too_many_credits,
    "a byte stream": lambda udp: udp.host.send("XTS_CMD_SEND", b"stream", id=udp.id),
    "FIN": lambda udp: udp.host.send("XTS_CMD_SEND", id=udp.id, flags=flags("FIN")),
    "a PDU": lambda udp: udp.host.send("XTS_CMD_SEND_PDU", b"pdu", id=udp.id, record_bytes=3),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_ends_its_link_and_nothing_else(worker: Worker, peer: socket.socket, breach: str) -> None:
    features = FEATURES | table.FEATURES["ULP"][0]
    before = {name: worker.used(name) for name in ("connections", "spill_bytes", "socket_bytes")}
    with host_of(worker) as bystander, worker.attach(features=features) as host:
        other = Udp.open(bystander, peer=endpoint_of(peer))
        BREACHES[breach](Udp.open(host.open()))
        assert host.wait_down() == errno.EPROTO
        assert worker.stats().bad_messages == 1
        other.send(Datagram(b"still here"))
        assert peer.recv(100) == b"still here"
        worker.wait(lambda s: s.datagram_sockets == 1, "its socket is still there")
        other.close()
    assert {name: worker.used(name) for name in before} == before
    assert worker.stats().spill_bytes == 0


def test_datagrams_beyond_credits_end_the_link() -> None:
    """In one message, so that no credits can come back in between."""
    with Worker(spill_bytes=table.DATAGRAM_WINDOW_MIN + 1000) as worker, host_of(worker) as host:
        udp = Udp.open(host)
        most = udp.held // table.DATAGRAM_CREDITS
        empty = datagram.encode(Datagram(b"", Endpoint.of(LOOPBACK, 9)))
        udp.message(empty * most)
        udp.held -= most * table.DATAGRAM_CREDITS
        while udp.held < most // 2 * table.DATAGRAM_CREDITS:
            udp.take()
        assert host.up
        udp.message(empty * (most + 1))
        assert host.wait_down() == errno.EPROTO


@pytest.mark.parametrize("id", ["unknown", "closed", "of TCP"])
def test_identifiers_that_are_none(worker: Worker, host: ScriptedHost, id: str) -> None:
    udp = Udp.open(host)
    if id == "closed":
        udp.close()
    elif id == "unknown":
        udp.id += 1
    else:
        number = host.new_socket()
        host.send("XTS_CMD_BIND", xts_socket=number, token=1, domain=4, local=Endpoint.of(LOOPBACK, 0))
        udp.id = host.expect("XTS_REPLY_BIND_ACK").fields["proxy_id"]
    udp.message(SMALL)
    if id == "of TCP":
        assert host.wait_down() == errno.EPROTO
    else:
        worker.wait(lambda s: s.bad_identifiers == 1, "nobody has counted it")
        assert host.up


def test_calls_of_tcp_on_a_datagram_socket(worker: Worker) -> None:
    with worker.attach(features=FEATURES | table.FEATURES["SHARE"][0] | table.FEATURES["ULP"][0]) as host:
        udp = Udp.open(host.open(), local=Endpoint.of(LOOPBACK, 0))
        one = {"id": udp.id, "xts_socket": udp.number}
        host.send("XTS_CMD_CONNECT", post_credits=WINDOW, domain=4, peer=Endpoint.of(LOOPBACK, 9), **one)
        assert host.expect("XTS_REPLY_CONNECT_ACK").error == errno.EOPNOTSUPP
        host.send("XTS_CMD_LISTEN", token=1, domain=4, backlog=1, post_credits=1, **one)
        assert host.expect("XTS_REPLY_LISTEN_ACK").error == errno.EOPNOTSUPP
        host.send("XTS_CMD_SHARE", token=2, key=5, keep_ms=0, **one)
        assert host.expect("XTS_REPLY_SHARE_ACK").error == errno.EINVAL
        host.send("XTS_CMD_PARK", token=3, key=5, keep_ms=0, **one)
        assert host.expect("XTS_REPLY_PARK_ACK").error == errno.EINVAL
        assert host.push("LENGTH_PREFIXED", udp.id, udp.number).error == errno.EOPNOTSUPP
        udp.close()


@pytest.mark.parametrize("window", [0, table.DATAGRAM_WINDOW_MIN - 1])
def test_a_window_that_the_largest_does_not_fit(host: ScriptedHost, window: int) -> None:
    assert open_datagram(host, window)[1].error == errno.EINVAL


def test_a_datagram_that_never_ends_keeps_its_own_socket_waiting(
    worker: Worker, host: ScriptedHost, peer: socket.socket
) -> None:
    stuck, free = Udp.open(host, peer=endpoint_of(peer)), Udp.open(host, peer=endpoint_of(peer))
    stuck.message(datagram.encode(Datagram(bytes(10), data_bytes=60_000)), more=True)
    free.send(Datagram(b"free"))
    assert peer.recv(100) == b"free"
    assert 0 < worker.connection().side.spill_bytes < 100
    stuck.close()
    assert worker.stats().spill_bytes == 0
    assert worker.stats().datagrams_sent == 1


# --- policy and sources ----------------------------------------------------------------------------------


def test_policy_is_asked_about_every_destination(peer: socket.socket) -> None:
    allowed = endpoint_of(peer)
    with (
        udp_peer() as denied,
        Worker(False, rule={"action": CONNECT, "port_first": allowed.port, "port_last": allowed.port}) as worker,
        host_of(worker) as host,
    ):
        udp = Udp.open(host)
        for _ in range(3):
            udp.send(Datagram(b"in", allowed), Datagram(b"out", endpoint_of(denied)), Datagram(b"in again", allowed))
            assert udp.error() == errno.EACCES
            assert (peer.recv(100), peer.recv(100)) == (b"in", b"in again")
        assert worker.stats().datagrams_refused == worker.stats().refused_policy == 3
        ack = udp.connect(endpoint_of(denied))
        assert (ack.error, ack.refusal) == refusal("CONNECT_POLICY")
        assert udp.connect(allowed).error == 0
        answer = open_datagram(host, peer=endpoint_of(denied))[1]
        assert (answer.error, answer.refusal) == refusal("CONNECT_POLICY")
        answer = open_datagram(host, local=Endpoint.of(LOOPBACK, 0))[1]
        assert (answer.error, answer.refusal) == refusal("LISTEN_POLICY")
        assert open_datagram(host, local=Endpoint.of("0.0.0.0", 0))[1].error == 0  # as before a connect of TCP
        denied.setblocking(False)
        with pytest.raises(BlockingIOError):
            denied.recv(100)


def test_a_source_is_an_address_of_the_device_that_the_host_may_use(peer: socket.socket) -> None:
    mine = Datagram(b"from here", endpoint_of(peer), controls=(item("PKTINFO", Endpoint.of(LOOPBACK, 0)),))
    foreign = Datagram(b"spoofed", endpoint_of(peer), controls=(item("PKTINFO", Endpoint.of("192.0.2.1", 0)),))
    with Worker(rule={"action": CONNECT | LISTEN}) as worker, host_of(worker) as host:
        udp = Udp.open(host)
        udp.send(foreign)
        assert udp.error() in (errno.EINVAL, errno.ENETUNREACH)
        udp.send(mine)
        assert peer.recv(100) == b"from here"
    with Worker(False, rule={"action": CONNECT}) as worker, host_of(worker) as host:
        udp = Udp.open(host)
        udp.send(mine)
        assert udp.error() == errno.EACCES
        udp.send(Datagram(b"as the kernel picks", endpoint_of(peer)))
        assert peer.recv(100) == b"as the kernel picks"


def test_a_port_belongs_to_its_tenant(worker: Worker) -> None:
    from beds.scripted_host import make_tenant

    other = make_tenant("other", id=1)
    with host_of(worker) as host, worker.attach(features=FEATURES, tenant=other) as stranger:
        stranger.open()
        first = Udp.open(host)
        assert first.set(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1) == 0
        same_of_tcp = socket.socket()  # no other test's meanwhile
        same_of_tcp.bind((LOOPBACK, 0))
        local = first.bind(Endpoint.of(LOOPBACK, same_of_tcp.getsockname()[1])).fields["local"]
        thief = Udp.open(stranger)
        assert thief.set(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1) == 0
        assert thief.bind(local).error == errno.EADDRINUSE
        second = Udp.open(host)
        assert second.set(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1) == 0
        assert second.bind(local).error == 0
        # Sent from an unbound socket: its port is its tenant's from then on.
        client = Udp.open(host)
        assert client.set(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1) == 0
        with udp_peer() as server:
            client.send(Datagram(b"x", endpoint_of(server)))
            port = server.recvfrom(10)[1][1]
        assert thief.bind(Endpoint.of(LOOPBACK, port)).error == errno.EADDRINUSE
        # TCP's ports are others.
        number = stranger.new_socket()
        same_of_tcp.close()
        stranger.send("XTS_CMD_BIND", xts_socket=number, token=1, domain=4, local=local)
        assert stranger.expect("XTS_REPLY_BIND_ACK").error == 0


# --- limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ({"connections": 1}, "CONNECTIONS"),
        ({"descriptors": 9}, "SOCKETS"),
        ({"spill_bytes": 2 * table.DATAGRAM_WINDOW_MIN - 1}, "WINDOWS"),
    ],
)
def test_limits(limits: dict[str, int], name: str) -> None:
    with Worker(**limits) as worker, host_of(worker) as host:
        first = Udp.open(host)
        answer = open_datagram(host)[1]
        assert (answer.error, answer.refusal) == refusal(name)
        first.close()
        Udp.open(host)


def test_the_largest_datagram_fits_the_least_window_whatever_came_before(peer: socket.socket) -> None:
    with Worker(spill_bytes=table.DATAGRAM_WINDOW_MIN) as worker, host_of(worker) as host:
        udp = Udp.open(host, peer=endpoint_of(peer))
        for size in (1, 10_000, 65_507, 500, 65_507):
            udp.send(Datagram(bytes(size)))
            assert len(peer.recv(1 << 17)) == size


def test_a_receive_buffer_that_is_not_paid_for_is_small() -> None:
    """What any peer may make the device's kernel keep is charged to the tenant; without room for that it is little."""
    with Worker(socket_bytes=16_384) as worker, host_of(worker) as host:
        udp = Udp.open(host)
        assert udp.option(socket.SOL_SOCKET, socket.SO_RCVBUF)[1] < 8192
        assert worker.used("socket_bytes") <= 16_384
    with Worker() as worker, host_of(worker) as host:
        udp = Udp.open(host, receive_bytes=50_000)
        assert udp.option(socket.SOL_SOCKET, socket.SO_RCVBUF)[1] == 100_000
        assert worker.used("socket_bytes") >= 100_000


def test_larger_ones_than_expected_wait_for_credits(worker: Worker, host: ScriptedHost, peer: socket.socket) -> None:
    """The worker takes as many at once as have room if they are like those before. Udp.take() keeps the account."""
    before = worker.used("socket_bytes")
    udp = Udp.open(host, table.DATAGRAM_WINDOW_MIN, peer=endpoint_of(peer), receive_bytes=200_000)
    udp.send(Datagram(b"here I am"))
    target = peer.recvfrom(100)[1]
    for _ in range(40):
        peer.sendto(b"small", target)
        assert udp.receive().data == b"small"
    for size in (30_000, 1, 60_000, 20_000, 5):
        for number in range(3):
            peer.sendto(bytes([number]) * size, target)
        for number in range(3):
            assert udp.receive().data == bytes([number]) * size
            udp.give()
    assert udp.dropped == 0
    udp.close()
    assert worker.used("socket_bytes") == before


# --- floods ----------------------------------------------------------------------------------------------


def test_a_flood_from_a_peer_leaves_room_for_a_bystander(worker: Worker, peer: socket.socket) -> None:
    stop = threading.Event()
    with host_of(worker) as host, host_of(worker) as bystander:
        flooded, other = Udp.open(host, peer=endpoint_of(peer)), Udp.open(bystander)
        flooded.send(Datagram(b"here I am"))
        target = peer.recvfrom(100)[1]

        def flood() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peers:
                peers.bind(peer.getsockname()) if not hasattr(socket, "SO_REUSEPORT") else None
                while not stop.is_set():
                    peer.sendto(bytes(64), target)

        thread = threading.Thread(target=flood)
        with udp_peer() as echo:
            thread.start()
            try:
                for number in range(200):
                    other.send(Datagram(b"%d" % number, endpoint_of(echo)))
                    data, source = echo.recvfrom(100)
                    echo.sendto(data, source)
                    assert other.receive().data == b"%d" % number
            finally:
                stop.set()
                thread.join()
        # Nobody has read what came: no more of it was taken from the kernel than there were credits for.
        used = worker.stats().datagrams_received - 200
        assert used * (64 + table.DATAGRAM_CREDITS) <= WINDOW


def test_a_flood_from_a_host_leaves_room_for_a_bystander(worker: Worker, peer: socket.socket) -> None:
    with host_of(worker) as host, host_of(worker) as bystander:
        flooding, other = Udp.open(host, peer=endpoint_of(peer)), Udp.open(bystander)
        empty = datagram.encode(Datagram(b""))
        with udp_peer() as echo:
            for number in range(50):
                room = min(flooding.held // table.DATAGRAM_CREDITS, 1500)
                flooding.held -= room * table.DATAGRAM_CREDITS
                flooding.message(empty * room)
                other.send(Datagram(b"%d" % number, endpoint_of(echo)))
                data, source = echo.recvfrom(100)
                assert data == b"%d" % number
                echo.sendto(data, source)
                assert other.receive().data == data
                host.pump(0)
                while host.backlog:
                    flooding.take()


# --- a device without room -------------------------------------------------------------------------------


def test_what_the_kernel_has_no_room_for_waits(tmp_path: Path) -> None:
    """In a network namespace of its own, where a neighbour does not answer: its datagrams fill SO_SNDBUF."""
    command = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-r", "-n"]
    if subprocess.run(
        [*command, "ip", "link", "add", "near", "type", "veth"], capture_output=True, check=False
    ).returncode:
        pytest.skip("no network namespaces, or no veth, here")
    done = subprocess.run(
        [*command, sys.executable, PROGRAMS / "datagram_without_room.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["waited", "sent", "closed", "counted"]


def test_what_waits_is_told(worker: Worker, host: ScriptedHost) -> None:
    udp = Udp.open(host)
    assert worker.connection().state == 6 and worker.connection().window_bytes == WINDOW
    wait_for(lambda: worker.connection().side.spill_bytes == 0, "nothing waits")
    udp.close()
