"""Connections with a key, by which other processes may ask for them, go to another worker by raw messages."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from beds.examples import examples
from beds.handover import Connection, connected, server
from beds.moves import MOVE, Left, ask, claim, is_open, moved, take_in, waits
from beds.moves import take as take_channel
from beds.scripted_host import WINDOW, ScriptedHost, Worker, worker_ffi, worker_lib
from beds.share import KEEP_MS, SHARE, goodbye, new_epoch, new_key, other_worker, share, worker
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

__all__ = ["other_worker", "server", "worker"]  # fixtures

OLDER = SHARE | MOVE | table.FEATURES["TAKE"][0]
FEATURES = OLDER | table.FEATURES["MOVE_NAMED"][0]
USE = 3
END, STREAM = 0, 1


def take(host: ScriptedHost, key: int, purpose: int = USE) -> codec.Frame:
    number = host.new_socket()
    host.send("XTS_CMD_TAKE", xts_socket=number, token=9, key=key, post_credits=WINDOW, purpose=purpose)
    answer = host.expect("XTS_REPLY_TAKE_ACK")
    assert (answer.id, answer.fields["token"]) == (number, 9)
    return answer


def taken(host: ScriptedHost, key: int) -> tuple[Connection, codec.Frame]:
    deadline = time.monotonic() + 5
    while (answer := take(host, key)).error == errno.EBUSY:  # of another channel, which may end in turns
        assert time.monotonic() < deadline
    assert answer.error == 0, errno.errorcode[answer.error]
    fields = answer.fields
    return Connection(host, answer.id, fields["proxy_id"], fields["post_credits"]), answer


def claimed(host: ScriptedHost, left: Left, was: Connection, *, unread: int = 0) -> Connection:
    """The host claims what it had."""
    number = host.new_socket()
    id, credits = claim(host, left.ticket, was.proxy_id, number, unread=unread)
    return Connection(host, number, id, credits)


@dataclass
class Bed:
    """A process that holds a connection with a key, in front of `worker`, and the worker to which it goes."""

    worker: Worker
    next: Worker
    holder: ScriptedHost
    key: int
    held: Connection
    peer: socket.socket

    @contextlib.contextmanager
    def process(self, epoch: int | None = None, features: int = FEATURES) -> Iterator[ScriptedHost]:
        """Another one there, or the holder after the move."""
        with self.next.attach(epoch or new_epoch(), features=features) as made:
            yield made.open()

    def resumes(self, left: Left) -> tuple[int, ScriptedHost]:
        """The channel of the holder, there: its number, and the holder, which has not noticed."""
        return self.next.resume(left.ticket, left.epoch, left.known, features=FEATURES)

    @contextlib.contextmanager
    def moves(self) -> Iterator[Left]:
        left = moved(self.holder, self.worker, self.next)
        try:
            yield left
        finally:
            left.close()


@pytest.fixture
def bed(worker: Worker, other_worker: Worker, server: socket.socket) -> Iterator[Bed]:
    with worker.attach(new_epoch(), features=FEATURES) as holder:
        held, peer = connected(holder.open(), server)
        key = new_key()
        assert share(holder, key, held.proxy_id, held.number, KEEP_MS).error == 0
        with peer:
            yield Bed(worker, other_worker, holder, key, held, peer)


def tell(worker: Worker, key: int) -> None:
    """The supervisor, whose endpoint has attached its processes."""
    given = worker_ffi.new("uint64_t[]", [key])
    assert worker_lib.xts_worker_keys_over(worker.native, worker.tenant, given, 1) == 0


def say(host: ScriptedHost, epoch: int, key: int) -> None:
    """The agent, on the queue of this host."""
    ways = {"destination": host.queue.peer_mac, "source": host.queue.local_mac}
    host.raw(codec.encode(codec.Frame("XTS_LINK_OVER", {"epoch": epoch}, struct.pack(">Q", key), **ways)))


@pytest.mark.parametrize("by", ["supervisor", "agent"])
@pytest.mark.parametrize("when", ["before it comes", "before the end of its host", "after that"])
def test_no_process_has_it_any_more(bed: Bed, by: str, when: str) -> None:
    """Nobody has claimed it: it ends, as that of one process does."""

    def over(left: Left, host: ScriptedHost) -> None:
        if by == "supervisor":
            tell(bed.next, bed.key)
        else:
            say(host, left.epoch, bed.key)

    with bed.process(features=FEATURES | table.FEATURES["OVER"][0]) as other:
        if when == "before it comes":
            if by == "supervisor":
                tell(bed.next, bed.key)
            else:
                say(other, other.epoch, bed.key)
        bed.held.send(b"last")
        with bed.moves() as left, bed.resumes(left)[1] as holder:
            if when == "before the end of its host":
                over(left, holder)
            goodbye(holder)
            if when == "after that":
                bed.next.wait(lambda s: s.parked_connections == 1 and s.channels_up == 1, "it is not parked")
                over(left, holder)
            bed.peer.settimeout(5)
            assert bed.peer.recv(5, socket.MSG_WAITALL) == b"last"
            bed.next.wait(lambda s: s.parked_connections == 0, "it is kept")
            assert take(other, bed.key).error in (errno.ENOENT, errno.EBUSY)


def test_its_host_claims_it_and_others_ask_for_it(bed: Bed) -> None:
    """Before that they ask again. Bytes that are given back come first."""
    bed.peer.sendall(b"not read")
    while len(bed.held.received) < 8:
        bed.held.receive()
    with bed.moves() as left, bed.process() as asker, bed.process() as holder:
        assert take(asker, bed.key).error == errno.EBUSY
        held = claimed(holder, left, bed.held, unread=8)
        assert take(asker, bed.key).error == errno.EBUSY
        assert holder.expect("XTS_REPLY_YIELD").id == held.number
        assert held.park(bed.key).error == 0
        holder.send("XTS_CMD_RETURN", b"not read", key=bed.key, kind=STREAM, record_bytes=0)
        holder.send("XTS_CMD_RETURN", key=bed.key, kind=END, record_bytes=0)
        mine, answer = taken(asker, bed.key)
        assert not answer.fields["died"]
        bed.peer.sendall(b", and on")
        while len(mine.received) < 16:
            mine.receive()
        assert mine.received == b"not read, and on"
        mine.send(b"answer")
        assert bed.peer.recv(10) == b"answer"


def test_its_host_may_name_it_again(bed: Bed) -> None:
    """As it does with a key that the process before has not heard of."""
    with bed.moves() as left, bed.process() as asker, bed.process() as holder:
        held = claimed(holder, left, bed.held)
        assert share(holder, bed.key, held.proxy_id, held.number, KEEP_MS).error == 0
        assert take(asker, bed.key, 0).error == errno.EBUSY


def test_its_host_has_died_and_never_noticed(bed: Bed) -> None:
    """Others get it, with the counts that it had left them."""
    bed.held.send(b"seven b")
    assert bed.peer.recv(10) == b"seven b"
    with bed.moves() as left, bed.process() as asker:
        number, _ = bed.resumes(left)
        assert take(asker, bed.key).error == errno.EBUSY
        bed.next.remove_channel(number)
        mine, answer = taken(asker, bed.key)
        fields = answer.fields
        assert fields["died"] and (fields["delivered_bytes"], fields["accepted_bytes"]) == (0, 7)
        mine.send(b"goes on")
        assert bed.peer.recv(10) == b"goes on"


def test_its_host_has_noticed_and_died(bed: Bed) -> None:
    """Nobody can tell which of its counts are true."""
    with bed.moves() as left, bed.process() as asker:
        number, holder = bed.resumes(left)
        with holder.open():
            assert take(asker, bed.key).error == errno.EBUSY
            bed.next.remove_channel(number)
        with pytest.raises(ConnectionResetError):
            bed.peer.recv(1)


def test_one_that_no_process_holds(bed: Bed) -> None:
    """It was given up for one that has not asked again: it goes with another channel of its tenant."""
    assert bed.held.park(bed.key).error == 0
    bed.holder.send("XTS_CMD_RETURN", b"", key=bed.key, kind=END, record_bytes=0)
    bed.worker.wait(lambda s: s.parked_connections == 1, "it is not parked")
    with bed.moves() as left, bed.process() as asker:
        assert left.ticket
        assert take(asker, bed.key).error == errno.EBUSY, "its channel may still be given back"
        bed.resumes(left)
        mine, answer = taken(asker, bed.key)
        assert not answer.fields["died"]
        mine.send(b"goes on")
        assert bed.peer.recv(10) == b"goes on"


def test_bytes_that_are_being_returned(bed: Bed) -> None:
    """The time is over, and not all have come: without the rest nobody may have it."""
    assert ask(bed.worker, within_ms=50) == 0
    bed.peer.sendall(b"not read")
    while len(bed.held.received) < 8:
        frame = bed.holder.receive()
        if frame.name != "XTS_REPLY_MOVE":
            bed.held.take(frame)
    assert bed.held.park(bed.key).error == 0
    bed.holder.send("XTS_CMD_RETURN", b"not ", key=bed.key, kind=STREAM, record_bytes=0)
    left = take_channel(bed.worker)
    assert left.descriptors == []
    with pytest.raises(ConnectionResetError):
        bed.peer.recv(1)
    left.close()


def test_a_key_that_nobody_knows_may_come(bed: Bed) -> None:
    with bed.process() as asker, bed.moves():
        assert take(asker, new_key()).error == errno.EBUSY


def test_a_host_of_an_earlier_version_keeps_it_where_it_is(worker: Worker, server: socket.socket) -> None:
    with worker.attach(new_epoch(), features=OLDER) as holder:
        held, peer = connected(holder.open(), server)
        with peer:
            assert share(holder, new_key(), held.proxy_id, held.number, KEEP_MS).error == 0
            assert waits(worker) == (errno.EBUSY, {"other processes may ask for it": 1})


def test_a_second_move_before_its_host_has_noticed(bed: Bed, worker: Worker) -> None:
    with bed.moves() as left:
        number, _ = bed.resumes(left)
        assert ask(bed.next, queue=number) == 0
        again = take_channel(bed.next, number)
        assert take_in(worker, again.records, again.descriptors) == 1
        again.descriptors = []
        with (
            worker.attach(new_epoch(), features=FEATURES) as asker,
            worker.attach(new_epoch(), features=FEATURES) as holder,
        ):
            assert take(asker.open(), bed.key).error == errno.EBUSY
            held = claimed(holder.open(), again, bed.held)
            assert take(asker, bed.key).error == errno.EBUSY
            assert holder.expect("XTS_REPLY_YIELD").id == held.number
        again.close()


@given(data=st.data())
@examples(40)
def test_what_a_note_says_is_not_believed(data: st.DataObject) -> None:
    """Whatever is in it, the worker goes on, and no descriptor is left."""
    with (
        Worker() as worker,
        Worker(tenant=worker.tenant) as to,
        worker.attach(features=FEATURES) as host,
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        held, peer = connected(host.open(), listening)
        assert share(host, new_key(), held.proxy_id, held.number, KEEP_MS).error == 0
        assert ask(worker) == 0
        left = take_channel(worker)
        record, note = left.records[:-28], left.records[-28:]
        key, _, name, keep_ms, kind = struct.unpack(">QIQII", note)
        assert kind == 1 and keep_ms == KEEP_MS
        made = struct.pack(
            ">QIQII",
            data.draw(st.sampled_from([key, name, 0, key + 1])),
            data.draw(st.sampled_from([2**32 - 2, 2**32 - 1, 0])),
            data.draw(st.sampled_from([name, key, 0])),
            data.draw(st.sampled_from([0, 60_000, 60_001, 2**32 - 1])),
            data.draw(st.integers(0, 5)),
        )
        notes = made * data.draw(st.integers(1, 3))
        notes = notes[: data.draw(st.integers(0, len(notes)))]
        assert take_in(to, record + notes, list(left.descriptors)) == 1
        assert is_open(left.descriptors[0])
        left.descriptors = []
        left.close()
        peer.close()
