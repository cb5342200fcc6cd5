"""In what order a connection that several processes have goes to those who ask for it, by a clock of the test."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Self

import pytest
from beds.handover import Connection, connected, server
from beds.scripted_host import WINDOW, ScriptedHost, Worker
from beds.share import KEEP_MS, Join, goodbye, new_epoch, new_key, share
from beds.worker_clock import MS, Clock, clock, worker
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

__all__ = ["clock", "server", "worker"]  # fixtures

FEATURES = table.FEATURES["SHARE"][0] | table.FEATURES["TAKE"][0]
NOBODY, POLL, RECEIVE, USE = range(4)


@pytest.fixture
def join() -> Iterator[Join]:
    """Attaches hosts that speak TAKE."""
    with contextlib.ExitStack() as stack:
        yield lambda worker: stack.enter_context(worker.attach(new_epoch(), features=FEATURES)).open()


class Held:
    """A connection that has a key, and the host that has it. A context manager."""

    def __init__(self, holder: ScriptedHost, server: socket.socket) -> None:
        self.holder, self.key = holder, new_key()
        self.connection, self.peer = connected(holder, server)
        assert share(holder, self.key, self.connection.proxy_id, self.connection.number).error == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.close()

    def _take(self, host: ScriptedHost, purpose: int, key: int = 0) -> codec.Frame:
        fields = {"xts_socket": host.new_socket(), "token": 9, "post_credits": WINDOW, "purpose": purpose}
        host.send("XTS_CMD_TAKE", key=key or self.key, **fields)
        return host.expect("XTS_REPLY_TAKE_ACK")

    def refused(self, host: ScriptedHost, purpose: int) -> bool:
        return self._take(host, purpose).error == errno.EBUSY

    def taken(self, host: ScriptedHost, purpose: int) -> bool:
        answer = self._take(host, purpose)
        self.holder = host
        self.connection = Connection(host, answer.id, answer.fields["proxy_id"], answer.fields["post_credits"])
        return answer.error == 0

    def park(self) -> None:
        """Whether YIELD has come before or not."""
        fields = {"xts_socket": self.connection.number, "token": 7, "key": self.key, "keep_ms": KEEP_MS}
        self.holder.send("XTS_CMD_PARK", id=self.connection.proxy_id, **fields)
        while (frame := self.holder.receive()).name == "XTS_REPLY_YIELD":
            pass
        assert (frame.name, frame.error) == ("XTS_REPLY_PARK_ACK", 0)
        self.holder.send("XTS_CMD_RETURN", key=self.key)
        assert self._take(self.holder, USE, new_key()).error == errno.ENOENT  # that has arrived


@pytest.mark.parametrize("place", ["same worker", "other worker"])
def test_it_goes_to_who_asked_and_not_back_at_once(
    worker: Worker, clock: Clock, join: Join, server: socket.socket, place: str
) -> None:
    with Worker(tenant=worker.tenant, clock_ns=clock.callback) as other_worker:
        holder, asker = join(worker), join(worker if place == "same worker" else other_worker)
        with Held(holder, server) as held:
            assert held.refused(asker, USE)
            held.park()
            for purpose in (RECEIVE, USE, NOBODY):
                assert held.refused(holder, purpose)
            assert held.taken(asker, USE)
            assert held.refused(holder, RECEIVE)
            held.park()
            assert held.refused(asker, RECEIVE)
            assert held.taken(holder, RECEIVE)


def test_who_needs_it_most_goes_first_and_then_those_that_were_passed_over(
    worker: Worker, join: Join, server: socket.socket
) -> None:
    """These in the order in which they asked."""
    holder, polls, receives, uses, uses_later = (join(worker) for _ in range(5))
    with Held(holder, server) as held:
        waiting = [(polls, POLL), (receives, RECEIVE), (uses, USE), (uses_later, USE)]
        for host, purpose in waiting:
            assert held.refused(host, purpose)
        for first in ((uses, USE), (polls, POLL), (receives, RECEIVE), (uses_later, USE)):
            waiting.remove(first)
            held.park()
            for host, purpose in waiting:
                assert held.refused(host, purpose)
            assert held.taken(*first)


def test_who_asks_no_more_keeps_the_others_waiting_for_its_time_only(
    worker: Worker, clock: Clock, join: Join, server: socket.socket
) -> None:
    holder, asker = join(worker), join(worker)
    with Held(holder, server) as held:
        assert held.refused(asker, USE)
        goodbye(asker)
        held.park()
        assert held.refused(holder, RECEIVE)
        clock.now_ns += 30 * MS
        assert held.refused(holder, RECEIVE)
        clock.now_ns += 30 * MS
        assert held.taken(holder, RECEIVE)


def test_a_place_is_kept_by_asking_again(worker: Worker, clock: Clock, join: Join, server: socket.socket) -> None:
    holder, first, second = join(worker), join(worker), join(worker)
    with Held(holder, server) as held:
        for _ in range(3):
            assert held.refused(first, USE)
            assert held.refused(second, USE)
            clock.now_ns += 30 * MS
        held.park()
        assert held.refused(second, USE)
        assert held.taken(first, USE)


def test_nobody_is_passed_over_all_the_time(worker: Worker, join: Join, server: socket.socket) -> None:
    """By one that needs it more, and takes it back whenever it has given it up."""
    sender, reader = join(worker), join(worker)
    with Held(sender, server) as held:
        for _ in range(3):
            assert held.refused(reader, POLL)
            held.park()
            assert held.taken(sender, USE), "it needs it more"
            assert held.refused(reader, POLL)
            held.park()
            assert held.refused(sender, USE)
            assert held.taken(reader, POLL)
            assert held.refused(sender, USE)
            held.park()
            assert held.taken(sender, USE)


@pytest.mark.parametrize("stopped_ms", [60, 300, 490])
def test_who_is_stopped_again_and_again_has_its_turn(
    worker: Worker, clock: Clock, join: Join, server: socket.socket, stopped_ms: int
) -> None:
    """It goes on just long enough to ask once. The others have it meanwhile, and then wait for it."""
    sender, slow, other = join(worker), join(worker), join(worker)
    with Held(sender, server) as held:
        for _ in range(2):
            assert held.refused(slow, RECEIVE)
            held.park()
            clock.now_ns += stopped_ms * MS
            assert held.taken(sender, USE)
            assert held.refused(slow, RECEIVE)
            held.park()
            clock.now_ns += stopped_ms * MS
            assert held.refused(sender, USE) and held.refused(other, USE)
            assert held.taken(slow, RECEIVE)
            held.park()
            assert held.taken(sender, USE)
            held.park()
            assert held.taken(other, USE)
            held.park()
            assert held.taken(sender, USE)


def test_who_has_left_is_not_waited_for(worker: Worker, clock: Clock, join: Join, server: socket.socket) -> None:
    """Who asks for it now and then, and not before the others have had it for a second, is as one that is new. And who
    was waited for longer, and does not come again, is waited for once."""
    sender, rare = join(worker), join(worker)
    with Held(sender, server) as held:
        for _ in range(3):
            assert held.refused(rare, USE)
            held.park()
            clock.now_ns += 51 * MS
            assert held.taken(sender, USE)
            clock.now_ns += 1000 * MS
        assert held.refused(rare, USE)
        held.park()
        clock.now_ns += 400 * MS
        assert held.taken(sender, USE)
        assert held.refused(rare, USE)
        held.park()
        clock.now_ns += 700 * MS
        assert held.refused(sender, USE)
        clock.now_ns += 150 * MS
        assert held.taken(sender, USE)
        held.park()
        assert held.taken(sender, USE)


def test_who_is_late_gives_its_place_to_who_asks(
    worker: Worker, clock: Clock, join: Join, server: socket.socket
) -> None:
    """There are few."""
    holder, *late = (join(worker) for _ in range(9))
    asker = join(worker)
    with Held(holder, server) as held:
        for host in late:
            assert held.refused(host, USE)
        clock.now_ns += 51 * MS
        assert held.refused(asker, POLL)
        held.park()
        assert held.refused(holder, POLL), "it has a place"
        assert held.taken(asker, POLL)


def test_places_are_charged_and_few(worker: Worker, join: Join, server: socket.socket) -> None:
    """Who needs it more than the last of those that have a place gets that one's."""
    holder, *askers = (join(worker) for _ in range(11))
    with Held(holder, server) as held:
        assert worker.used("kept_bytes") == 0
        assert held.refused(askers[0], RECEIVE)
        charged = worker.used("kept_bytes")
        assert 0 < charged < 1000
        for asker in askers[1:]:
            assert held.refused(asker, RECEIVE)
        assert held.refused(askers[9], USE)
        assert worker.used("kept_bytes") == charged
        held.park()
        assert held.refused(askers[0], RECEIVE)
        assert held.taken(askers[9], USE)
        held.connection.close()
        assert held.peer.recv(1) == b""
        worker.wait(lambda s: s.connections == 0, "left over")
        assert worker.used("kept_bytes") == 0


def test_without_a_budget_for_places_the_next_that_asks_has_it(join: Join, server: socket.socket) -> None:
    with Worker(kept_bytes=16) as worker:
        holder, asker = join(worker), join(worker)
        with Held(holder, server) as held:
            assert held.refused(asker, USE)
            held.park()
            assert held.taken(holder, RECEIVE)
