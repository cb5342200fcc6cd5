"""Connections that no process has any more, as who attaches processes has seen: they end as at the end of a process,
and not when their time is over."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from collections.abc import Iterator

import pytest
from beds.handover import server
from beds.scripted_host import WINDOW, Worker, make_tenant, worker_ffi, worker_lib
from beds.share import Join, goodbye, new_epoch, share, worker
from system.worker.test_worker_park import fill
from system.worker.test_worker_take import named, receive_all, returns, take
from xts_messages.wire import wire_table as table

__all__ = ["server", "worker"]  # fixtures

FEATURES = table.FEATURES["SHARE"][0] | table.FEATURES["TAKE"][0]
PATIENCE_S = 10.0


@pytest.fixture
def join() -> Iterator[Join]:
    """Attaches hosts that speak TAKE."""
    with contextlib.ExitStack() as stack:
        yield lambda worker: stack.enter_context(worker.attach(new_epoch(), features=FEATURES)).open()


def over(worker: Worker, *keys: int, tenant: object = None) -> None:
    given = worker_ffi.new("uint64_t[]", keys)
    assert worker_lib.xts_worker_keys_over(worker.native, tenant or worker.tenant, given, len(keys)) == 0


def read_to_end(peer: socket.socket) -> int:
    """How many bytes come before the end."""
    peer.settimeout(PATIENCE_S)
    size = 0
    while got := peer.recv(1 << 20):
        size += len(got)
    return size


def test_one_that_is_parked_ends(worker: Worker, join: Join, server: socket.socket) -> None:
    """In good order: all was read. Another one, and the key of another tenant, stay."""
    holder, asker = join(worker), join(worker)
    key, first, peer = named(holder, server)
    other, _, other_peer = named(holder, server)
    with peer, other_peer:
        first.send(b"last")
        goodbye(holder)
        worker.wait(lambda s: s.parked_connections == 2, "they are not parked")
        over(worker, key, other, tenant=make_tenant("stranger", 1))
        over(worker, key, 1, 0)
        assert read_to_end(peer) == 4
        worker.wait(lambda s: s.parked_connections == 1, "it is still kept")
        assert take(asker, key).error == errno.ENOENT
        assert take(asker, other).error == 0
        assert worker.stats().unclaimed == 0


def test_one_whose_holder_is_about_to_end(worker: Worker, join: Join, server: socket.socket) -> None:
    """The worker has not seen the end of its channel yet. Until then it is the holder's."""
    holder = join(worker)
    key, first, peer = named(holder, server)
    with peer:
        over(worker, key)
        first.send(b"on")
        assert peer.recv(2) == b"on"
        goodbye(holder)
        assert read_to_end(peer) == 0
        assert worker.stats().parks == 0


def test_it_is_reset_if_data_is_unread(worker: Worker, join: Join, server: socket.socket) -> None:
    """As by the kernel: some that the host never got, and some that it has given back."""
    holder, other = join(worker), join(worker)
    key, _, peer = named(holder, server)
    given_back, second, second_peer = named(other, server)
    with peer, second_peer:
        peer.sendall(bytes(2 * WINDOW))
        second_peer.sendall(b"unread")
        receive_all(second, 6)
        assert second.park(given_back).error == 0
        returns(other, given_back, b"unread")
        worker.wait(lambda s: s.parked_connections == 1, "it is not parked")
        goodbye(holder)
        worker.wait(lambda s: s.parked_connections == 2, "it is not parked")
        over(worker, key, given_back)
        for one in (peer, second_peer):
            with pytest.raises(ConnectionResetError):
                read_to_end(one)


def test_all_that_was_sent_is_delivered_first(worker: Worker, join: Join, server: socket.socket) -> None:
    """The peer reads nothing for a while."""
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    holder = join(worker)
    key, first, peer = named(holder, server)
    with peer:
        sent = fill(first, random.Random(3))
        assert worker.stats().spill_bytes
        goodbye(holder)
        worker.wait(lambda s: s.parked_connections == 1, "it is not parked")
        over(worker, key)
        assert worker.stats().parked_connections == 1
        assert read_to_end(peer) == len(sent)


def test_a_holder_may_name_it_again(worker: Worker, join: Join, server: socket.socket) -> None:
    """What a server was told was wrong, at worst: the holder goes on."""
    holder, asker = join(worker), join(worker)
    key, first, peer = named(holder, server)
    with peer:
        over(worker, key)
        assert share(holder, key, first.proxy_id, first.number).error == 0
        goodbye(holder)
        worker.wait(lambda s: s.parked_connections == 1, "it is not parked")
        assert take(asker, key).error == 0
