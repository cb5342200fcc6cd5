"""Checks that workers make progress. A worker that is busy is not dead, and hosts wait for it (XTS_DEAD_MS). A worker
that does not finish a round within a second is reported: what it is doing, and when it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from xts_messages.services.log_format import about

from xts_proxy.supervisor.log import LOG
from xts_proxy.supervisor.periodic import Periodic

LOOK_S = 0.5
NO_PROGRESS_S = 1.0


class Worker(Protocol):
    """A worker, in this process or in its own."""

    @property
    def index(self) -> int: ...
    def pulse(self) -> tuple[float, str]: ...


def _pulse(worker: Worker) -> tuple[float, str] | None:
    """None: its process has ended. The supervisor learns that from the process itself, and says so."""
    try:
        return worker.pulse()
    except BrokenPipeError:
        return None


@dataclass(slots=True)
class _Seen:
    """What was seen of one worker: for how long it has been stuck, and when that is logged (again)."""

    stands_s: float = 0.0
    told_s: float = 0.0
    count: int = 0


class Heartbeat(Periodic):
    """Checks the workers every LOOK_S."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        super().__init__(LOOK_S, self.look)
        self._workers = workers
        self._seen: dict[int, _Seen] = {}

    def look(self) -> None:
        """Checks them once."""
        for worker in self._workers:
            self._look_at(worker, self._seen.setdefault(worker.index, _Seen()))

    def _look_at(self, worker: Worker, seen: _Seen) -> None:
        if (pulse := _pulse(worker)) is None:
            return
        stands_s, what = pulse
        extra = about(worker=worker.index)
        if stands_s < seen.stands_s and seen.told_s:
            LOG.warning("worker %d: goes on after %.1f s", worker.index, seen.stands_s, extra=extra)
            seen.told_s = 0.0
        seen.stands_s = stands_s
        if stands_s >= max(NO_PROGRESS_S, 2 * seen.told_s):
            seen.count += not seen.told_s
            seen.told_s = stands_s
            LOG.warning("worker %d: no progress for %.1f s (%s)", worker.index, stands_s, what, extra=extra)

    def figures(self, worker: Worker) -> tuple[float, int]:
        """For how long it has been stuck (0.0: it is not), and how often that was reported."""
        stands_s, _ = _pulse(worker) or (0.0, "")
        seen = self._seen.get(worker.index, _Seen())
        return (stands_s if stands_s >= NO_PROGRESS_S else 0.0), seen.count


def answers(worker: Worker) -> bool:
    """Would the worker answer a request for figures in time?"""
    pulse = _pulse(worker)
    return pulse is not None and pulse[0] < NO_PROGRESS_S
