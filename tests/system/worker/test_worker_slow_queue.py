"""A worker over a queue with a clock (native/decorators/fault_time.c): it tells it the time, also when nothing else
happens."""

from __future__ import annotations

import socket
import time

import pytest
from beds.scripted_host import Worker
from beds.worker import Conn, connected
from xts_messages.queues.queue import Faults

LATE_S = 0.03


@pytest.fixture
def listening() -> socket.socket:
    made = socket.create_server(("127.0.0.1", 0))
    made.settimeout(5)
    return made


def test_frames_that_are_late_both_ways_arrive_in_order(listening: socket.socket) -> None:
    late = Faults(seed=1, delay_ppm=1_000_000, skip_frames=1, delay_us=int(LATE_S * 1e6))
    with listening, Worker() as worker, worker.attach(faults=late) as host:
        host.open()
        begun = time.monotonic()
        conn: Conn = connected(host, listening)
        with conn:
            assert time.monotonic() - begun >= 2 * LATE_S, "CONNECT and its answer were late"
            for number in range(5):
                host.send("XTS_CMD_SEND", b"%d" % number, id=conn.id, post_credits=0)
            received = b""
            while len(received) < 5:
                received += conn.peer.recv(100)
            assert received == b"01234"
            begun = time.monotonic()
            conn.peer.sendall(b"answer")
            assert conn.read().payload == b"answer"
            assert time.monotonic() - begun >= LATE_S
