"""Who had a core, and when, and who started whom: the kernel's trace of its scheduler (sched_switch, sched_process_fork
and sched_stat_runtime, in an instance of tracefs of our own).

A guest's kernel leaves out of a task's run time what the hypervisor took of the core meanwhile (paravirtual time
accounting). Each tick and each switch traces what the task has run since the one before, in nanoseconds: what the clock
says more was stolen. So it is known to within a tick (4 ms) when that was, or to within a run where that is shorter. A
kernel that leaves out the time of interrupts, too (IRQ_TIME_ACCOUNTING), cannot be asked this way.

The clock of the trace is CLOCK_MONOTONIC, so what it says is compared with the times of requests. A switch costs some
hundred nanoseconds more while it is on, in every kind of slot. Needs root, and a kernel
with tracefs.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

TRACEFS = Path("/sys/kernel/tracing")
_BUFFER_KB = 16384  # of each core: some 100,000 switches
_SWITCH = re.compile(
    r"\s(?P<s>\d+)\.(?P<us>\d{6}): sched_switch: prev_comm=(?P<name>.*) prev_pid=(?P<task>\d+) prev_prio=.*"
    r" ==> next_comm=(?P<come>.*) next_pid=(?P<next>\d+) "
)
_RAN = re.compile(
    r"\s(?P<s>\d+)\.(?P<us>\d{6}): sched_stat_runtime: comm=(?P<name>.*) pid=(?P<task>\d+) runtime=(?P<ns>\d+) \[ns\]"
)
_LEAST_STOLEN_NS = 20_000  # the trace has microseconds, and the two clocks are not read at once
_FORK = re.compile(r": sched_process_fork: comm=.* pid=(\d+) child_comm=.* child_pid=(\d+)$")


@dataclass(frozen=True, slots=True)
class Run:
    """A task had the core. `task` 0: nobody had it."""

    begun_ns: int
    ended_ns: int
    task: int
    name: str


def _time_ns(found: re.Match[str]) -> int:
    return (int(found["s"]) * 1_000_000 + int(found["us"])) * 1000


@dataclass(slots=True)
class _Core:
    """What is known of a core while its trace is read: `task` runs since `begun_ns`, and did so up to `seen_ns`."""

    task: int
    name: str
    begun_ns: int
    seen_ns: int
    runs: list[Run] = field(default_factory=list)
    stolen: list[tuple[int, int]] = field(default_factory=list)

    def change(self, ns: int, task: int, name: str) -> None:
        """Another task has the core from now on."""
        self.runs.append(Run(self.begun_ns, ns, self.task, self.name))
        self.task, self.name, self.begun_ns, self.seen_ns = task, name, ns, ns

    def ran(self, now_ns: int, for_ns: int, task: int, name: str) -> None:
        """A task has run this long, by the scheduler's account."""
        if task != self.task:
            self.change(max(self.seen_ns, now_ns - for_ns), task, name)
        elif (lost_ns := now_ns - self.seen_ns - for_ns) >= _LEAST_STOLEN_NS:
            self.stolen.append((now_ns - lost_ns, now_ns))
        self.seen_ns = now_ns


def history_of(lines: Sequence[str]) -> tuple[list[Run], list[tuple[int, int]]]:
    """What a trace of one core says, in order: what it ran, and when the hypervisor had it while a task wanted it. The
    trace is known from its first switch on, and not to the end of its last run.

    Where in a time that something was stolen is not known: most often a tick is late, and comes at the end of it. Some
    switches of some tasks are not in the trace. Then a task is accounted, or goes, that is not the one that came."""
    core: _Core | None = None
    for line in lines:
        if core and (ran := _RAN.search(line)):
            core.ran(_time_ns(ran), int(ran["ns"]), int(ran["task"]), ran["name"])
        elif found := _SWITCH.search(line):
            now_ns, gone, come = _time_ns(found), int(found["task"]), int(found["next"])
            core = core or _Core(gone, found["name"], now_ns, now_ns)
            if gone != core.task:
                core.change(core.seen_ns, gone, found["name"])
            core.change(now_ns, come, found["come"])
    runs = [run for run in core.runs if run.ended_ns > run.begun_ns] if core else []
    return runs, core.stolen if core else []


def parents_of(lines: Sequence[str]) -> dict[int, int]:
    """Of the tasks that were started meanwhile."""
    found = filter(None, map(_FORK.search, lines))
    return {int(fork[2]): int(fork[1]) for fork in found}


@dataclass(frozen=True, slots=True)
class Traced:
    """What each core ran, who has started the tasks that were new, and when the hypervisor took a core from a task."""

    runs: dict[int, list[Run]]
    parents: dict[int, int]
    stolen: list[tuple[int, int]] = field(default_factory=list)


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
        known = {core: history_of(of_core) for core, of_core in lines.items()}
        stolen = [one for _, of_core in known.values() for one in of_core]
        return Traced({core: runs for core, (runs, _) in known.items()}, parents_of(every), stolen)

    def _read(self, core: int) -> list[str]:
        with (self._place / f"per_cpu/cpu{core}/trace").open() as lines:
            text = lines.read().splitlines()
        lost = (self._place / f"per_cpu/cpu{core}/stats").read_text()
        if not re.search(r"^overrun: 0$", lost, re.MULTILINE):
            raise RuntimeError("the trace of the scheduler is longer than its buffer: make shorter slots")
        return text


@contextmanager
def _tracefs() -> Iterator[Path]:
    """Where tracefs is; it is mounted for as long as it is needed where it is not. OSError: that cannot be done."""
    if (TRACEFS / "instances").is_dir():
        yield TRACEFS
        return
    with tempfile.TemporaryDirectory(prefix="xts-tracefs-") as folder:
        done = subprocess.run(
            ["mount", "-t", "tracefs", "tracefs", folder], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise OSError(done.stderr.strip())
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


@contextmanager
def scheduler_trace(cores: Sequence[int]) -> Iterator[SchedulerTrace | None]:
    """None where there is no right, or no tracefs."""
    with ExitStack() as stack:
        try:
            place = stack.enter_context(_tracefs()) / "instances" / f"xts-attack-{os.getpid()}"
            place.mkdir()
        except OSError:
            yield None
            return
        yield stack.enter_context(_traced(place, cores))


@contextmanager
def _traced(place: Path, cores: Sequence[int]) -> Iterator[SchedulerTrace]:
    try:
        (place / "trace_clock").write_text("mono")
        (place / "buffer_size_kb").write_text(str(_BUFFER_KB))
        for event in ("sched_switch", "sched_process_fork", "sched_stat_runtime"):
            (place / f"events/sched/{event}/enable").write_text("1")
        yield SchedulerTrace(place, cores)
    finally:
        with suppress(OSError):
            place.rmdir()
