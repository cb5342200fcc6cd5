"""Between two messages a worker takes no mutex that all share (native/worker/common_lock.h): it counts them."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from beds.datagrams import FEATURES, LOOPBACK, WINDOW, Udp, host_of
from beds.scripted_host import ScriptedHost, Worker
from beds.share import (
    SHARE,
    Join,
    Listener,
    client,
    join,
    joined,
    new_epoch,
    new_key,
    other_worker,
    share,
    shared,
    worker,
)
from xts_messages.wire import wire_table
from xts_messages.wire.codec import Endpoint, flags

__all__ = ["join", "other_worker", "worker"]  # fixtures

ROUNDS = 100
FLOOD = 2000  # of datagrams: more than the kernel has room for
SHARE_DATAGRAM = wire_table.FEATURES["SHARE_DATAGRAM"][0] | wire_table.FEATURES["RETURN_DATAGRAM"][0]
GROUP = "239.7.6.5"


@contextmanager
def takes_none(*workers: Worker) -> Iterator[None]:
    before = [worker.stats().common_locks for worker in workers]
    yield
    assert [worker.stats().common_locks for worker in workers] == before


def exchange(host: ScriptedHost, proxy_id: int, peer: socket.socket) -> None:
    """A request and a reply; the window that is used up is granted again."""
    peer.sendall(b"request")
    frame = host.expect("XTS_REPLY_RECV")
    assert frame.payload == b"request"
    host.send("XTS_CMD_SEND", b"reply", id=proxy_id, post_credits=len(frame.payload))
    assert peer.recv(100) == b"reply"


def served(member: Listener) -> tuple[socket.socket, int]:
    """A connection of a shared listener, accepted."""
    peer = client(member.port)
    offer = member.offered()
    member.take(offer)
    return peer, offer.fields["proxy_id"]


def test_messages_of_connections_of_a_shared_listener(worker: Worker, other_worker: Worker, join: Join) -> None:
    key, here = shared(join(worker), credits=1)
    there = joined(join(other_worker), key)
    with contextlib.ExitStack() as stack:
        one, of_one = served(here)
        stack.enter_context(one)
        there.credit(1)
        two, of_two = served(there)
        stack.enter_context(two)
        exchange(here.host, of_one, one)
        exchange(there.host, of_two, two)
        with takes_none(worker, other_worker):
            for _ in range(ROUNDS):
                exchange(here.host, of_one, one)
                exchange(there.host, of_two, two)


def test_accepting_for_a_shared_listener(worker: Worker, join: Join) -> None:
    """Whose turn it is, and whether something was given back, is known without a mutex of all workers."""
    key, first = shared(join(worker), credits=ROUNDS)
    second = joined(join(worker), key, ROUNDS)
    worker.wait(lambda s: s.shared_listeners == 2, "has not joined")
    with contextlib.ExitStack() as stack, takes_none(worker):
        for _ in range(20):
            stack.enter_context(client(first.port))
        # Who has fewer open offers is next.
        offers = [(member, member.offered()) for member in (first, second) for _ in range(10)]
        for member, offer in offers:
            member.take(offer)


def test_datagrams_of_a_shared_socket(worker: Worker, other_worker: Worker) -> None:
    with contextlib.ExitStack() as stack:
        features = FEATURES | SHARE | SHARE_DATAGRAM
        hosts = [stack.enter_context(w.attach(new_epoch(), features=features)).open() for w in (worker, other_worker)]
        key, udp = new_key(), Udp.open(hosts[0], local=Endpoint.of(LOOPBACK, 0))
        assert share(hosts[0], key, udp.id, udp.number).error == 0
        answer = share(hosts[1], key)
        assert answer.error == 0
        udp.granted, udp.owing = 0, WINDOW  # what credits it had are void
        udp.give()
        sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        to = (LOOPBACK, udp.local.port)
        sender.sendto(b"first", to)
        assert udp.receive().data == b"first"
        with takes_none(worker, other_worker):
            for number in range(ROUNDS):
                udp.give()  # a member's turn lasts for a few datagrams, from when it gives credits
                sender.sendto(b"%d" % number, to)
                assert udp.receive(credit=False).data == b"%d" % number
            for _ in range(FLOOD):
                sender.sendto(bytes(1000), to)
            for _ in range(2 * ROUNDS):  # those behind what the kernel has dropped say so
                udp.give()
                assert len(udp.receive().data) == 1000
                sender.sendto(bytes(1000), to)
            assert worker.stats().datagrams_dropped > 0


def test_datagrams_of_a_group(worker: Worker) -> None:
    """Whether the tenant has joined the group is asked for each datagram; the worker remembers the answer."""
    with host_of(worker) as host, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))
        udp = Udp.open(host)
        udp.local = udp.bind(Endpoint.of("0.0.0.0", 0)).fields["local"]
        mreq = socket.inet_aton(GROUP) + socket.inet_aton(LOOPBACK)
        assert udp.set(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, mreq) == 0
        to = (GROUP, udp.local.port)
        sender.sendto(b"first", to)
        assert udp.receive().data == b"first"
        with takes_none(worker):
            for number in range(ROUNDS):
                sender.sendto(b"%d" % number, to)
                assert udp.receive().data == b"%d" % number


def test_connections_that_come_and_go(worker: Worker, join: Join) -> None:
    """Ordinary ones, closed by either end."""
    _, listener = shared(join(worker), credits=ROUNDS)
    with client(listener.port):
        listener.take(listener.offered())
        with takes_none(worker):
            for _ in range(20):
                peer, proxy_id = served(listener)
                exchange(listener.host, proxy_id, peer)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                listener.host.send("XTS_CMD_SEND", id=proxy_id, flags=flags("CLOSE"))
                assert listener.host.expect("XTS_REPLY_RECV").flags & flags("CLOSED")
                peer.close()


def test_what_changes_hands_is_counted(worker: Worker, join: Join) -> None:
    """The count can move: otherwise the tests above would show nothing."""
    key, _ = shared(join(worker), credits=2)
    before = worker.stats().common_locks
    joined(join(worker), key)
    assert worker.stats().common_locks > before
