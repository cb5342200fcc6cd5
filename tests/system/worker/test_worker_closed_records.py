"""What a worker's records say of connections that have ended (connection/closed_records.h): each has exactly one."""

from __future__ import annotations

import socket
from typing import Any

from beds.handover import claimed, connected, server
from beds.scripted_host import Worker
from beds.share import LOOPBACK, Join, goodbye, join, listen, new_key, other_worker, worker
from xts_proxy.status.connection_log import BEGIN, END
from xts_proxy.status.connection_rows import endpoint_text

__all__ = ["join", "other_worker", "server", "worker"]  # fixtures


def told(worker: Worker, count: int = 1) -> list[tuple[str, str, int, int]]:
    """How each began and ended, and bytes to and from TCP."""
    found: list[Any] = []

    def enough(_: Any) -> bool:
        found.extend(
            (BEGIN[one.begin], END[one.end], int(one.side.sent_bytes), int(one.side.received_bytes))
            for one in worker.closed()
        )
        return len(found) >= count

    worker.wait(enough, f"{count} records")
    assert len(found) == count and worker.closed() == []
    return found


def test_a_connection_that_both_have_closed(worker: Worker, join: Join, server: socket.socket) -> None:
    connection, peer = connected(join(worker), server)
    with peer:
        connection.send(b"all")
        assert peer.recv(16) == b"all"
        assert worker.closed() == [], "it has not ended"
    connection.receive()  # the end of the stream
    connection.close()
    assert told(worker) == [("connect", "closed", 3, 0)]


def test_a_connection_that_another_process_takes_over(worker: Worker, join: Join, server: socket.socket) -> None:
    first, peer = connected(join(worker), server)
    key = new_key()
    with peer:
        first.send(b"one ")
        assert first.park(key).error == 0
        assert told(worker) == [("connect", "handed_over", 4, 0)]
        second = claimed(join(worker), key)
        address = peer.getsockname()
        second.send(b"two", "FIN")
        assert b"".join(iter(lambda: peer.recv(100), b"")) == b"one two"
    second.close()
    found: list[Any] = []
    worker.wait(lambda _: bool(found or found.extend(worker.closed()) or found), "record")
    (record,) = found
    assert (BEGIN[record.begin], END[record.end]) == ("claim", "closed")
    assert endpoint_text(record.peer) == f"{LOOPBACK}:{address[1]}"


def test_unread_data_resets_it(worker: Worker, join: Join, server: socket.socket) -> None:
    connection, peer = connected(join(worker), server)
    with peer:
        peer.sendall(b"never read")
        connection.receive()
        connection.received.clear()
        connection.close()
    assert told(worker) == [("connect", "reset", 0, 10)]


def test_an_accepted_connection_whose_host_goes(worker: Worker, join: Join) -> None:
    listener = listen(join(worker), credits=4)
    with socket.create_connection((LOOPBACK, listener.port), 5) as peer:
        listener.take(listener.offered())
        goodbye(listener.host)
        assert peer.recv(16) == b""
    ((begin, end, _, _),) = told(worker)
    assert (begin, end) == ("accept", "host_gone")
