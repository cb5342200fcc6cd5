"""What connections took of a worker's memory goes back to the system when they have ended, by a clock of the test."""

from __future__ import annotations

import contextlib
import ctypes
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from beds.operated_proxy import running, wait
from beds.operated_tls import directory
from beds.scripted_host import Worker
from beds.worker import FEATURES, LOOPBACK, Conn, connected, wait_for
from xts_proxy._native import ffi

__all__ = ["directory"]  # a fixture
MIB = 1 << 20
WINDOW = 2 * MIB
STALLED = 6
QUIET_MS = 100
LASTING_KIB = 1 << 20
#: Other growth of this process, in whose memory the worker is, while the test runs: of Python, mostly.
NOISE_BYTES = MIB


def anonymous_bytes(pid: int | str = "self") -> int:
    """Of a process: all but files and shared memory, of which a queue has more the busier the machine is."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("RssAnon:"))) * 1024


def lasting_bytes(pid: int) -> int:
    """Of a process of workers: what of its lasting memory (ulp/lasting.h), in which spill buffers are, has pages."""
    smaps = Path(f"/proc/{pid}/smaps").read_text()
    found = re.search(rf" rw-s .*\nSize: +{LASTING_KIB} kB\n(?:\w+: .*\n)*?Rss: +(\d+) kB\n", smaps)
    assert found
    return int(found[1]) * 1024


class Clock:
    """The worker's clock, which can be set forward."""

    def __init__(self) -> None:
        self.ahead_ns = 0
        self.callback = ffi.callback("uint64_t(void)", lambda: time.monotonic_ns() + self.ahead_ns)


def stall(c: Conn, payload: bytes) -> None:
    """Sends until credits come no more: its peer reads nothing, TCP takes no more, and nearly all of the window waits
    in the worker. How much TCP has taken until then depends on how busy the machine is."""
    with contextlib.suppress(TimeoutError):
        while True:
            while c.held >= len(payload):
                c.send(payload)
            c.receive(QUIET_MS)


@contextlib.contextmanager
def slow_server(backlog: int) -> Iterator[socket.socket]:
    """Its connections take little ahead."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.bind((LOOPBACK, 0))
        server.listen(backlog)
        server.settimeout(5)
        yield server


def test_memory_of_connections_that_have_ended_goes_back_to_the_system() -> None:
    clock, payload = Clock(), bytes(1 << 15)
    with (
        slow_server(STALLED) as server,
        Worker(clock_ns=clock.callback, window_bytes=WINDOW, window_bytes_max=WINDOW, connections=9) as worker,
        worker.attach(features=FEATURES) as host,
    ):
        with connected(host.open(), server, window=WINDOW) as c:
            c.close()
        ctypes.CDLL(None).malloc_trim(0)  # what other tests have left would be used first
        before = anonymous_bytes()
        made = [connected(host, server, window=WINDOW) for _ in range(STALLED)]
        for c in made:
            stall(c, payload)
        grown = worker.channel().spill_bytes
        assert grown > 4 * MIB and anonymous_bytes() - before > grown - NOISE_BYTES
        for c in made:
            c.close("ABORT")
            c.peer.close()
        worker.wait(lambda stats: not stats.spill_bytes, "spill buffers of connections that were aborted")

        def is_back() -> bool:
            # Memory goes back at most every ten seconds, and what is freed after that waits for the next time.
            clock.ahead_ns += 11 * 10**9
            worker.stats()  # wakes it: it looks at its clock
            return anonymous_bytes() - before < NOISE_BYTES

        wait_for(is_back, f"of {grown} bytes more than {NOISE_BYTES} are kept")


def test_it_goes_back_in_the_sandbox_too(directory: Path) -> None:
    """The calls that this takes are among those that workers may make."""
    piece = bytes(1 << 15)
    limits = "[limits]\nwindow_kib = 2048"
    with slow_server(STALLED) as server, running(directory, limits) as proxy, proxy.host() as (_, host):
        workers = proxy.pid_of("xts-workers")
        with connected(host, server) as c:
            c.close()
        before = lasting_bytes(workers)
        with contextlib.ExitStack() as stack:
            made: list[Conn] = []
            while len(made) < STALLED:
                made.append(c := stack.enter_context(connected(host, server)))
                stall(c, piece)
            assert proxy.status()["workers"][0]["spill_bytes"] > STALLED * MIB
            assert lasting_bytes(workers) - before > STALLED * 1000 * 1024
            for c in made:
                c.close("ABORT")
        wait(lambda: lasting_bytes(workers) - before < 1200 * 1024, "memory that goes back", 30)
