"""The agent's queues, with an opener made by hand: those that processes got from an earlier agent."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from xts_agent import accounts, queue_pool
from xts_agent.opener_protocol import GEOMETRY_BYTES, Answer, Ask, Request, Say, send_ready
from xts_agent.queue_pool import FOUND_S, KEPT_AFTER_S, Pool
from xts_bpf.program import Owner
from xts_messages.attaching.attachments import NotReady
from xts_messages.native import ffi
from xts_messages.queues.afxdp import CHUNK, SMALL_CHUNK

UID = 1234


class Opener:
    """Two queues. An earlier agent gave the first one to a process, and its descriptors are still open somewhere."""

    def __init__(self, connection: socket.socket, owner: Owner | None) -> None:
        self.connection = connection
        self.busy = {0}
        self.chunk_bytes = CHUNK  # of what it opens, if it may
        self.large: list[int] = []  # queues that were to have chunks which each library knows
        send_ready(connection, [owner, None])

    def answer(self) -> list[int]:
        """Carries out what was asked for; the queues."""
        asked = []
        while True:
            try:
                request = Request.unpack(self.connection.recv(64, socket.MSG_DONTWAIT), 2)
            except BlockingIOError:
                return asked
            assert request.ask in (Ask.OPEN, Ask.OPEN_LARGE)
            number, asked_as = request.queue_id, request.number
            asked.append(number)
            if number in self.busy:
                Answer(Say.OPENED, number, asked_as, errno.EBUSY, "busy").send(self.connection)
            else:
                made = ffi.new("struct xts_attach_reply *", {"chunk_bytes": self.chunk_bytes})
                if request.ask is Ask.OPEN_LARGE:
                    made.chunk_bytes = CHUNK
                    self.large.append(number)
                geometry = bytes(ffi.buffer(made))
                Answer(Say.OPENED, number, asked_as, geometry=geometry, descriptors=(0, 0)).send(self.connection)


class Bed:
    def __init__(self, ours: socket.socket, theirs: socket.socket, clock: SimpleNamespace, owner: Owner | None) -> None:
        self.clock = clock
        self.opener = Opener(theirs, owner)
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


@contextlib.contextmanager
def made_bed(monkeypatch: pytest.MonkeyPatch, owner: Owner | None) -> Iterator[Bed]:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(queue_pool, "time", SimpleNamespace(monotonic=lambda: clock.now))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield Bed(ours, theirs, clock, owner)


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    with made_bed(monkeypatch, Owner(1, UID, os.getpid())) as made:
        yield made


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    """Who has the first queue is not known: the XDP program was taken off meanwhile, and its map with it."""
    with made_bed(monkeypatch, None) as made:
        yield made


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


def test_a_busy_queue_of_nobody_that_is_known_is_in_use(nameless: Bed) -> None:
    """So that who asks is not left waiting for it, and goes to the relay. It is tried again for who asks next."""
    pool, opener = nameless.pool, nameless.opener
    pool.reserved, pool.spares_wanted = 1, 0
    assert nameless.turn() == [0, 1]
    assert not pool.take(UID)
    assert not pool.exhausted(), "it may have been closed a moment ago"
    nameless.pass_time(KEPT_AFTER_S)
    assert nameless.turn() == [0]
    assert pool.exhausted()
    assert pool.take(UID, relay=True) is None, "one is reserved"
    nameless.pass_time(FOUND_S)
    opener.busy.clear()
    pool.look_again()
    assert nameless.turn() == [0]
    assert pool.take(UID)


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


class Scripted:
    """An opener of which the test decides when it answers."""

    def __init__(self, queues: int = 2) -> None:
        ours, self.connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.queues = queues
        self.null = os.open(os.devnull, os.O_RDONLY)
        send_ready(self.connection, [None] * queues)
        self.pool = Pool("xts0", ours, 0)
        self.pool.refill()
        for request in self.requests():
            self.open(request)
        self.pool.collect()

    def requests(self) -> list[Request]:
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(Request.unpack(self.connection.recv(64, socket.MSG_DONTWAIT), self.queues))
        return found

    def open(self, request: Request) -> None:
        assert request.ask is Ask.OPEN
        geometry, fds = bytes(GEOMETRY_BYTES), (self.null, self.null)
        answer = Answer(Say.OPENED, request.queue_id, request.number, geometry=geometry, descriptors=fds)
        answer.send(self.connection)

    def done(self, request: Request) -> None:
        Answer(Say.DONE, request.queue_id, request.number).send(self.connection)

    def another(self) -> None:
        """The next opener, which has said nothing yet."""
        self.connection.close()
        ours, self.connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pool.renew(ours)

    def states(self) -> list[str]:
        return [slot.state.value for slot in self.pool.slots]

    def close(self) -> None:
        self.connection.close()
        self.pool.close()
        os.close(self.null)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    monkeypatch.setattr(queue_pool, "ANSWER_S", 0.1)
    made = Scripted()
    yield made
    made.close()


def test_a_late_answer_is_no_answer_to_another_request(scripted: Scripted) -> None:
    """The opener is slow once. Nobody gets a queue that it has not admitted, and it is not given up."""
    pool, owner = scripted.pool, Owner(7, UID, 1)
    slot = pool.take(UID)
    assert slot
    with pytest.raises(NotReady):
        pool.admit(slot, owner)
    assert not pool.take(UID + 1), "no other request is made while an answer is due, though another queue is ready"
    late, release = scripted.requests()
    assert (late.ask, release.ask) == (Ask.ADMIT, Ask.RELEASE)
    scripted.done(late)
    scripted.done(release)
    assert pool.collect(), "those who wait are asked again"
    other = pool.take(UID + 1)
    assert other and other is not slot
    with pytest.raises(NotReady):
        pool.admit(other, owner)


def test_half_an_answer_is_the_end_of_an_opener(scripted: Scripted) -> None:
    scripted.connection.send(b"\x12")
    assert not scripted.pool.collect()
    assert scripted.states() == ["closed", "closed"]
    assert scripted.pool.fileno() == -1


def test_another_opener_takes_up_what_the_one_before_has_left(scripted: Scripted) -> None:
    pool, owner = scripted.pool, Owner(7, UID, 1)
    taken: list[int] = []
    pool.taken = lambda slot: taken.append(slot.queue_id)
    slot = pool.take(UID)
    assert slot
    threading.Timer(0.01, lambda: scripted.done(scripted.requests()[0])).start()
    for fd in pool.admit(slot, owner):
        os.close(fd)
    scripted.connection.close()
    pool.collect()
    assert scripted.states() == ["used", "closed"], "the ready queue is lost with the opener that could admit it"
    pool.release(slot)
    assert not pool.take(UID)
    assert not pool.exhausted(), "so that who asks waits"
    scripted.another()
    pool.collect()
    assert not scripted.requests(), "it is asked for nothing before it is ready"
    send_ready(scripted.connection, [owner, None])
    pool.collect()
    asked = [(request.ask, request.queue_id) for request in scripted.requests()]
    assert asked == [(Ask.RELEASE, 0), (Ask.OPEN, 0), (Ask.OPEN, 1)]
    assert not taken


def test_a_queue_in_use_that_another_opener_does_not_find_has_ended(scripted: Scripted) -> None:
    """As when the interface was made again meanwhile: nothing arrives there any more."""
    pool = scripted.pool
    taken: list[int] = []
    pool.taken = lambda slot: taken.append(slot.queue_id)
    slot = pool.take(UID)
    assert slot
    scripted.another()
    send_ready(scripted.connection, [None, None])
    pool.collect()
    assert taken == [0]


def test_an_opener_that_cannot_begin_is_told_once(scripted: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        scripted.another()
        Answer(Say.READY, error=errno.ENODEV, text="no interface").send(scripted.connection)
        scripted.connection.close()
        scripted.pool.collect()
        assert scripted.pool.fileno() == -1
    assert caplog.text.count("no interface") == 1


def test_a_library_of_before_gets_a_queue_with_chunks_that_it_knows(nameless: Bed) -> None:
    """One that is ready is opened again for it, and again when it has ended; others have what there is."""
    pool, opener = nameless.pool, nameless.opener
    opener.busy.clear()
    opener.chunk_bytes = SMALL_CHUNK
    pool.spares_wanted = 0
    assert nameless.turn() == [0, 1]
    assert pool.take(UID, small_chunks=False) is None
    assert pool.take(UID, small_chunks=False) is None, "one is enough"
    assert not pool.exhausted()
    other = pool.take(UID + 1)
    assert other and other.has_small_chunks
    nameless.turn()
    assert len(opener.large) == 1
    slot = pool.take(UID, small_chunks=False)
    assert slot and not slot.has_small_chunks and slot.queue_id != other.queue_id
    pool.release(slot)
    opener.connection.recv(64)  # RELEASE
    nameless.turn()
    again = pool.take(UID + 1)
    assert again is slot and again.has_small_chunks and len(opener.large) == 1


def test_a_queue_that_is_opened_for_a_library_of_before_comes_first(nameless: Bed) -> None:
    """Also where only one is kept open, and when it was busy for a moment."""
    pool, opener = nameless.pool, nameless.opener
    opener.busy.clear()
    opener.chunk_bytes = SMALL_CHUNK
    assert nameless.turn() == [0]
    assert not pool.take(UID, small_chunks=False)
    opener.busy.add(0)
    nameless.turn()
    assert not pool.take(UID, small_chunks=False)
    opener.busy.clear()
    nameless.pass_time(queue_pool.STEP_S)
    nameless.turn()
    assert opener.large == [0]
    slot = pool.take(UID, small_chunks=False)
    assert slot and slot.queue_id == 0


def test_who_knows_small_chunks_leaves_others_for_who_does_not(nameless: Bed) -> None:
    pool, opener = nameless.pool, nameless.opener
    opener.busy.clear()
    opener.chunk_bytes = SMALL_CHUNK
    pool.spares_wanted = 0
    nameless.turn()
    assert not pool.take(UID, small_chunks=False)
    nameless.turn()
    slot = pool.take(UID + 1)
    assert slot and slot.has_small_chunks
    slot = pool.take(UID, small_chunks=False)
    assert slot and not slot.has_small_chunks
