"""CLOSED that nobody waits for does not wake the host: it goes with what is said next, or soon by itself."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from beds.scripted_host import ScriptedHost, Worker
from beds.worker import Conn, connected, host, server, worker
from xts_messages.wire.codec import flags

__all__ = ["host", "server", "worker"]  # fixtures

CONNECTIONS = 12  # fewer than what may be held back
SOON_MS = 5


@pytest.fixture
def opened(host: ScriptedHost, server: socket.socket) -> Iterator[list[Conn]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connected(host, server)) for _ in range(CONNECTIONS)]


def close(c: Conn) -> None:
    c.host.send("XTS_CMD_SEND", id=c.id, flags=flags("CLOSE"), post_credits=c.read_bytes)


def has_come(host: ScriptedHost) -> bool:
    """Whether there are messages that were not there before; takes them."""
    before = len(host.backlog)
    count = -1
    while count != (count := len(host.backlog)):
        host.pump(0)
    return count > before


def test_the_host_is_not_rung_for_each(worker: Worker, host: ScriptedHost, opened: list[Conn]) -> None:
    begun, deliveries = time.monotonic(), 0
    for c in opened:
        left = worker.stats().connections - 1
        close(c)
        worker.wait(lambda stats, left=left: stats.connections == left, "the connection did not end")
        deliveries += has_come(host)
    assert deliveries <= (time.monotonic() - begun) * 1000 / SOON_MS + 1
    while len(host.backlog) < CONNECTIONS:  # all of them come, although nothing else is said
        host.pump(1000)
    assert [frame.id for frame in host.backlog] == [c.number for c in opened]
    assert {frame.flag_names for frame in host.backlog} == {("CLOSED",)}


def test_it_leaves_with_the_next_message(host: ScriptedHost, opened: list[Conn]) -> None:
    close(opened[0])
    opened[1].peer.sendall(b"data")
    came = {(frame.id, frame.flag_names) for frame in (host.receive(), host.receive())}
    assert came == {(opened[0].number, ("CLOSED",)), (opened[1].number, ())}


def test_more_of_them_than_a_frame_window(server: socket.socket) -> None:
    """Each brings back the frame credit of its CLOSE: the host waits for them, if for nothing else."""
    with Worker() as worker, worker.attach(frame_window=4) as host, ExitStack() as stack:
        host.open()
        opened = [stack.enter_context(connected(host, server)) for _ in range(CONNECTIONS)]
        for c in opened:
            close(c)  # waits for a frame credit
        while len(host.backlog) < CONNECTIONS:
            host.pump(1000)
