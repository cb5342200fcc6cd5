"""Follows the network interfaces and addresses of the device, by the kernel's netlink messages: the workers are told
what there is when it has changed.

Only that something has changed is taken from the messages. What there is now is read as at the start (interfaces.py):
so a message that is lost, for there were too many, loses nothing. However often something changes, it is read at most
every EVERY_S, and a moment after the first change, when an interface that has come has its addresses too.
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
#: What is taken at a time, and how much of a message: nothing of it is looked at.
_MESSAGES, _MESSAGE_BYTES = 256, 16


class DeviceWatch:
    """`config` says for which configuration the device is read; `tell` tells the workers. Its OSError is logged, and
    they are told again with the next change."""

    def __init__(self, config: Callable[[], Config], tell: Callable[[Device], None]) -> None:
        #: What the workers know.
        self.known = Device()
        self._config, self._tell = config, tell
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looked_s = -EVERY_S

    def open(self) -> None:
        """Before the device is read: what changes from then on is noticed."""
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
            with suppress(RuntimeError):  # there is no loop any more
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
                continue  # ENOBUFS: some were lost
        if not self._timer:
            wait_s = max(SETTLE_S, self._looked_s + EVERY_S - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        self._timer = None
        self._looked_s = time.monotonic()
        device = of_device(self._config())
        if device == self.known:
            return  # a link that was counted, an address of no interest
        try:
            self._tell(device)
        except OSError as error:
            LOG.warning("interfaces of the device have changed, and the workers cannot be told: %s", error.strerror)
            return
        self.known = device
        LOG.info("interfaces of the device: %s", ", ".join(one.name for one in device.interfaces))
