"""What the machine did meanwhile that is no part of the scene.

A bystander's latency is wall-clock time, and a machine shared with other programs, or a kernel thread that nobody can
interrupt, adds milliseconds to it at random. The kernel's trace of its scheduler (scheduler_trace.py) says exactly when
a task that is none of the scene's had one of the two cores. That much of a request's time is taken off it. What a task
of the scene took is never taken off, whatever it did: neither the proxy's own Python, nor the attacker's programs, nor
the kernel's threads that handle packets and what is left of closed sockets.

A core may also stand still, because its hypervisor runs something else: 20 times a second for 0.2 to 2 ms on the
machine of the table. The trace says when, where a task had the core, and that is taken off, too. No thread looks for
it: one that went before all others and woke up each millisecond took a tenth of the core, and was the p99 of requests
without an attack. What a hypervisor takes of a core that is idle (it wakes up late) stays in the latencies.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .scheduler_trace import Taken, Traced

_STEAL = 8  # of a line of /proc/stat: counted from 1
_KTHREADD = 2
#: Kernel threads that may do the scene's own work.
_OWN_THREADS = ("ksoftirqd/", "napi/", "rcu", "ktimers/", "kworker/", "migration/", "cpuhp/")


@dataclass(frozen=True, slots=True)
class Machine:
    """During one slot, on both cores. `stolen_ms`: what the hypervisor took; `foreign_ms`: what tasks that are none of
    the scene's ran, by their name; `taken`: when, both."""

    stolen_ms: float = 0.0
    foreign_ms: dict[str, float] = field(default_factory=dict)
    taken: Taken = field(default_factory=lambda: Taken([]))


def stolen_ms(cores: Sequence[int]) -> float:
    """What the hypervisor has taken of these cores so far."""
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    ticks = sum(int(line[_STEAL]) for line in lines if line[0] in {f"cpu{core}" for core in cores})
    return ticks * 1000 / os.sysconf("SC_CLK_TCK")


def _parent(process: int | str) -> int:
    stat = Path("/proc", str(process), "stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def family(roots: Iterable[int]) -> set[int]:
    """These processes and all that come from them."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            children.setdefault(_parent(process.name), []).append(int(process.name))
    found: set[int] = set()
    left = list(roots)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children.get(pid, [])
    return found


def _process_of(task: int) -> int:
    status = Path("/proc", str(task), "status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("Tgid:")))


def _is_foreign(task: int, name: str, own: set[int]) -> bool:
    """OSError, StopIteration: it has ended."""
    process = _process_of(task)
    if _parent(process) == _KTHREADD:
        return not name.startswith(_OWN_THREADS)
    return process not in own


def foreign_tasks(names: Mapping[int, str], parents: Mapping[int, int], own: set[int]) -> set[int]:
    """Of these tasks, those that are none of the scene's. One that has ended meanwhile counts with who started it, or
    with who started that one. Where none of them lives, it is taken for the scene's."""
    foreign = set()
    for task, name in names.items():
        asked: int | None = task
        while asked is not None:
            try:
                if _is_foreign(asked, name, own):
                    foreign.add(task)
                break
            except (OSError, StopIteration):
                asked = parents.get(asked)
    return foreign


def seen(traced: Traced, own: set[int], stolen_ms: float) -> Machine:
    """From what each core ran."""
    runs = [run for of_core in traced.runs.values() for run in of_core if run.task]
    foreign = foreign_tasks({run.task: run.name for run in runs}, traced.parents, own)
    theirs = [run for run in runs if run.task in foreign]
    ms: Counter[str] = Counter()
    for run in theirs:
        ms[run.name] += (run.ended_ns - run.begun_ns) / 1e6
    taken = [(run.begun_ns, run.ended_ns) for run in theirs]
    return Machine(stolen_ms, dict(ms), Taken(taken + traced.stolen))
