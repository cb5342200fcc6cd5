"""The workers' ends of queues over RDMA: opened before their process gives up files for good, and used again and again.

The kernel takes what is written to a device only from the process that has opened it, with the credentials of then
(native/queues/rdma.h). So the ends are opened in the workers' process, after its last change of user and capabilities,
and before the filter of system calls, which allows no file. Each connection has a queue pair of its own.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import ExitStack
from dataclasses import dataclass, field

from xts_messages.queues import rdma
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import PROXY

from xts_proxy.config.config import Config


@dataclass(slots=True)
class RdmaEnds:
    """By number of queue."""

    ends: list[rdma.RdmaEnd] = field(default_factory=list)

    def open(self, config: Config) -> None:
        """OSError: they cannot be opened, and why."""
        if config.proxy.queue != "rdma":
            return
        try:
            ifindex = socket.if_nametoindex(config.proxy.interface)
        except OSError as error:
            raise OSError(errno.ENODEV, f"there is no interface {config.proxy.interface}") from error
        with ExitStack() as undo:
            for number in range(config.rdma.queues):
                end = rdma.RdmaEnd(ifindex, config.proxy.queue_options, keep=True, queue_id=number)
                end.geometry.ethertype = config.proxy.ethertype
                self.ends.append(undo.enter_context(end))
            undo.pop_all()

    @property
    def device(self) -> str:
        """The name of the RDMA device; "": no end is open."""
        return self.ends[0].device if self.ends else ""

    def offer(self, number: int) -> int:
        """The number of a new queue pair for the next connection. OSError EBUSY: the last one is not over."""
        self.ends[number].renew()
        return self.ends[number].qp_number

    def step(self, number: int, step: bytes) -> None:
        """Takes the queue pair to a state."""
        self.ends[number].step(step)

    def adopt(self, number: int, life_fd: int) -> Queue:
        """The queue, when it is connected. `life_fd` stays the caller's."""
        ours = os.dup(life_fd)
        try:
            return self.ends[number].adopt(PROXY, ours)
        except OSError:
            os.close(ours)
            raise
