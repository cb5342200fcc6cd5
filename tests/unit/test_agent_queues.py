"""The agent's queues, with an opener made by hand: those that processes got from an earlier agent."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from xts_agent import accounts, queue_pool
from xts_agent.opener_protocol import GEOMETRY_BYTES, Answer, Ask, Request, Say, send_ready
from xts_agent.queue_pool import FOUND_S, KEPT_AFTER_S, Pool
from xts_bpf.program import Owner
from xts_messages.endpoint import NotReady

UID = 1234


class Opener:
    """Two queues. An earlier agent gave the first one to a process, and its descriptors are still open somewhere."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.busy = {0}
        send_ready(connection, [Owner(1, UID, os.getpid()), None])

    def answer(self) -> list[int]:
        """Carries out what was asked for; the queues."""
        asked = []
        while True:
            try:
                request = Request.unpack(self.connection.recv(64, socket.MSG_DONTWAIT), 2)
            except BlockingIOError:
                return asked
            assert request.ask is Ask.OPEN
            number, asked_as = request.queue_id, request.number
            asked.append(number)
            if number in self.busy:
                Answer(Say.OPENED, number, asked_as, errno.EBUSY, "busy").send(self.connection)
            else:
                geometry = bytes(GEOMETRY_BYTES)
                Answer(Say.OPENED, number, asked_as, geometry=geometry, descriptors=(0, 0)).send(self.connection)


class Bed:
    def __init__(self, ours: socket.socket, theirs: socket.socket, clock: SimpleNamespace) -> None:
        self.clock = clock
        self.opener = Opener(theirs)
        self.pool = Pool("xts0", ours, 1)

    def turn(self) -> list[int]:
        """As the agent's loop; the queues that it had opened, or tried to."""
        self.pool.refill()
        asked = self.opener.answer()
        self.pool.collect()
        return asked

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds

    def check_user(self) -> None:
        accounts.check_user([self.pool], UID, 1, "xts0")


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(queue_pool, "time", SimpleNamespace(monotonic=lambda: clock.now))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield Bed(ours, theirs, clock)


def test_a_queue_of_an_earlier_agent_may_come_free_in_a_moment(bed: Bed) -> None:
    """Its process, or the earlier opener, may be about to end: who asks for a queue waits, and gets it."""
    bed.turn()
    with pytest.raises(NotReady):
        bed.check_user()
    assert bed.pool.take(UID + 1)
    assert not bed.pool.take(UID)
    assert not bed.pool.exhausted()
    bed.opener.busy.clear()
    bed.pass_time(queue_pool.STEP_S)
    while bed.pool.charged(UID):
        bed.turn()
    bed.check_user()
    assert bed.pool.take(UID)


def find_it_kept(bed: Bed) -> None:
    bed.turn()
    assert bed.pool.take(UID + 1)
    bed.pass_time(KEPT_AFTER_S)
    bed.turn()
    assert bed.pool.exhausted()


def test_a_queue_of_an_earlier_agent_that_is_in_use(bed: Bed) -> None:
    find_it_kept(bed)
    with pytest.raises(OSError, match=r"user 1234 has 1 queues of xts0, the most allowed$"):
        bed.check_user()


def test_nobody_is_refused_for_what_was_found_long_ago(bed: Bed) -> None:
    """Before it is tried again at its time, a kept queue is tried for who asks."""
    find_it_kept(bed)
    bed.pass_time(FOUND_S)
    for _ in range(2):
        assert not bed.pool.exhausted()
        with pytest.raises(NotReady):
            bed.check_user()
        bed.pool.look_again()
        assert bed.turn() == [0]
        assert bed.pool.exhausted()  # it is kept still
        bed.pass_time(FOUND_S)
    bed.opener.busy.clear()
    bed.pool.look_again()
    bed.turn()
    bed.check_user()
    assert bed.pool.take(UID)


def test_spares_are_opened_whatever_an_earlier_agent_gave_away(bed: Bed) -> None:
    assert bed.turn() == [0, 1]
    assert bed.pool.take(UID + 1)
