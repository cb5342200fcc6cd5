"""What the machine did meanwhile, known by other means than the bystanders' figures.

A core may stand still (its hypervisor runs something else), and programs that are no part of the scene may have it.
The first is told by a thread that goes before all others on that core and looks how late it wakes up:
`python -m attack.machine` answers each duration on its standard input. The second is told by /proc: the run time of all
tasks that are not the scene's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .scene import PRIORITY, go_first

PACE_NS = 1_000_000
#: A kernel's thread that does the scene's own work: packets, and what is left for later of closed sockets.
_OWN_THREADS = ("ksoftirqd/", "napi/", "rcu", "ktimers/")
LATE_US = 500.0
FOREIGN_MS = 1.0
_PROCESSOR = 36  # of /proc/PID/stat, counted behind the name


@dataclass(frozen=True, slots=True)
class Machine:
    """During one slot. `late_us`: how late a thread that goes before all others woke up at most, on either core;
    `foreign_ms`: what tasks that are none of the scene's ran on the device's, by their name."""

    late_us: float
    foreign_ms: dict[str, float] = field(default_factory=dict)

    @property
    def disturbed(self) -> bool:
        """It stood still, or others had it, for so long that a p99 of a slot may be theirs."""
        return self.late_us > LATE_US or sum(self.foreign_ms.values()) > FOREIGN_MS


#: For how long each task has run, in nanoseconds; by its folder in /proc.
Runs = dict[str, int]


def _stat(task: Path) -> tuple[int, list[str]]:
    """Its parent, and the fields of its stat behind the name."""
    fields = (task / "stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), fields


def family(roots: Iterable[int]) -> set[int]:
    """These processes and all that come from them."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            children.setdefault(_stat(process)[0], []).append(int(process.name))
        except (OSError, ValueError):
            continue
    found: set[int] = set()
    left = list(roots)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children.get(pid, [])
    return found


def runs_of_others(own: set[int]) -> Runs:
    """Of all tasks of other processes."""
    runs: Runs = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) in own:
            continue
        with suppress(OSError, ValueError, IndexError):
            for task in (process / "task").iterdir():
                runs[str(task)] = int((task / "schedstat").read_bytes().split()[0])
    return runs


def foreign_ms(core: int, before: Runs, after: Runs) -> dict[str, float]:
    """What tasks whose core this is have run in between, by name."""
    out: dict[str, float] = {}
    for folder, ran_ns in after.items():
        took_ns = ran_ns - before.get(folder, 0)
        if took_ns <= 0:
            continue
        with suppress(OSError, ValueError, IndexError):
            name = Path(folder, "comm").read_text().strip()
            if int(_stat(Path(folder))[1][_PROCESSOR]) == core and not name.startswith(_OWN_THREADS):
                out[name] = out.get(name, 0.0) + took_ns / 1e6
    return out


def most_late_us(duration_s: float) -> float:
    """How late this thread wakes up at most."""
    late_ns = 0
    due = time.monotonic_ns()
    end = due + int(duration_s * 1e9)
    while due < end:
        due += PACE_NS
        if (left_ns := due - time.monotonic_ns()) > 0:
            time.sleep(left_ns / 1e9)
        now = time.monotonic_ns()
        late_ns = max(late_ns, now - due)
        due = max(due, now - PACE_NS)
    return late_ns / 1000


def main() -> int:
    os.sched_setaffinity(0, {int(sys.argv[1])})
    go_first(PRIORITY + 1)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(most_late_us(float(line))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
