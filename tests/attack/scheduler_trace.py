"""Who had a core, and when, and who started whom: the kernel's trace of its scheduler (sched_switch and
sched_process_fork, in an instance of tracefs of our own).

The clock of the trace is CLOCK_MONOTONIC, so what it says is compared with the times of requests. A switch costs some
hundred nanoseconds more while it is on, in every kind of slot. Needs root, and tracefs.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

TRACEFS = Path("/sys/kernel/tracing")
_BUFFER_KB = 8192  # of each core: some 100,000 switches
_SWITCH = re.compile(
    r"\s(?P<s>\d+)\.(?P<us>\d{6}): sched_switch: prev_comm=(?P<name>.*) prev_pid=(?P<task>\d+) prev_prio=.*"
    r" next_pid=(?P<next>\d+) "
)
_FORK = re.compile(r": sched_process_fork: comm=.* pid=(\d+) child_comm=.* child_pid=(\d+)$")


@dataclass(frozen=True, slots=True)
class Run:
    """A task had the core. `task` 0: nobody had it."""

    begun_ns: int
    ended_ns: int
    task: int
    name: str


def runs_of(lines: Sequence[str]) -> list[Run]:
    """What a trace of one core says, in order. The first switch has only an end, and the last only a beginning."""
    runs: list[Run] = []
    before_ns = None
    for line in lines:
        if (found := _SWITCH.search(line)) is None:
            continue
        now_ns = (int(found["s"]) * 1_000_000 + int(found["us"])) * 1000
        if before_ns is not None:
            runs.append(Run(before_ns, now_ns, int(found["task"]), found["name"]))
        before_ns = now_ns
    return runs


def parents_of(lines: Sequence[str]) -> dict[int, int]:
    """Of the tasks that were started meanwhile."""
    found = filter(None, map(_FORK.search, lines))
    return {int(fork[2]): int(fork[1]) for fork in found}


@dataclass(frozen=True, slots=True)
class Traced:
    """What each core ran, and who has started the tasks that were new."""

    runs: dict[int, list[Run]]
    parents: dict[int, int]


NOTHING = Traced({}, {})


class Taken:
    """Times that something took: of intervals that do not overlap, in order, how much of a time is in them."""

    def __init__(self, intervals: Sequence[tuple[int, int]]) -> None:
        self._begun: list[int] = []
        self._ended: list[int] = []
        for begun_ns, ended_ns in sorted(intervals):
            if self._ended and begun_ns <= self._ended[-1]:
                self._ended[-1] = max(self._ended[-1], ended_ns)
            else:
                self._begun.append(begun_ns)
                self._ended.append(ended_ns)

    def within_ns(self, begun_ns: int, ended_ns: int) -> int:
        """How much of this time they took."""
        first, last = bisect_right(self._ended, begun_ns), bisect_left(self._begun, ended_ns)
        return sum(
            min(self._ended[number], ended_ns) - max(self._begun[number], begun_ns) for number in range(first, last)
        )


class SchedulerTrace:
    """Traces these cores while its context lasts."""

    def __init__(self, place: Path, cores: Sequence[int]) -> None:
        self._place, self._cores = place, cores

    def forget(self) -> None:
        """What was traced so far."""
        (self._place / "trace").write_text("")

    def read(self) -> Traced:
        """What was traced since. RuntimeError: it is not all there."""
        (self._place / "tracing_on").write_text("0")
        try:
            lines = {core: self._read(core) for core in self._cores}
        finally:
            (self._place / "tracing_on").write_text("1")
        every = [line for of_core in lines.values() for line in of_core]
        return Traced({core: runs_of(of_core) for core, of_core in lines.items()}, parents_of(every))

    def _read(self, core: int) -> list[str]:
        with (self._place / f"per_cpu/cpu{core}/trace").open() as lines:
            text = lines.read().splitlines()
        lost = (self._place / f"per_cpu/cpu{core}/stats").read_text()
        if not re.search(r"^overrun: 0$", lost, re.MULTILINE):
            raise RuntimeError("the trace of the scheduler is longer than its buffer: make shorter slots")
        return text


@contextmanager
def scheduler_trace(cores: Sequence[int]) -> Iterator[SchedulerTrace | None]:
    """None where there is no right, or no tracefs."""
    place = TRACEFS / "instances" / f"xts-attack-{os.getpid()}"
    try:
        place.mkdir()
    except OSError:
        yield None
        return
    try:
        (place / "trace_clock").write_text("mono")
        (place / "buffer_size_kb").write_text(str(_BUFFER_KB))
        for event in ("sched_switch", "sched_process_fork"):
            (place / f"events/sched/{event}/enable").write_text("1")
        yield SchedulerTrace(place, cores)
    finally:
        with suppress(OSError):
            place.rmdir()
