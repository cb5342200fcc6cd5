"""A channel on its way to the new proxy, and which one comes next.

Theory of operation. A host waits from the MOVE it gets to the moment that the new proxy has its channel. Channels go
one after the other, over AF_XDP in some 10 ms each, so if all hosts were asked at once, the last one would wait for all
the others. So the next host is asked when the last one has gone, and a request waits for one channel. A host that takes
long, because it is stopped or has no processor, holds nobody up: for each of those two more are asked, so that hundreds
of them are asked within a few LONG_S. Queues without a host make nobody wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from xts_proxy.upgrade.handover import Sockets, private_memory
from xts_proxy.workers.remote_worker import RemoteWorker
from xts_proxy.workers.workers import Moved

#: A host that has been asked for as long takes long.
LONG_S = 0.03


@dataclass(slots=True)
class Leaving:
    """A channel that is to move. `live`: it has a host. `kept`: what was sent of it, until it is taken."""

    worker: RemoteWorker
    live: bool
    asked: bool = False
    asked_at: float = 0.0
    ask_at: float = 0.0
    kept: list[tuple[Sockets, list[int]]] = field(default_factory=list)
    private_fd: int = -1  # for the keys of the next piece

    def take(self, queue_id: int) -> tuple[Moved, list[int]] | None:
        """The next piece; its descriptors are the caller's."""
        if self.private_fd < 0:
            self.private_fd = private_memory()
        found = self.worker.move_take(queue_id, self.private_fd)
        if found and found[0].private:
            found[1].append(self.private_fd)
            self.private_fd = -1
        return found

    def close(self) -> None:
        """Harmless when repeated."""
        if self.private_fd >= 0:
            os.close(self.private_fd)
            self.private_fd = -1


def may_be_asked(leaving: Iterable[Leaving], now: float | None = None) -> int:
    """How many more hosts. `now`: of time.monotonic()."""
    now = time.monotonic() if now is None else now
    since = [now - one.asked_at for one in leaving if one.asked and one.live]
    return 1 + 2 * sum(1 for seconds in since if seconds > LONG_S) - len(since)


def is_about_to_answer(leaving: Iterable[Leaving], within_s: float) -> bool:
    """Was a host asked so short a time ago?"""
    now = time.monotonic()
    return any(one.asked and one.live and now - one.asked_at < within_s for one in leaving)
