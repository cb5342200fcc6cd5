"""Follows the network interfaces and addresses of the device, by the kernel's netlink messages: when something has
changed, the workers get the new lists.

The messages only tell that something has changed. The present state is then read as at the start (interfaces.py).
However often something changes, it is read at most every EVERY_S, and a moment after the first change, when a new
interface has its addresses, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from xts_messages.machine.netlink_changes import IPV4_ADDRESSES, IPV6_ADDRESSES, LINKS, Changes

from xts_proxy.config.config import Config
from xts_proxy.supervisor.log import LOG
from xts_proxy.workers.name_servers import Device, of_device

SETTLE_S, EVERY_S, AGAIN_S = 0.1, 1.0, 5.0


class DeviceWatch:
    """`config` returns the configuration for which the device is read; `tell` tells the workers. An OSError of `tell`
    is logged, and the workers are told again after a while, or at the next change. `looked` is called at each look,
    whatever it finds."""

    def __init__(
        self, config: Callable[[], Config], tell: Callable[[Device], None], looked: Callable[[], None] = lambda: None
    ) -> None:
        #: What the workers know.
        self.known = Device()
        self._config, self._tell, self._looked = config, tell, looked
        self._changes: Changes | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looked_s = -EVERY_S

    def open(self) -> None:
        """Called before the device is read, so that later changes are noticed."""
        try:
            self._changes = Changes(LINKS | IPV4_ADDRESSES | IPV6_ADDRESSES)
        except OSError as error:
            LOG.warning("interfaces that come later will be known after a reload: %s", error.strerror)

    def start(self) -> None:
        """In the running loop."""
        if self._changes:
            asyncio.get_running_loop().add_reader(self._changes.fileno(), self._on_messages)

    def close(self) -> None:
        """Harmless when repeated, or without open()."""
        if self._timer:
            self._timer.cancel()
        if self._changes:
            with suppress(RuntimeError):  # the loop has ended
                asyncio.get_running_loop().remove_reader(self._changes.fileno())
            self._changes.close()
            self._changes = None

    def _on_messages(self) -> None:
        assert self._changes
        self._changes.take()
        if not self._timer:
            wait_s = max(SETTLE_S, self._looked_s + EVERY_S - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        self._timer = None
        self._looked_s = time.monotonic()
        self._looked()
        try:
            device = of_device(self._config())
            if device == self.known:
                return  # statistics of a link, or an address that does not matter
            self._tell(device)
        except OSError as error:
            LOG.warning("interfaces of the device have changed, and the workers cannot be told: %s", error.strerror)
            self._timer = asyncio.get_running_loop().call_later(AGAIN_S, self._look)
            return
        self.known = device
        LOG.info("interfaces of the device: %s", ", ".join(one.name for one in device.interfaces))
