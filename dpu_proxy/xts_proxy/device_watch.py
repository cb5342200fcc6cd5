"""Follows the network interfaces and addresses of the device, by the kernel's netlink messages: when something has
changed, the workers get the new lists.

The messages only tell that something has changed. The present state is then read as at the start (interfaces.py), so a
message that is lost because there were too many does no harm. However often something changes, it is read at most every
EVERY_S, and a moment after the first change, when a new interface has its addresses, too.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from xts_proxy.config import Config
from xts_proxy.log import LOG
from xts_proxy.name_servers import Device, of_device

SETTLE_S, EVERY_S = 0.1, 1.0
#: linux/rtnetlink.h: RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR
_GROUPS = 0x1 | 0x10 | 0x100
#: How many messages are received at a time, and how many bytes of each: the contents are not used.
_MESSAGES, _MESSAGE_BYTES = 256, 16


class DeviceWatch:
    """`config` returns the configuration for which the device is read; `tell` tells the workers. An OSError of `tell`
    is logged, and the workers are told again at the next change."""

    def __init__(self, config: Callable[[], Config], tell: Callable[[Device], None]) -> None:
        #: What the workers know.
        self.known = Device()
        self._config, self._tell = config, tell
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looked_s = -EVERY_S

    def open(self) -> None:
        """Called before the device is read, so that later changes are noticed."""
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
        try:
            made.bind((0, _GROUPS))
        except OSError as error:
            made.close()
            LOG.warning("interfaces that come later will be known after a reload: %s", error.strerror)
            return
        self._socket = made

    def start(self) -> None:
        """In the running loop."""
        if self._socket:
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._on_messages)

    def close(self) -> None:
        """Harmless when repeated, or without open()."""
        if self._timer:
            self._timer.cancel()
        if self._socket:
            with suppress(RuntimeError):  # the loop has ended
                asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _on_messages(self) -> None:
        assert self._socket
        for _ in range(_MESSAGES):
            try:
                self._socket.recv(_MESSAGE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                continue  # ENOBUFS: some messages were lost
        if not self._timer:
            wait_s = max(SETTLE_S, self._looked_s + EVERY_S - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        self._timer = None
        self._looked_s = time.monotonic()
        device = of_device(self._config())
        if device == self.known:
            return  # statistics of a link, or an address that does not matter
        try:
            self._tell(device)
        except OSError as error:
            LOG.warning("interfaces of the device have changed, and the workers cannot be told: %s", error.strerror)
            return
        self.known = device
        LOG.info("interfaces of the device: %s", ", ".join(one.name for one in device.interfaces))
