"""The end of the proxy: who wants it, and the wait for the connections that are left.

Theory of operation. It ends by a signal, with the process that started it, because another proxy has taken its place,
or because it cannot go on. In the first cases it drains: connections go on until none is left, or the time is over. A
second signal, and a failure, end that wait.
"""

from __future__ import annotations

import asyncio
import errno
import time
from contextlib import suppress

from xts_proxy.config.config import Proxy
from xts_proxy.queues.channels import Channels
from xts_proxy.queues.shm_channels import ShmChannels
from xts_proxy.supervisor.heartbeat import answers
from xts_proxy.supervisor.log import LOG
from xts_proxy.workers.remote_worker import RemoteWorker

_LOOK_S = 0.05


class Stop:
    """Of one proxy. `wanted` is set once it has to end."""

    def __init__(self, workers: list[RemoteWorker]) -> None:
        """`workers`: those that there are at the time."""
        self.wanted = asyncio.Event()
        self.failed = ""  # why it cannot go on
        self.signalled = False  # somebody wants it
        self._hurry = asyncio.Event()
        self._workers = workers

    def on_signal(self) -> None:
        """SIGTERM, SIGINT."""
        self.signalled = True
        if self.wanted.is_set():
            LOG.warning("second signal: stopping at once")
            self._hurry.set()
        self.wanted.set()

    def on_orphaned(self, until_fd: int) -> None:
        """`until_fd` is readable or hung up."""
        asyncio.get_running_loop().remove_reader(until_fd)
        LOG.info("the process that started this proxy has ended")
        self.wanted.set()

    def fail(self, why: str) -> None:
        """The proxy cannot go on; who started it starts it again."""
        self.failed = self.failed or why
        self.wanted.set()
        self._hurry.set()

    def check(self) -> None:
        """OSError ECHILD: why it cannot go on."""
        if self.failed:
            raise OSError(errno.ECHILD, self.failed)

    async def drain(self, proxy: Proxy, channels: Channels | None) -> int:
        """Waits until no connection and no waiting datagram is left, or the time is over. Who stops a proxy starts it
        again, mostly, and who is refused meanwhile waits for nothing: so new sockets are served as before until there
        is no connection, or drain_refuse_s are left. Returns the errno for the GOODBYE."""
        LOG.info("stopping: %d connections may go on for %g s", self._connections(), proxy.drain_timeout_s)
        deadline = time.monotonic() + proxy.drain_timeout_s
        await self._wait_for_none(deadline - proxy.drain_refuse_s)
        if isinstance(channels, ShmChannels):
            channels.stopping = True
        for worker in self._workers:
            with suppress(TimeoutError):
                worker.drain()
        LOG.info("draining: new sockets are refused from now on")
        left = await self._wait_for_none(deadline)
        if left:
            cut = min(left, self._connections())
            LOG.warning("%d connections are cut off, and %d waiting datagrams are dropped", cut, left - cut)
        return errno.ESHUTDOWN if left else 0

    async def _wait_for_none(self, deadline: float) -> int:
        """Returns how much is left then (by time.monotonic()), or when there is reason to hurry."""
        left = self._left()
        while left and time.monotonic() < deadline and not self._hurry.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), _LOOK_S)
            left = 0 if self.failed else self._left()
        return left

    def _connections(self) -> int:
        return self._sum("connections", "parked_connections")

    def _left(self) -> int:
        """How much a drain still waits for."""
        return self._sum("connections", "parked_connections", "datagrams_waiting")

    def _sum(self, *gauges: str) -> int:
        every = [worker.stats() for worker in self._workers if answers(worker)]
        hanging = len(self._workers) - len(every)  # each may have at least one
        return hanging + sum(int(stats[name]) for stats in every for name in gauges)
