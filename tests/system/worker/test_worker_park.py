"""Connections that change hands: PARK on one channel, CLAIM on another, of any worker."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import socket
import struct
import threading

import pytest
from beds.handover import Connection, claim, claimed, connected, server
from beds.scripted_host import WINDOW, Worker
from beds.share import (
    LOOPBACK,
    QUIET_MS,
    Join,
    client,
    goodbye,
    join,
    listen,
    new_key,
    other_worker,
    share,
    shared,
    worker,
)
from xts_lab.free_ports import free_port
from xts_messages.wire.codec import Endpoint, flags

__all__ = ["join", "other_worker", "server", "worker"]  # fixtures


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def is_reset(peer: socket.socket) -> bool:
    try:
        while peer.recv(65536):
            pass
    except ConnectionResetError:
        return True
    return False


# --- from hand to hand -------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["same host", "same worker", "other worker"])
def test_a_connection_goes_on_elsewhere(
    worker: Worker, other_worker: Worker, join: Join, server: socket.socket, place: str
) -> None:
    first, peer = connected(join(worker), server)
    claimer = {"same host": lambda: first.host, "same worker": lambda: join(worker)}.get(
        place, lambda: join(other_worker)
    )()
    key = new_key()
    with peer:
        first.send(b"one ")
        assert first.park(key).error == 0
        assert (worker.stats().connections, worker.stats().parked_connections) == (0, 1)
        peer.sendall(b"while parked")
        second = claimed(claimer, key)
        assert second.credits == WINDOW
        assert second.receive().payload == b"while parked"
        second.send(b"two", "FIN")
        assert b"".join(iter(lambda: peer.recv(100), b"")) == b"one two"
        assert second.close().error == 0
    for one in (worker, other_worker):
        one.wait(lambda s: s.connections == s.parked_connections == s.window_bytes == 0, "left over")
    assert worker.stats().parks == 1 and worker.stats().claims + other_worker.stats().claims == 1


def test_claiming_tells_the_addresses_and_options_work(worker: Worker, join: Join, server: socket.socket) -> None:
    first, peer = connected(join(worker), server)
    with peer:
        first.park(key := new_key())
        answer = claim(first.host, key)
        assert answer.fields["peer"].port == server.getsockname()[1]
        assert answer.fields["local"].port == peer.getpeername()[1]
        first.host.send(
            "XTS_CMD_GETSOCKOPT",
            bytes(4),
            id=answer.fields["proxy_id"],
            xts_socket=answer.id,
            token=1,
            domain=4,
            level=socket.IPPROTO_TCP,
            option=socket.TCP_NODELAY,
        )
        assert first.host.expect("XTS_REPLY_SOCKOPT_ACK").error == 0


def test_an_option_that_the_host_has_not_set_stays_so(worker: Worker, join: Join) -> None:
    """A listener has SO_REUSEADDR for its own sake, and so has what it accepts."""
    listener = listen(join(worker), credits=1)
    with client(listener.port):
        offer = listener.offered()
        number = listener.take(offer)
        fields = {"level": socket.SOL_SOCKET, "option": socket.SO_REUSEADDR, "token": 1, "domain": 4}
        accepted = Connection(listener.host, number, offer.fields["proxy_id"], 0)

        def option(of: Connection) -> int:
            of.host.send("XTS_CMD_GETSOCKOPT", bytes(4), id=of.proxy_id, xts_socket=of.number, **fields)
            return int.from_bytes(of.host.expect("XTS_REPLY_SOCKOPT_ACK").payload, "little")

        assert option(accepted) == 0
        assert accepted.park(key := new_key()).error == 0
        assert option(claimed(join(worker), key)) == 0


def test_the_old_identifier_is_gone(worker: Worker, join: Join, server: socket.socket) -> None:
    first, peer = connected(join(worker), server)
    with peer:
        first.park(key := new_key())
        first.host.send("XTS_CMD_SEND", b"late", id=first.proxy_id)
        worker.wait(lambda s: s.bad_identifiers == 1, "the identifier still means something")
        second = claimed(first.host, key)
        assert second.proxy_id != first.proxy_id
        second.send(b"only this")
        assert peer.recv(100) == b"only this"


def test_parking_tells_what_was_taken_from_tcp_before_it(worker: Worker, join: Join, server: socket.socket) -> None:
    first, peer = connected(join(worker), server, window=1000)
    with peer:
        sent = os.urandom(5000)
        peer.sendall(sent)
        first.park(key := new_key())
        before = bytes(first.received)
        assert len(before) <= 1000
        second = claimed(first.host, key, WINDOW, unread=len(before))
        while len(second.received) < len(sent) - len(before):
            second.receive()
        assert before + second.received == sent


@pytest.mark.parametrize("short", [0, 1])
def test_close_compares_with_all_that_was_unread(worker: Worker, join: Join, server: socket.socket, short: int) -> None:
    first, peer = connected(join(worker), server)
    with peer:
        peer.sendall(b"read" + b"unread")
        while len(first.received) < 10:
            first.receive()
        first.park(key := new_key())
        second = claimed(first.host, key, unread=6)
        peer.sendall(b"more")
        second.receive()
        second.unread -= short
        second.close()
        assert is_reset(peer) == bool(short)


def test_the_ends_are_told_again(worker: Worker, join: Join, server: socket.socket) -> None:
    first, peer = connected(join(worker), server)
    with peer:
        peer.sendall(b"last")
        peer.shutdown(socket.SHUT_WR)
        while not first.receive().flags & flags("EOS"):
            pass
        first.park(key := new_key())
        second = claimed(first.host, key)
        assert second.receive().flags == flags("EOS")
        second.send(b"answer")
        assert peer.recv(100) == b"answer"
        second.close()
        assert peer.recv(1) == b""


def test_our_fin_holds(worker: Worker, join: Join, server: socket.socket) -> None:
    first, peer = connected(join(worker), server)
    with peer:
        first.send(b"all", "FIN")
        first.park(key := new_key())
        assert peer.recv(100) == b"all" and peer.recv(1) == b""
        second = claimed(join(worker), key)
        peer.sendall(b"still")
        assert second.receive().payload == b"still"
        second.host.send("XTS_CMD_SEND", b"x", id=second.proxy_id)
        frame = second.receive()
        assert (frame.flags, frame.error) == (flags("RESET"), errno.EPIPE)
        assert second.close().error == 0  # it need not have known: the channel goes on


@pytest.mark.parametrize("told", [False, True])
def test_a_reset_is_told_to_who_claims(worker: Worker, join: Join, server: socket.socket, told: bool) -> None:
    first, peer = connected(join(worker), server)
    if told:
        reset(peer)
        assert first.receive().flags == flags("RESET")
    first.park(key := new_key())
    assert worker.stats().parked_connections == 1
    if not told:
        reset(peer)
    second = claimed(first.host, key)
    frame = second.receive()
    assert frame.flags == flags("RESET") and frame.error in (errno.ECONNRESET, errno.EPIPE)
    assert second.close().error == 0


def fill(connection: Connection, data: random.Random) -> bytes:
    """Sends until no credits come: the peer does not read."""
    sent = bytearray()
    while True:
        if not connection.credits:
            try:
                connection.receive(QUIET_MS)
            except TimeoutError:
                return bytes(sent)
            continue
        piece = data.randbytes(min(connection.credits, 16000))
        connection.send(piece)
        sent += piece


@pytest.mark.parametrize("when", ["while parked", "after the claim"])
def test_what_is_spilled_is_moved_too(
    worker: Worker, other_worker: Worker, join: Join, server: socket.socket, when: str
) -> None:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    first, peer = connected(join(worker), server)
    with peer:
        sent = bytearray(fill(first, random.Random(1)))
        spilled = worker.stats().spill_bytes
        assert spilled > 0
        first.park(key := new_key())
        assert worker.stats().spill_bytes == 0
        got = bytearray()
        if when == "while parked":
            while len(got) < len(sent):
                got += peer.recv(65536)
        second = claimed(join(other_worker), key)
        if when == "while parked":
            assert second.credits == WINDOW
        else:
            assert second.credits == WINDOW - other_worker.stats().spill_bytes
            assert 0 < other_worker.stats().spill_bytes <= spilled
        reader = threading.Thread(target=lambda: [got.extend(d) for d in iter(lambda: peer.recv(65536), b"")])
        reader.start()
        for _ in range(20):  # goes on behind what was spilled, as credits come
            while not second.credits:
                second.receive()
            piece = os.urandom(min(second.credits, 20000))
            second.send(piece)
            sent += piece
        second.close()
        reader.join(10)
        assert hashlib.sha256(got).digest() == hashlib.sha256(sent).digest()
    other_worker.wait(lambda s: s.spill_bytes == s.connections == 0, "left over")


def test_fin_waits_for_what_is_spilled(worker: Worker, join: Join, server: socket.socket) -> None:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    first, peer = connected(join(worker), server)
    with peer:
        sent = fill(first, random.Random(2))
        first.host.send("XTS_CMD_SEND", id=first.proxy_id, flags=flags("FIN"))
        first.park(new_key())
        got = bytearray()
        while data := peer.recv(65536):
            got += data
        assert got == sent
    assert worker.stats().parked_connections == 1


def test_bytes_in_flight_both_ways_survive_many_moves(
    worker: Worker, other_worker: Worker, join: Join, server: socket.socket
) -> None:
    hosts = [join(worker), join(worker), join(other_worker)]
    current, peer = connected(hosts[0], server)
    upwards, downwards = os.urandom(1 << 20), os.urandom(1 << 20)
    up = bytearray()

    def peer_reads() -> None:
        while data := peer.recv(30000):
            up.extend(data)

    threads = [
        threading.Thread(target=peer_reads),
        threading.Thread(target=lambda: (peer.sendall(downwards), peer.shutdown(socket.SHUT_WR))),
    ]
    for thread in threads:
        thread.start()
    rng, down, sent, ended, moves = random.Random(3), bytearray(), 0, False, 0
    with peer:
        while not ended or sent < len(upwards):
            if rng.random() < 0.2:
                current.park(key := new_key())
                down += current.received
                current = claimed(rng.choice(hosts), key)
                moves += 1
            if sent < len(upwards) and current.credits:
                size = min(current.credits, rng.randrange(1, 30000), len(upwards) - sent)
                current.send(upwards[sent : sent + size])
                sent += size
            try:
                frame = current.receive(1 if current.credits and sent < len(upwards) else 50)
            except TimeoutError:
                continue
            ended |= bool(frame.flags & flags("EOS"))
            if frame.payload:
                current.grant(len(frame.payload))
        down += current.received
        assert current.close().error == 0
        for thread in threads:
            thread.join(10)
    assert moves > 5
    assert hashlib.sha256(down).digest() == hashlib.sha256(downwards).digest()
    assert hashlib.sha256(up).digest() == hashlib.sha256(upwards).digest()


# --- what ends, and what is refused ------------------------------------------------------------------------


def test_nobody_claims_it_in_time(worker: Worker, join: Join, server: socket.socket) -> None:
    first, peer = connected(join(worker), server)
    with peer:
        first.park(key := new_key(), keep_ms=50)
        assert is_reset(peer)
    worker.wait(lambda s: s.parked_connections == 0 and s.unclaimed == 1, "parked for ever")
    assert claim(first.host, key).error == errno.ENOENT


def test_it_outlives_its_process_but_not_its_worker(other_worker: Worker, join: Join, server: socket.socket) -> None:
    with Worker(tenant=other_worker.tenant) as worker:
        (first, peer), (second, other_peer) = (connected(join(worker), server) for _ in range(2))
        first.park(key := new_key())
        second.park(other_key := new_key())
        goodbye(first.host)
        worker.wait(lambda s: s.channels_up == 1, "still up")
        claimer = claimed(join(other_worker), key)
        claimer.send(b"alive")
        assert peer.recv(100) == b"alive"
    assert is_reset(other_peer)
    assert claim(claimer.host, other_key).error == errno.ENOENT
    peer.close()
    other_peer.close()


def test_a_drained_worker_still_hands_over(worker: Worker, join: Join, server: socket.socket) -> None:
    first, peer = connected(join(worker), server)
    with peer:
        first.park(key := new_key())
        worker.drain()
        claimed(first.host, key).send(b"goes on")
        assert peer.recv(100) == b"goes on"


def test_wrong_uses_of_park_leave_the_connection_unharmed(worker: Worker, join: Join, server: socket.socket) -> None:
    host = join(worker)
    first, peer = connected(host, server)
    used, listener = shared(host)
    number = host.new_socket()
    host.send("XTS_CMD_BIND", xts_socket=number, token=1, domain=4, local=Endpoint.of(LOOPBACK, 0))
    idle = Connection(host, number, host.expect("XTS_REPLY_BIND_ACK").fields["proxy_id"], 0)
    offering = listen(host, 1)
    with peer, socket.create_connection((LOOPBACK, offering.port), 5):
        offer = offering.offered()
        for expected, connection, key in (
            (errno.EINVAL, first, 0),
            (errno.EEXIST, first, used),
            (errno.EINVAL, idle, new_key()),
            (errno.EINVAL, Connection(host, listener.number, listener.proxy_id, 0), new_key()),
            (errno.EBADF, Connection(host, 9, 0x12345, 0), new_key()),
            (errno.EBADF, Connection(host, 9, 0, 0), new_key()),
            (errno.EBADF, Connection(host, first.number + 100, first.proxy_id, 0), new_key()),
            (errno.EBADF, Connection(host, offering.number, offer.fields["proxy_id"], 0), new_key()),
        ):
            assert connection.park(key).error == expected
        assert claim(host, used).error == errno.ENOENT  # a listener
        assert claim(host, 0).error == errno.ENOENT
        first.send(b"unharmed")
        assert peer.recv(100) == b"unharmed"
        first.park(key := new_key())
        assert share(host, key).error == errno.ENOENT  # a connection
        again, other_peer = connected(host, server)
        assert again.park(key).error == errno.EEXIST
        other_peer.close()
    assert worker.stats().parked_connections == 1


def test_a_failed_connect_cannot_be_parked(worker: Worker, join: Join) -> None:
    host = join(worker)
    port = free_port()
    number, ack = host.connect(LOOPBACK, port)
    assert Connection(host, number, ack.fields["proxy_id"], 0).park(new_key()).error == errno.EINVAL


@pytest.mark.parametrize("name", ["XTS_CMD_PARK", "XTS_CMD_CLAIM"])
def test_both_are_refused_without_the_feature(worker: Worker, name: str) -> None:
    fields = {"keep_ms": 1} if name == "XTS_CMD_PARK" else {"post_credits": 1, "unread": 0}
    with worker.attach(1) as host:
        host.open().send(name, xts_socket=1, token=1, key=1, **fields)
        assert host.wait_down() == errno.EPROTO


def test_limits_hold(join: Join, server: socket.socket) -> None:
    with Worker(connections=2) as worker:
        host = join(worker)
        keys = [new_key() for _ in range(3)]
        peers = []
        for key in keys[:2]:
            connection, peer = connected(host, server)
            peers.append(peer)
            assert connection.park(key).error == 0
        third, peer = connected(host, server)
        assert third.park(keys[2]).error == errno.ENOBUFS
        fourth, other_peer = connected(host, server)
        peers += [peer, other_peer]
        assert claim(host, keys[0]).error == errno.ENOBUFS  # the channel is full, and it stays parked
        fourth.close()
        claimed(host, keys[0]).send(b"later")
        assert peers[0].recv(100) == b"later"
        assert worker.stats().refused_limit == 2
        for peer in peers:
            peer.close()


def test_bytes_parked_are_limited(join: Join, server: socket.socket) -> None:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with Worker(spill_bytes=2 * WINDOW) as worker:
        host = join(worker)
        refused, peers = 0, []
        for _ in range(5):
            connection, peer = connected(host, server)
            peers.append(peer)
            fill(connection, random.Random(4))
            refused += connection.park(new_key()).error == errno.ENOBUFS
            if refused:
                break
        assert refused == 1
        # A channel whose budget is used up cannot claim what is spilled either; it stays parked.
        assert worker.stats().parked_connections == len(peers) - 1
        for peer in peers:
            peer.close()
