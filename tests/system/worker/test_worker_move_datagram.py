"""Datagram sockets that go to another worker, by raw messages: what waits in each direction, and what is charged."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import struct
from collections.abc import Iterator

import pytest
from beds.classic_bpf import SO_ATTACH_FILTER, begins_with
from beds.datagrams import FEATURES, LOOPBACK, WINDOW, Udp, endpoint_of, peer, udp_peer
from beds.examples import examples
from beds.moves import MOVE, Left, answer, ask, is_open, moved, take, take_in, waits
from beds.scripted_host import ScriptedHost, Worker, make_tenant
from beds.share import KEEP_MS, SHARE, new_epoch, new_key, share
from beds.worker import wait_for
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.wire import datagram
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, flags
from xts_messages.wire.datagram import Datagram

__all__ = ["peer"]

MOVES = MOVE | table.FEATURES["MOVE_DATAGRAM"][0]
SHARES = SHARE | table.FEATURES["SHARE_DATAGRAM"][0] | table.FEATURES["RETURN_DATAGRAM"][0]
ALL = FEATURES | MOVES | SHARE
ANYWHERE = Endpoint.of(LOOPBACK, 0)
GROUP = "239.255.77.9"
CHARGED = ("connections", "descriptors", "groups", "filters", "socket_bytes", "kept_bytes", "spill_bytes")
IP_PKTINFO, MAX_PACING_RATE = 8, 47


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


@pytest.fixture
def next_worker(worker: Worker) -> Iterator[Worker]:
    with Worker(tenant=worker.tenant) as made:
        yield made


@pytest.fixture
def host(worker: Worker) -> Iterator[ScriptedHost]:
    with worker.attach(features=ALL) as made:
        yield made.open()


@contextlib.contextmanager
def claimed(next_worker: Worker, left: Left, udp: Udp, credits: int, features: int = ALL) -> Iterator[Udp]:
    """The host's socket there; it goes on with what has come of a datagram."""
    with next_worker.attach(new_epoch(), features=features) as made:
        made.open()
        number, key = made.new_socket(), left.ticket >> 32 << 32 | udp.id
        made.send("XTS_CMD_CLAIM", xts_socket=number, token=1, key=key, post_credits=credits, unread=0)
        answer = made.expect("XTS_REPLY_CLAIM_ACK")
        assert answer.error == 0, errno.errorcode[answer.error]
        f = answer.fields
        yield Udp(
            made,
            number,
            f["proxy_id"],
            f["post_credits"],
            credits,
            f["local"],
            f["peer"],
            reader=udp.reader,
            ready=udp.ready,
        )
    left.close()


def address(udp: Udp) -> tuple[str, int]:
    return LOOPBACK, udp.local.port


def test_address_peer_and_options_move(
    worker: Worker, next_worker: Worker, host: ScriptedHost, peer: socket.socket
) -> None:
    before = {name: worker.used(name) for name in CHARGED}
    udp = Udp.open(host, local=ANYWHERE, peer=endpoint_of(peer))
    assert udp.set(socket.SOL_SOCKET, socket.SO_RCVBUF, 300_000) == 0
    assert udp.set(socket.IPPROTO_IP, IP_PKTINFO, 1) == 0
    charged = {name: worker.used(name) for name in CHARGED}
    with claimed(next_worker, moved(host, worker, next_worker), udp, WINDOW) as after:
        assert (after.local, after.peer) == (udp.local, udp.peer)
        assert after.option(socket.SOL_SOCKET, socket.SO_RCVBUF)[1] >= 300_000
        peer.sendto(b"there", address(udp))
        got = after.receive()
        assert got.data == b"there" and got.control("PKTINFO") is not None
        after.send(Datagram(b"back"))
        assert peer.recvfrom(10) == (b"back", address(udp))
        assert {name: worker.used(name) for name in CHARGED} == charged
        with udp_peer() as other:  # from the peer it is connected to, and no others
            other.sendto(b"stranger", address(udp))
            peer.sendto(b"last", address(udp))
            assert after.receive().data == b"last"
        after.close()
        wait_for(lambda: {name: worker.used(name) for name in CHARGED} == before, "something is charged")


def test_what_is_unsent_moves(worker: Worker, next_worker: Worker, host: ScriptedHost, peer: socket.socket) -> None:
    """A datagram that was taken from the kernel, and found no credits; and what the kernel has behind it."""
    udp = Udp.open(host, table.DATAGRAM_WINDOW_MIN, local=ANYWHERE)
    small = table.DATAGRAM_WINDOW_MIN // Datagram(bytes(10)).credits - 2
    for n in range(small):
        peer.sendto(bytes(10), address(udp))
        if n % 100 == 99 or n == small - 1:
            # the more frames they come in, the sooner one has to be acknowledged
            worker.wait(lambda s, n=n: host.pump(0) or s.datagrams_received == n + 1, "all are taken")
    sent = [random.Random(n).randbytes(8_000) for n in range(5)]
    for data in sent[:3]:
        peer.sendto(data, address(udp))
    worker.wait(lambda s: s.datagrams_received == small + 1, "one more is taken than there are credits for")
    charged = worker.used("socket_bytes")
    left = moved(host, worker, next_worker)
    for data in sent[3:]:
        peer.sendto(data, address(udp))
    with claimed(next_worker, left, udp, WINDOW) as after:
        assert [after.receive().data for _ in sent] == sent and after.dropped == 0
        assert worker.used("socket_bytes") < charged and worker.used("kept_bytes") == 0


def test_a_datagram_that_was_sent_in_part_goes_on(
    worker: Worker, next_worker: Worker, host: ScriptedHost, peer: socket.socket
) -> None:
    """In both directions."""
    udp = Udp.open(host, local=ANYWHERE, peer=endpoint_of(peer))
    whole = datagram.encode(Datagram(bytes(range(250)) * 100))
    udp.held -= Datagram(bytes(25_000)).credits
    udp.message(whole[:9_000], more=True)
    udp.settle()
    with claimed(next_worker, moved(host, worker, next_worker), udp, WINDOW) as after:
        assert after.held == WINDOW - Datagram(bytes(25_000)).credits
        after.message(whole[9_000:])
        assert peer.recv(1 << 16) == bytes(range(250)) * 100
        after.settle()


def test_what_waits_for_the_kernel_moves(
    worker: Worker, next_worker: Worker, host: ScriptedHost, peer: socket.socket
) -> None:
    """A socket with a rate: what may not leave yet, with what the host paid for it, and one that was refused."""
    udp = Udp.open(host, local=ANYWHERE, peer=endpoint_of(peer))
    assert udp.set(socket.SOL_SOCKET, MAX_PACING_RATE, struct.pack("=Q", 200_000)) == 0
    sent = [b"%04d" % n + bytes(1_000) for n in range(60)]
    for data in sent:
        udp.send(Datagram(data))
    udp.send(Datagram(b"to nobody", Endpoint.of(LOOPBACK, 0)))
    worker.wait(lambda s: s.datagrams_waiting > 5, "nothing waits")
    left = moved(host, worker, next_worker)
    assert worker.stats().datagrams_waiting == 0
    with claimed(next_worker, left, udp, WINDOW) as after:
        assert after.held < WINDOW
        assert [peer.recv(2_000) for _ in sent] == sent
        assert after.error() != 0
        after.settle()
    wait_for(lambda: worker.used("spill_bytes") == 0, "a window is charged")


def test_a_pending_error_moves(worker: Worker, next_worker: Worker, host: ScriptedHost) -> None:
    """One that the kernel gets when nobody reads errors."""
    with udp_peer() as gone:
        nobody = endpoint_of(gone)
    udp = Udp.open(host, local=ANYWHERE, peer=nobody)
    assert waits(worker) == (0, {})
    answer(host)
    left = take(worker)
    with socket.socket(fileno=os.dup(left.descriptors[0])) as kept:
        kept.send(b"anybody?")
    assert take_in(next_worker, left.records, left.descriptors) == 1
    left.descriptors = []
    with claimed(next_worker, left, udp, WINDOW) as after:
        assert after.error() == errno.ECONNREFUSED
        after.send(Datagram(b"anybody?"))
        assert after.error() == errno.ECONNREFUSED


def test_groups_and_filters_move(worker: Worker, next_worker: Worker, host: ScriptedHost, peer: socket.socket) -> None:
    udp = Udp.open(host)
    port = udp.bind(Endpoint.of("0.0.0.0", 0)).fields["local"].port
    member = socket.inet_aton(GROUP) + socket.inet_aton(LOOPBACK)
    assert udp.set(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member) == 0
    source = socket.inet_aton("239.255.77.10") + socket.inet_aton(LOOPBACK) + socket.inet_aton(LOOPBACK)
    assert udp.set(socket.IPPROTO_IP, 39, source) == 0  # IP_ADD_SOURCE_MEMBERSHIP
    assert udp.set(socket.SOL_SOCKET, SO_ATTACH_FILTER, begins_with(b"a")) == 0
    charged = {name: worker.used(name) for name in CHARGED}
    assert charged["groups"] == 3 and charged["filters"] > 0
    peer.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))
    with claimed(next_worker, moved(host, worker, next_worker), udp, WINDOW) as after:
        assert {name: worker.used(name) for name in CHARGED} == charged
        for data in (b"no", b"a group"):
            peer.sendto(data, (GROUP, port))
        assert after.receive().data == b"a group"
        assert after.set(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, member) == 0
        assert worker.used("groups") == 2
        after.close()
    wait_for(lambda: worker.used("groups") == worker.used("filters") == 0, "something is charged")


def test_a_host_that_sleeps_has_them_with_the_process_after_the_next(
    worker: Worker, next_worker: Worker, host: ScriptedHost, peer: socket.socket
) -> None:
    """A worker passes on what its host has not claimed, as it has come."""
    udp = Udp.open(host, local=ANYWHERE)
    peer.sendto(b"unread", address(udp))
    udp.receive(credit=False)
    left = moved(host, worker, next_worker)
    assert next_worker.used("kept_bytes") > 0
    with claimed(next_worker, left, udp, WINDOW) as after:
        peer.sendto(b"now", address(udp))
        assert after.receive().data == b"now"
    assert worker.used("kept_bytes") == 0


def test_a_host_that_does_not_claim_them_makes_them_again(worker: Worker, peer: socket.socket) -> None:
    """An older one: its sockets end, and their addresses are free."""
    with worker.attach(features=FEATURES | MOVE) as host:
        host.open()
        udp = Udp.open(host, local=ANYWHERE)
        assert ask(worker) == 0
        left = take(worker)
        assert left.descriptors == [] and left.reset == 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
            again.bind(address(udp))
        left.close()


# --- several processes have it ------------------------------------------------------------------------------------


def test_members_move_one_by_one(worker: Worker, next_worker: Worker, peer: socket.socket) -> None:
    """They have one socket there, too, and what one has given back is for who reads next, errors among it."""
    features = ALL | SHARES
    with (
        worker.attach(new_epoch(), features=features) as one,
        worker.attach(new_epoch(), features=features) as other,
    ):
        one.open(), other.open()
        key, first = new_key(), Udp.open(one, local=ANYWHERE)
        assert first.set(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _member()) == 0
        assert share(one, key, first.id, first.number, KEEP_MS).error == 0
        joined = share(other, key)
        second = Udp(other, joined.id, joined.fields["proxy_id"], 0, 0, joined.fields["local"], first.peer)
        first.granted, first.owing = 0, WINDOW
        first.give()
        for data in (b"one", bytes(30_000), b"three"):
            peer.sendto(data, address(first))
        got = [first.receive(credit=False) for _ in range(3)]
        assert share(one, key, first.id, first.number, KEEP_MS).error == 0
        raw = b"".join(map(datagram.encode, got))
        one.send("XTS_CMD_RETURN_DATAGRAMS", raw[:20_000], id=first.id, flags=flags("MORE"))
        one.send("XTS_CMD_RETURN_DATAGRAMS", b"", id=first.id, error=errno.EHOSTUNREACH)
        worker.wait(lambda _: worker.used("kept_bytes") > 0, "nothing is kept")
        charged = worker.used("groups")
        left = moved(one, worker, next_worker, 0)
        also = moved(other, worker, next_worker, 1)
        with (
            claimed(next_worker, left, first, 0, features) as first_there,
            claimed(next_worker, also, second, 0, features) as second_there,
        ):
            for udp in (first_there, second_there):
                assert share(udp.host, key, udp.id, udp.number, KEEP_MS).error == 0
            assert worker.used("groups") == charged
            first_there.host.send("XTS_CMD_RETURN_DATAGRAMS", raw[20_000:], id=first_there.id)
            peer.sendto(b"four", address(first))
            second_there.owing = WINDOW
            second_there.give()
            assert second_there.error() == errno.EHOSTUNREACH
            assert [second_there.receive().data for _ in range(4)] == [b"one", bytes(30_000), b"three", b"four"]
            first_there.close()
            second_there.close()
    wait_for(lambda: worker.used("kept_bytes") == worker.used("groups") == 0, "something is charged")


def test_others_join_one_whose_members_sleep(worker: Worker, next_worker: Worker, peer: socket.socket) -> None:
    """All its members sleep, and have not noticed the move; a process that has it, too, comes on a new channel. It has
    what was given back, the groups and the address. The one that sleeps joins when it wakes up, and has its own."""
    features = ALL | SHARES
    with worker.attach(new_epoch(), features=features) as one:
        one.open()
        key, first = new_key(), Udp.open(one, local=ANYWHERE)
        assert first.set(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _member()) == 0
        assert first.set(socket.SOL_SOCKET, SO_ATTACH_FILTER, begins_with(b"t")) == 0
        assert share(one, key, first.id, first.number, 0).error == 0
        first.granted, first.owing = 0, WINDOW
        first.give()
        peer.sendto(b"this is given back", address(first))
        got = first.receive(credit=False)
        assert share(one, key, first.id, first.number, 0).error == 0  # its credits are void
        one.send("XTS_CMD_RETURN_DATAGRAMS", datagram.encode(got), id=first.id)
        worker.wait(lambda _: worker.used("kept_bytes") > 0, "nothing is kept")
        groups, filters = worker.used("groups"), worker.used("filters")
        left = moved(one, worker, next_worker)
        with next_worker.attach(new_epoch(), features=features) as other:
            assert share(other.open(), new_key()).error == errno.ENOENT
            joined = share(other, key)
            assert joined.error == 0
            fields = joined.fields
            assert fields["local"].port == first.local.port
            second = Udp(other, joined.id, fields["proxy_id"], 0, 0, fields["local"], first.peer)
            second.owing = WINDOW
            second.give()
            assert second.receive().data == b"this is given back"
            assert (worker.used("groups"), worker.used("filters")) == (groups, filters)
            peer.sendto(b"that comes now", address(first))
            peer.sendto(b"not for us", address(first))
            peer.sendto(b"third", address(first))
            assert [second.receive().data for _ in range(2)] == [b"that comes now", b"third"]
            with claimed(next_worker, left, first, 0, features) as awake:
                assert share(awake.host, key, awake.id, awake.number, 0).error == 0
                assert (worker.used("groups"), worker.used("filters")) == (groups, filters)
                second.close()
                awake.owing = WINDOW
                awake.give()
                peer.sendto(b"to the one that is awake", address(first))
                assert awake.receive().data == b"to the one that is awake"
                awake.close()
    wait_for(lambda: worker.used("kept_bytes") == worker.used("groups") == worker.used("filters") == 0, "charges")
    wait_for(lambda: worker.used("socket_bytes") == 0, "bytes of sockets")


def _member() -> bytes:
    return socket.inet_aton(GROUP) + socket.inet_aton(LOOPBACK)


# --- what comes in ------------------------------------------------------------------------------------------------


@given(data=st.data())
@examples(20)
def test_what_comes_in_is_not_believed(data: st.DataObject) -> None:
    """Whatever the record is, and the descriptor: no descriptor is left, nothing stays charged, the worker goes on."""
    tenant = make_tenant()
    with Worker(tenant=tenant) as worker, worker.attach(features=ALL) as host, udp_peer() as peer:
        host.open()
        udp = Udp.open(host, table.DATAGRAM_WINDOW_MIN, local=ANYWHERE, peer=endpoint_of(peer))
        assert udp.set(socket.SOL_SOCKET, MAX_PACING_RATE, struct.pack("=Q", 1_000)) == 0
        assert udp.set(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _member()) == 0
        assert udp.set(socket.SOL_SOCKET, SO_ATTACH_FILTER, begins_with(b"a")) == 0
        for _ in range(30):
            udp.send(Datagram(bytes(20)))
        udp.settle()
        assert ask(worker) == 0
        left = take(worker)
        records = bytearray(left.records)
        for _ in range(data.draw(st.integers(1, 6))):
            records[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
        records = records[: data.draw(st.integers(0, len(records)))]
        others = [os.open(os.devnull, os.O_RDONLY), socket.socket().detach()]
        descriptors = data.draw(st.permutations(left.descriptors + others))
        taken = take_in(worker, bytes(records), list(descriptors))
        assert taken + len([fd for fd in descriptors if not is_open(fd)]) == len(descriptors)
        with worker.attach(new_epoch(), features=ALL) as again:
            again.open()
            key = int.from_bytes(records[:8], "big") if len(records) >= 8 else 0
            again.send("XTS_CMD_CLAIM", xts_socket=5, token=1, key=key, post_credits=WINDOW, unread=0)
            assert again.expect("XTS_REPLY_CLAIM_ACK").error in (0, errno.EBUSY, errno.ENOBUFS)
        left.descriptors = []
        left.close()
