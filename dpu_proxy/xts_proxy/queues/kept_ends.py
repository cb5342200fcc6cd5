"""The ends of the queues that workers have, once more: for when the process has died that serves them.

Theory of operation. An AF_XDP socket ends with its last descriptor, and only root can open another. During a hand-over
the queues are spread over two proxies, either of which may die. So each has descriptors of all of them, and serves a
queue whose workers have ended. What was on it has ended with them; its host says HELLO again.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from xts_messages.queues.queue_kinds import QueueEnd

from xts_proxy.supervisor.log import LOG

if TYPE_CHECKING:
    from xts_proxy.queues.channels import Channels

#: In which what a process has sent has left the machine.
_SENT_S = 2.0
_LOOK_S = 0.02


class KeptEnds:
    """By number of the queue."""

    def __init__(self) -> None:
        self.ends: dict[int, QueueEnd] = {}

    def keep(self, queue_id: int, end: QueueEnd) -> None:
        """Its descriptors stay the caller's."""
        self.drop(queue_id)
        self.ends[queue_id] = QueueEnd(end.geometry, tuple(os.dup(fd) for fd in end.descriptors))

    def drop(self, queue_id: int) -> None:
        """Harmless when it is not kept."""
        if end := self.ends.pop(queue_id, None):
            end.close()

    def close(self) -> None:
        """Harmless when repeated."""
        for queue_id in list(self.ends):
            self.drop(queue_id)


async def has_ended(pidfd: int, within_s: float | None = None) -> bool:
    """The process has; False: not in this time. OSError: it is no descriptor of a process."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), within_s)
    finally:
        loop.remove_reader(pidfd)
    return ended.is_set()


async def serve_orphans(channels: Channels, ends: Mapping[int, QueueEnd], problem_is: str) -> int:
    """Has these queues served, whose process has ended. Those that cannot be are logged as `problem_is`, and are lost;
    returns how many."""
    failed, why = [], ""
    for queue_id, end in ends.items():
        if problem := await _serve_orphan(partial(channels.take_orphan, queue_id, end)):
            failed.append(queue_id)
            why = problem
            LOG.error("upgrade: queue %d %s: %s", queue_id, problem_is, problem)
    if failed:
        channels.lost(failed, why)
    return len(failed)


async def _serve_orphan(serve: Callable[[], None]) -> str:
    """Calls it until nothing is on its way any more from the process that has ended. Returns why the queue cannot be
    served; "": it is."""
    deadline = time.monotonic() + _SENT_S
    while True:
        try:
            serve()
        except OSError as error:
            if error.errno != errno.EAGAIN or time.monotonic() >= deadline:
                return error.strerror or str(error)
            await asyncio.sleep(_LOOK_S)
        else:
            return ""
