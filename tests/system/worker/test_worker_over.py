"""An agent says which connections no process has (OVER): of which epochs, in whose tenant, and who else may say so."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Iterator

import pytest
from beds.handover import server
from beds.scripted_host import ScriptedHost, Worker, make_tenant
from beds.share import Join, goodbye, new_epoch, other_worker, worker
from system.worker.test_worker_keys_over import read_to_end
from system.worker.test_worker_take import named, take
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

__all__ = ["other_worker", "server", "worker"]  # fixtures

OLDER = table.FEATURES["SHARE"][0] | table.FEATURES["TAKE"][0]
FEATURES = OLDER | table.FEATURES["OVER"][0]


@pytest.fixture
def join() -> Iterator[Join]:
    """Attaches hosts whose agent may say OVER."""
    with contextlib.ExitStack() as stack:
        yield lambda worker: stack.enter_context(worker.attach(new_epoch(), features=FEATURES)).open()


def of_keys(*keys: int) -> bytes:
    return struct.pack(f">{len(keys)}Q", *keys)


def over(on: ScriptedHost, epoch: int, keys: bytes) -> None:
    """What an agent says on this queue."""
    ways = {"destination": on.queue.peer_mac, "source": on.queue.local_mac}
    on.raw(codec.encode(codec.Frame("XTS_LINK_OVER", {"epoch": epoch}, keys, **ways)))


def begin_again(on: ScriptedHost, worker: Worker) -> ScriptedHost:
    """Another process has the queue now."""
    hellos = worker.stats().hellos
    after = ScriptedHost(on.queue, new_epoch(), {"features": FEATURES}).open()
    worker.wait(lambda s: s.hellos == hellos + 1, "no other epoch")
    return after


def is_kept(asker: ScriptedHost, key: int) -> bool:
    return take(asker, key).error == 0


def test_of_a_process_that_lives(worker: Worker, join: Join, server: socket.socket) -> None:
    """The one that has told of it: another one had it, and has died. Nothing on the queue is disturbed."""
    teller, holder = join(worker), join(worker)
    key, first, peer = named(holder, server)
    other, second, other_peer = named(teller, server)
    with peer, other_peer:
        first.send(b"last")
        goodbye(holder)
        worker.wait(lambda s: s.parked_connections == 1, "it is not parked")
        over(teller, teller.epoch, of_keys(1, key, 0, other + 1))
        assert read_to_end(peer) == 4
        second.send(b"on")
        assert other_peer.recv(2) == b"on"
        assert take(teller, key).error == errno.ENOENT and worker.stats().unclaimed == 0


def test_of_one_that_has_ended(worker: Worker, join: Join, server: socket.socket) -> None:
    """Before another one begins on its queue, and after."""
    host, asker = join(worker), join(worker)
    key, _, peer = named(host, server)
    with peer:
        goodbye(host)
        worker.wait(lambda s: s.parked_connections == 1, "it is not parked")
        over(host, host.epoch, of_keys(key))
        assert read_to_end(peer) == 0
        assert take(asker, key).error == errno.ENOENT
    second = begin_again(host, worker)
    third, _, third_peer = named(second, server)
    with third_peer:
        after = begin_again(second, worker)
        worker.wait(lambda s: s.parked_connections == 1, "it is not parked")
        over(after, second.epoch, of_keys(third))
        assert read_to_end(third_peer) == 0


def test_not_of_an_epoch_of_another_queue(worker: Worker, join: Join, server: socket.socket) -> None:
    """Nor of one that never was, and not with a part of a key."""
    host, asker = join(worker), join(worker)
    key, _, peer = named(host, server)
    with peer:
        goodbye(host)
        worker.wait(lambda s: s.parked_connections == 1, "it is not parked")
        over(asker, host.epoch, of_keys(key))
        over(host, 0, of_keys(key))
        over(host, host.epoch + 1000, of_keys(key))
        over(host, host.epoch, of_keys(key)[:7])
        over(host, host.epoch, of_keys(key) + b"?")
        over(host, host.epoch, b"")
        begin_again(host, worker)  # all has come by then
        assert is_kept(asker, key)


def test_not_of_another_tenant(worker: Worker, join: Join, server: socket.socket) -> None:
    holder, asker = join(worker), join(worker)
    key, _, peer = named(holder, server)
    with peer, worker.attach(new_epoch(), tenant=make_tenant("stranger", 1), features=FEATURES) as stranger:
        stranger.open()
        goodbye(holder)
        worker.wait(lambda s: s.parked_connections == 1, "it is not parked")
        over(stranger, stranger.epoch, of_keys(key))
        goodbye(stranger)
        over(stranger, stranger.epoch, of_keys(key))
        begin_again(stranger, worker)
        assert is_kept(asker, key)


def test_not_of_a_host_without_the_feature(worker: Worker, join: Join, server: socket.socket) -> None:
    asker = join(worker)
    with worker.attach(new_epoch(), features=OLDER) as older:
        key, _, peer = named(older.open(), server)
        with peer:
            over(older, older.epoch, of_keys(key))
            goodbye(older)
            worker.wait(lambda s: s.parked_connections == 1, "it is not parked")
            over(older, older.epoch, of_keys(key))
            begin_again(older, worker)
            assert is_kept(asker, key)


def test_what_another_worker_keeps(worker: Worker, other_worker: Worker, join: Join, server: socket.socket) -> None:
    """All that is there ends, and nothing else; also what a channel there has, at its end."""
    teller, holder, next_one = join(worker), join(other_worker), join(other_worker)
    ending = [named(holder, server) for _ in range(5)]
    staying, _, staying_peer = named(holder, server)
    held, _, held_peer = named(next_one, server)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(peer) for _, _, peer in ending]
        stack.enter_context(staying_peer)
        goodbye(holder)
        other_worker.wait(lambda s: s.parked_connections == 6, "they are not parked")
        over(teller, teller.epoch, of_keys(held, *(key for key, _, _ in ending)))
        assert [read_to_end(peer) for peer in peers] == [0] * 5
        other_worker.wait(lambda s: s.parked_connections == 1, "some are still kept")
        stack.enter_context(held_peer)
        goodbye(next_one)
        assert read_to_end(held_peer) == 0
        assert is_kept(teller, staying)


def test_an_epoch_is_forgotten_when_many_have_ended(worker: Worker, join: Join, server: socket.socket) -> None:
    """The queue remembers the last 64."""
    host = join(worker)
    key, _, peer = named(host, server)
    with peer:
        after = host
        for _ in range(65):
            after = begin_again(after, worker)
        over(after, host.epoch, of_keys(key))
        assert is_kept(after, key)
