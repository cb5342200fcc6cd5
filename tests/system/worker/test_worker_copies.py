"""Datagrams of a group for several sockets of one host: one copy crosses the queue, and each socket gets its own. All
on loopback."""

from __future__ import annotations

import errno
import random
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from beds.datagrams import FEATURES, LOOPBACK, WINDOW, Udp, endpoint_of
from beds.scripted_host import ScriptedHost, Worker
from beds.worker_clock import Clock
from xts_messages import wire_table as table
from xts_messages.codec import Endpoint
from xts_messages.datagram import Copies, Datagram, decode_copies

COPIES = table.FEATURES["COPIES"][0]
IP, IP_MULTICAST_ALL, IP_PKTINFO, IP_BLOCK_SOURCE, IP_RECVTTL = socket.IPPROTO_IP, 49, 8, 38, 12
GROUP, OTHER = "239.7.8.1", "239.7.8.2"


def mreq(group: str, interface: str = LOOPBACK) -> bytes:
    return socket.inet_aton(group) + socket.inet_aton(interface)


class Members:
    """Sockets of one host on one port; what comes is read at once, and in `got` by the number of the socket."""

    def __init__(self, host: ScriptedHost, count: int, window: int = WINDOW) -> None:
        self.host, self.port = host, 0
        self.sockets: list[Udp] = []
        self.got: dict[int, list[Datagram]] = {}
        self.messages: Counter[str] = Counter()
        self.shared: list[list[Copies]] = []
        for _ in range(count):
            self.add(window)

    def add(self, window: int = WINDOW, group: str | None = GROUP) -> Udp:
        udp = Udp.open(self.host, window)
        assert udp.set(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1) == 0
        answer = udp.bind(Endpoint.of("0.0.0.0", self.port))
        assert answer.error == 0, errno.errorcode[answer.error]
        self.port = answer.fields["local"].port
        assert udp.set(IP, IP_MULTICAST_ALL, 0) == 0
        if group:
            assert udp.set(IP, socket.IP_ADD_MEMBERSHIP, mreq(group)) == 0
        self.sockets.append(udp)
        self.got[udp.number] = []
        return udp

    def take(self) -> None:
        """The next message."""
        frame = self.host.receive()
        self.messages[frame.name] += 1
        if frame.name == "XTS_REPLY_RECV_COPIES":
            assert frame.id == 0 and not frame.flags
            copies, datagrams = decode_copies(frame.fields["sockets"], frame.payload)
            assert len(datagrams) == frame.fields["records"]
            self.shared.append(copies)
            for each in copies:
                self.give(each.xts_socket, datagrams[each.first : each.first + each.count], each.dropped)
            return
        assert frame.name == "XTS_REPLY_RECV_DATAGRAMS" and not frame.error, frame
        udp = next(one for one in self.sockets if one.number == frame.id)
        whole = udp.reader.take(frame.payload, "MORE" in frame.flag_names)
        self.give(frame.id, whole, frame.fields["dropped"])

    def give(self, number: int, datagrams: list[Datagram], dropped: int) -> None:
        udp = next(one for one in self.sockets if one.number == number)
        udp.granted -= sum(each.credits for each in datagrams)
        assert udp.granted >= 0, "more than there were credits for"
        udp.owing += sum(each.credits for each in datagrams)
        udp.dropped = dropped
        self.got[number] += datagrams

    def until(self, *counts: int) -> list[list[bytes]]:
        """What the sockets have got when each has got so many."""
        while any(len(self.got[udp.number]) < count for udp, count in zip(self.sockets, counts, strict=True)):
            self.take()
        return [[each.data for each in self.got[udp.number]] for udp in self.sockets]


@contextmanager
def members(worker: Worker, count: int, features: int = FEATURES | COPIES, **changes: int) -> Iterator[Members]:
    with worker.attach(features=features, **changes) as host:
        yield Members(host.open(), count)


@pytest.fixture
def clock() -> Clock:
    return Clock(made_up=False)


@pytest.fixture
def worker(clock: Clock) -> Iterator[Worker]:
    with Worker(clock_ns=clock.callback) as made:
        yield made


@pytest.fixture
def sender() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setsockopt(IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))
        made.bind((LOOPBACK, 0))
        yield made


@contextmanager
def held(clock: Clock) -> Iterator[None]:
    """The worker does nothing: so what is sent meanwhile has come to all sockets before it looks."""
    clock.waiting.clear()
    clock.looks_left = 0
    clock.going.clear()
    yield
    assert clock.waiting.wait(5), "nothing has woken the worker"
    clock.going.set()


def send(sender: socket.socket, clock: Clock, port: int, *words: bytes, group: str = GROUP) -> None:
    with held(clock):
        for word in words:
            sender.sendto(word, (group, port))


def test_one_copy_crosses_for_all_members(worker: Worker, clock: Clock, sender: socket.socket) -> None:
    """Two equal datagrams stay two."""
    words = [b"one", b"same", b"same", b"", b"long" * 300]
    with members(worker, 8) as m:
        send(sender, clock, m.port, *words)
        assert m.until(*[5] * 8) == [words] * 8
        assert set(m.messages) == {"XTS_REPLY_RECV_COPIES"}
        assert all(len(copies) == 8 for copies in m.shared)
        assert sum(copies[0].count for copies in m.shared) == 5
        assert worker.stats().datagram_copies == 5 * 7 and worker.stats().datagrams_received == 5 * 8
        source = endpoint_of(sender)
        assert all(each.endpoint == source for got in m.got.values() for each in got)


def test_a_host_that_does_not_know_copies_gets_messages_of_each_socket(
    worker: Worker, clock: Clock, sender: socket.socket
) -> None:
    with members(worker, 3, features=FEATURES) as m:
        send(sender, clock, m.port, b"one", b"two")
        assert m.until(2, 2, 2) == [[b"one", b"two"]] * 3
        assert set(m.messages) == {"XTS_REPLY_RECV_DATAGRAMS"} and worker.stats().datagram_copies == 0


def test_each_socket_gets_what_its_own_options_and_filters_let_through(
    worker: Worker, clock: Clock, sender: socket.socket
) -> None:
    """Control data, another group, a blocked source, a peer: what is not the same for two sockets is not shared."""
    with members(worker, 2) as m:
        informed = m.add()
        assert informed.set(IP, IP_PKTINFO, 1) == 0
        wide = m.add()
        assert wide.set(IP, socket.IP_ADD_MEMBERSHIP, mreq(OTHER)) == 0
        blocking = m.add()
        assert blocking.set(IP, IP_BLOCK_SOURCE, mreq(GROUP) + socket.inet_aton(LOOPBACK)) == 0
        connected = m.add()
        assert connected.connect(Endpoint.of("127.0.0.2", 9)).error == 0
        with held(clock):
            for number, group in enumerate((GROUP, OTHER, GROUP, LOOPBACK, OTHER, GROUP)):
                sender.sendto(b"%d" % number, (group, m.port))
        groups = [b"0", b"2", b"5"]
        # of those that a datagram to one address is for, the one that was bound last and is not connected gets it
        assert m.until(3, 3, 3, 5, 1, 0) == [
            groups, groups, groups, [b"0", b"1", b"2", b"4", b"5"], [b"3"], [],
        ]  # fmt: skip
        assert all(each.control("PKTINFO") for each in m.got[informed.number])
        assert not any(each.controls for number, got in m.got.items() if number != informed.number for each in got)


def test_one_that_wants_something_else_does_not_come_between_others(
    worker: Worker, clock: Clock, sender: socket.socket
) -> None:
    with members(worker, 2) as m:
        assert m.add().set(IP, IP_PKTINFO, 1) == 0
        m.add()
        m.add()
        for number in range(1, 21):
            send(sender, clock, m.port, b"%d" % number)
            m.until(*[number] * 5)
        assert worker.stats().datagram_copies >= 3 * 18


def test_one_without_credits_does_not_stop_the_others(worker: Worker, clock: Clock, sender: socket.socket) -> None:
    """It gets the rest when it has read; what its receive buffer had no room for is counted, for it alone."""
    with members(worker, 2) as m:
        slow = m.add(window=table.DATAGRAM_WINDOW_MIN)
        assert slow.set(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000) == 0
        words = [b"%d" % number * 500 for number in range(100, 280)]
        for at, word in enumerate(words, 1):
            send(sender, clock, m.port, word)
            m.until(at, at, 0)
            for udp in m.sockets[:2]:
                udp.give()
        slow.give()
        send(sender, clock, m.port, b"last")
        while not (got := m.got[slow.number]) or got[-1].data != b"last":
            m.take()
        assert slow.dropped > 0 and slow.dropped + len(got) == len(words) + 1
        assert [each.data for each in got[:-1]] == words[: len(got) - 1]  # the newest were dropped
        assert [udp.dropped for udp in m.sockets[:2]] == [0, 0]


def test_what_does_not_fit_into_a_message_goes_to_each(worker: Worker, clock: Clock, sender: socket.socket) -> None:
    with members(worker, 3, largest_message=table.FRAME_BYTES_SINGLE) as m:
        words = [b"a" * 1000, b"b" * 10_000, b"c" * 1000]
        send(sender, clock, m.port, *words)
        assert m.until(3, 3, 3) == [words] * 3
        assert m.messages["XTS_REPLY_RECV_DATAGRAMS"] >= 9
        send(sender, clock, m.port, b"small")
        before = m.messages["XTS_REPLY_RECV_DATAGRAMS"]
        assert m.until(4, 4, 4)[2] == [*words, b"small"]
        assert m.messages["XTS_REPLY_RECV_DATAGRAMS"] == before


def test_many_members(worker: Worker, clock: Clock, sender: socket.socket) -> None:
    """Sockets that come and go; in one message of this size there is room for as many as these."""
    with members(worker, 60) as m:
        for udp in m.sockets[::2]:
            m.host.send("XTS_CMD_SEND", id=udp.id, flags=2)
            assert m.host.expect("XTS_REPLY_RECV").id == udp.number
        m.sockets = m.sockets[1::2]
        send(sender, clock, m.port, b"one", b"two")
        assert m.until(*[2] * 30) == [[b"one", b"two"]] * 30
        assert all(len(copies) == 30 for copies in m.shared) and set(m.messages) == {"XTS_REPLY_RECV_COPIES"}


@pytest.mark.parametrize("seed", range(4))
def test_a_host_gets_the_same_with_and_without_copies(
    seed: int, worker: Worker, clock: Clock, sender: socket.socket
) -> None:
    """Two hosts do the same, at random, and one of them knows copies."""
    choose = random.Random(seed)
    with members(worker, 0) as new, worker.attach(2, features=FEATURES) as host:
        both = (new, Members(host.open(), 0))
        joined: list[set[str]] = []
        for _ in range(choose.randint(2, 7)):
            groups = choose.sample((GROUP, OTHER), choose.randint(0, 2))
            options = [option for option in (IP_PKTINFO, IP_RECVTTL) if choose.random() < 0.2]
            joined.append(set(groups))
            for m in both:
                m.port = m.port or new.port
                udp = m.add(group=None)
                assert not any(udp.set(IP, socket.IP_ADD_MEMBERSHIP, mreq(group)) for group in groups)
                assert not any(udp.set(IP, option, 1) for option in options)
        sent: list[tuple[bytes, str]] = []
        for _ in range(30):
            with held(clock):
                for _ in range(choose.randint(1, 40)):
                    sent.append((choose.choice((b"", b"x", b"y" * 700)), choose.choice((GROUP, OTHER))))
                    sender.sendto(sent[-1][0], (sent[-1][1], new.port))
            theirs = [[word for word, group in sent if group in groups] for groups in joined]
            for m in both:
                assert m.until(*map(len, theirs)) == theirs
                for udp in m.sockets:
                    udp.give()
        controls = [[[each.controls for each in m.got[udp.number]] for udp in m.sockets] for m in both]
        assert controls[0] == controls[1]
        assert not both[1].shared
