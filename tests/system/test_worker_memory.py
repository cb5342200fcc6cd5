"""What connections took of a worker's memory goes back to the system when they have ended, by a clock of the test."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from scripted_host import Worker
from worker_ulp_bed import FEATURES, LOOPBACK, Conn, connected, wait_for
from xts_proxy._native import ffi

MIB = 1 << 20
WINDOW = 2 * MIB
STALLED = 6
#: Other growth of this process while the test runs: of Python, mostly.
NOISE_BYTES = MIB
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Bytes of this process, in whose memory the worker is."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


class Clock:
    """The worker's clock, which can be set forward."""

    def __init__(self) -> None:
        self.ahead_ns = 0
        self.callback = ffi.callback("uint64_t(void)", lambda: time.monotonic_ns() + self.ahead_ns)


def stall(worker: Worker, c: Conn, payload: bytes) -> None:
    """Sends until nearly all of the window waits in the worker: its peer reads nothing, and TCP takes no more."""
    full = worker.channel().spill_bytes + WINDOW - 2 * len(payload)
    while worker.channel().spill_bytes < full:
        c.send(payload)


def test_memory_of_connections_that_have_ended_goes_back_to_the_system() -> None:
    clock, payload = Clock(), bytes(1 << 15)
    with (
        socket.socket() as server,
        Worker(clock_ns=clock.callback, window_bytes=WINDOW, window_bytes_max=WINDOW, connections=9) as worker,
        worker.attach(features=FEATURES) as host,
    ):
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.bind((LOOPBACK, 0))
        server.listen(STALLED)
        server.settimeout(5)
        with connected(host.open(), server, window=WINDOW) as c:
            c.close()
        before = resident()
        made = [connected(host, server, window=WINDOW) for _ in range(STALLED)]
        for c in made:
            stall(worker, c, payload)
        grown = worker.channel().spill_bytes
        assert grown > 4 * MIB and resident() - before > grown - NOISE_BYTES
        for c in made:
            c.close("ABORT")
            c.peer.close()
        worker.wait(lambda stats: not stats.spill_bytes, "spill buffers of connections that were aborted")
        clock.ahead_ns = 20 * 10**9

        def is_back() -> bool:
            worker.stats()  # wakes it: it looks at its clock
            return resident() - before < NOISE_BYTES

        wait_for(is_back, f"of {grown} bytes more than {NOISE_BYTES} are kept")
