"""How long a relay waits for a proxy that says nothing: for ever, or as long as it was told (silent_ms)."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from beds.queued_links import EPOCH, End, link_of
from beds.ready import readable
from beds.third_kind import KINDS, open_pair
from xts_messages._native import ffi, lib
from xts_messages.queues.queue_kinds import PROXY, QueueOptions
from xts_messages.wire.wire_table import FEATURES

OPTIONS = QueueOptions(32)
#: More than a ping later: the relay pings after 500 ms without a word.
SILENT_MS = 700
PATIENCE_S = 30.0


class Relayed:
    """A relay in a thread of its own, and the proxy's end of its trunk."""

    def __init__(self, kind: int, silent_ms: int) -> None:
        trunk, queue = open_pair(kind, OPTIONS)
        link = link_of(PROXY, queue, OPTIONS.frame_window, time.monotonic_ns(), features=FEATURES["RELAY"][0])
        self.proxy = End(PROXY, queue, link)
        self.agent, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.config = ffi.new("struct xts_relay_config *")
        self.config.trunk = ffi.cast("struct xts_queue *", trunk.detach())
        self.config.epoch, self.config.channels_max = EPOCH, 4
        self.config.control_fd, self.config.listen_fd = theirs.detach(), -1
        self.config.silent_ms = silent_ms
        self.thread = threading.Thread(target=lambda: lib.xts_relay_run(self.config))
        self.thread.start()

    def report(self) -> tuple[int, int]:
        """The next: what, and an error."""
        assert readable(self.agent, PATIENCE_S)
        report = ffi.from_buffer("struct xts_relay_report *", self.agent.recv(ffi.sizeof("struct xts_relay_report")))
        return int(report.what), int(report.error)

    def serve(self, seconds: float, *, until_report: bool = False) -> None:
        """The proxy answers for so long, or until the relay reports something."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not (until_report and readable(self.agent)):
            now_ns = time.monotonic_ns()
            self.proxy.tick(now_ns)
            while self.proxy.receive(now_ns):
                pass
            self.proxy.pump(now_ns)
            readable(self.agent, 0.01)

    def close(self) -> None:
        self.agent.close()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        self.proxy.queue.close()


@pytest.fixture(params=[(kind, SILENT_MS) for kind in KINDS] + [(KINDS[0], 0)])
def relayed(request: pytest.FixtureRequest) -> Iterator[Relayed]:
    made = Relayed(*request.param)
    try:
        made.serve(PATIENCE_S, until_report=True)
        assert made.report() == (lib.XTS_RELAY_UP, 0)
        yield made
    finally:
        made.close()


def test_a_proxy_that_has_gone_without_a_word(relayed: Relayed) -> None:
    """Over RDMA nothing else may show it: a connection of iWARP lasts for as long as its TCP repeats. One that answers
    is there."""
    relayed.serve(2.0 * SILENT_MS / 1000)
    assert not readable(relayed.agent, 0)
    if relayed.config.silent_ms:
        assert relayed.report() == (lib.XTS_RELAY_DOWN, errno.ETIMEDOUT)
    else:
        assert not readable(relayed.agent, 0.5 + 2.0 * SILENT_MS / 1000)
