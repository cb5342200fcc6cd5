"""A tenant with a rate, in the worker: every byte arrives, in its order, whatever carries it, and no faster."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from beds.scripted_host import WINDOW, ScriptedHost, Worker, make_tenant
from beds.worker import FEATURES, PREFIX, Conn, connected, prefixed, receive_exactly, server

__all__ = ["server"]  # a fixture

RATE = 4_000_000
#: What may go at once, after a pause (pacer.h), with a chunk.
BURST_BYTES = RATE // 50 + RATE // 1000

#: What a connection may have in its spill buffer: more than a burst.
HELD, PIECE = 8 * WINDOW, 30_001


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(tenant=make_tenant(pacing_bytes_s=RATE, window_bytes=HELD, window_bytes_max=HELD)) as made:
        yield made


@pytest.fixture
def host(worker: Worker) -> Iterator[ScriptedHost]:
    with worker.attach(features=FEATURES) as made:
        yield made.open()


def timed(reader: Conn, count: int) -> tuple[bytearray, threading.Thread, list[float]]:
    """Reads from the peer in a thread; how long it took is in the list."""
    got, took = bytearray(), list[float]()

    def read() -> None:
        begun = time.monotonic()
        got.extend(receive_exactly(reader.peer, count))
        took.append(time.monotonic() - begun)

    thread = threading.Thread(target=read)
    thread.start()
    return got, thread, took


def send_all(c: Conn, data: bytes) -> None:
    for at in range(0, len(data), PIECE):
        c.send(data[at : at + PIECE])


def test_a_stream_arrives_whole_and_no_faster(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    data = os.urandom(RATE // 4)
    with connected(host, server) as c:
        got, reader, took = timed(c, len(data))
        send_all(c, data)
        reader.join(10)
        assert got == data
        assert took[0] > (len(data) - BURST_BYTES) / RATE
        assert worker.stats().paced > 0
        assert c.close().error == 0 and c.peer.recv(1) == b""


def test_pdus_arrive_whole_and_no_faster(host: ScriptedHost, server: socket.socket) -> None:
    pdus = [os.urandom(count) for count in (RATE // 8, 1, 0, WINDOW, 0, RATE // 20)]
    with connected(host, server, PREFIX) as c:
        got, reader, took = timed(c, len(prefixed(*pdus)))
        for pdu in pdus:
            c.send_pdu(pdu, part=7001)
        reader.join(10)
        assert got == prefixed(*pdus)
        assert took[0] > (sum(map(len, pdus)) - BURST_BYTES) / RATE
        assert c.close().error == 0 and c.peer.recv(1) == b""


def test_what_is_closed_is_delivered_at_the_rate(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    data = os.urandom(HELD)
    with connected(host, server) as c:
        begun = time.monotonic()
        send_all(c, data)
        c.close()
        assert worker.stats().orphans == 1
        assert receive_exactly(c.peer, len(data)) == data
        assert time.monotonic() - begun > (len(data) - BURST_BYTES) / RATE
        assert c.peer.recv(1) == b""
    worker.wait(lambda s: s.orphans == 0, "the orphan does not end")


def test_a_connection_that_waits_for_its_rate_may_be_reset(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    with connected(host, server) as c:
        send_all(c, os.urandom(HELD))
        c.close("ABORT")
        with pytest.raises(ConnectionResetError):
            receive_exactly(c.peer, HELD)
    worker.wait(lambda s: s.connections == 0 and s.spill_bytes == 0, "something is left")
