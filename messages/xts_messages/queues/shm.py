"""Queues over shared memory, which need no privilege and no interface (native/queues/shm.c)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from xts_messages._native import lib
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import HOST, PROXY, SHM, QueueEnd, QueueOptions, open_ends

FRAME_BYTES_MAX = int(lib.XTS_FRAME_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class ShmArea:
    """Shared memory and its bells. The holder passes the descriptors on, or closes them."""

    memfd: int
    host_bell: int
    proxy_bell: int
    geometry: Any  # struct xts_attach_reply *

    def end(self, end: int) -> QueueEnd:
        """What one end (HOST, PROXY) needs; the descriptors are still ours."""
        return QueueEnd(self.geometry, (self.memfd, self.host_bell if end == HOST else self.proxy_bell))

    def open(self, end: int) -> Queue:
        """Makes the queue of one end from duplicates of the descriptors."""
        return QueueEnd(self.geometry, tuple(os.dup(fd) for fd in self.end(end).descriptors)).adopt_or_close(end)

    def close(self) -> None:
        """Closes all three descriptors."""
        for fd in (self.memfd, self.host_bell, self.proxy_bell):
            os.close(fd)


def create_shm(frame_window: int = 64, largest_message: int = FRAME_BYTES_MAX, kept_max: int = 0) -> ShmArea:
    """Makes shared memory for a frame window. OSError EINVAL: window or size out of range."""
    options = QueueOptions(frame_window, kept_max=kept_max)
    host, proxy = open_ends(SHM, options, largest_message=largest_message)
    memfd, host_bell = host.descriptors
    return ShmArea(memfd, host_bell, proxy.descriptors[1], host.geometry)


def open_shm_pair(
    frame_window: int = 64, largest_message: int = FRAME_BYTES_MAX, kept_max: int = 0
) -> tuple[Queue, Queue]:
    """Both ends, the host's and the proxy's, in this process: for tests and simulation."""
    area = create_shm(frame_window, largest_message, kept_max)
    try:
        host = area.open(HOST)
        try:
            return host, area.open(PROXY)
        except OSError:
            host.close()
            raise
    finally:
        area.close()
