"""Another process asks for this proxy's place: whether it may have it, and what becomes of this proxy then.

How channels go over is in giving.py. Here is what concerns the proxy as a whole: its state, its control socket, and
that it ends when all is given.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from xts_proxy.queues.channels import Channels
from xts_proxy.supervisor.log import LOG
from xts_proxy.upgrade.giving import Giving, check_peer, check_room, names_of

if TYPE_CHECKING:
    from xts_proxy.supervisor.supervisor import Supervisor

#: Five processes that end take tens of milliseconds of the cores on which hosts claim what they had just now: of 1,000
#: connections' requests over AF_XDP the slowest took 130 ms without this, and 95 ms with it.
_ENDS_AFTER_S = 0.3


class Successors:
    """Those that ask to take over from a proxy, one at a time."""

    def __init__(self, proxy: Supervisor) -> None:
        self.giving: Giving | None = None  # to the last one
        self.has_listeners = False  # another proxy has our sockets that listen
        self.passed_on: list[tuple[str, socket.socket]] = []  # by name, besides those of control and channels
        self._proxy = proxy
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_heard(self) -> bool:
        """Is it another process that systemd hears, because a new proxy is ready to take over, or has done so?"""
        return self.giving is not None and self.giving.begun

    def ask(self, sock: socket.socket) -> Callable[[], None]:
        """A process wants to take over. Returns what begins that. OSError: it may not, or not now."""
        proxy = self._proxy
        try:
            pid = check_peer(sock)
            channels = self._movable()
            assert proxy.process
            held = sum(one["pool_used"]["descriptors"] for one in proxy.process.call("tenants").values())
            check_room(int(held), len(channels.served()))
            control = [(proxy.control.path, proxy.control.listener)] if proxy.control else []
            duplicates = names_of([*control, *self.passed_on, *channels.listeners])
        except OSError:
            sock.close()
            raise
        LOG.info("upgrade: process %d takes over", pid)
        patience_s = proxy.config.proxy.drain_timeout_s
        self.giving = Giving(sock, channels, duplicates, patience_s, proxy.process)
        proxy.state = "handing over"

        def begin() -> None:
            task = asyncio.get_running_loop().create_task(self._give(channels, duplicates))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return begin

    def _movable(self) -> Channels:
        """OSError: not now, or never."""
        proxy = self._proxy
        if proxy.state != "running" or not proxy.channels or (proxy.reloading and proxy.reloading.runs):
            raise OSError(errno.EBUSY, f"this proxy is {proxy.state}" if proxy.state != "running" else "it reloads")
        if self.giving and self.giving.has_pending:
            raise OSError(errno.EBUSY, "the new proxy of the last attempt has not ended, and has queues")
        if proxy.channels.unmovable:
            raise OSError(errno.EOPNOTSUPP, proxy.channels.unmovable)
        return proxy.channels

    async def _give(self, channels: Channels, duplicates: dict[str, int]) -> None:
        assert self.giving
        giving, proxy = self.giving, self._proxy
        given = await giving.run()
        for fd in duplicates.values():
            os.close(fd)
        if not given:
            proxy.state = "running" if proxy.state == "handing over" else proxy.state
            if giving.has_pending:
                await giving.take_queues_back()
            giving.close()
            return
        LOG.info("upgrade: %d channels with %d sockets are the new proxy's", giving.moved, giving.sockets)
        self.has_listeners = True
        channels.leave()
        if proxy.control:
            proxy.control.stop()
        await asyncio.sleep(_ENDS_AFTER_S)
        proxy.stop.wanted.set()
