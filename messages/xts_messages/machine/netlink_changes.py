"""The kernel's messages that something has changed at the network interfaces of this namespace.

Only that they came is used. What has changed is then read as it is now, so a message that was lost because there were
too many does no harm, and nothing here has to be parsed. No privilege is needed.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

#: linux/rtnetlink.h: RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR
LINKS, IPV4_ADDRESSES, IPV6_ADDRESSES = 0x1, 0x10, 0x100
#: How many messages are received at a time, and how many bytes of each: the contents are not used.
_MESSAGES, _MESSAGE_BYTES = 256, 16


class Changes:
    """Messages about what is in `groups`, from now on. A context manager."""

    def __init__(self, groups: int) -> None:
        """OSError: the kernel, or a sandbox, does not allow it."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
        try:
            self._socket.bind((0, groups))
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def fileno(self) -> int:
        """Readable when messages have come."""
        return self._socket.fileno()

    def take(self) -> None:
        """Drops those that have come: the caller looks now, or soon."""
        for _ in range(_MESSAGES):
            try:
                self._socket.recv(_MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                continue  # ENOBUFS: some messages were lost

    def close(self) -> None:
        """Harmless when repeated."""
        self._socket.close()
