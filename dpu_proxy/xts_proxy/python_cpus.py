"""On which CPUs the proxy's Python runs: not on those that workers are pinned to (proxy.cpus), where there are others.

A worker is SCHED_BATCH and interrupts no ordinary thread when it wakes (native/worker.c). On a core that it shares with
the supervisor it waits for what that does, 0.3 to 1 ms for a process that attaches.
"""

from __future__ import annotations

import os
from collections.abc import Sequence


def leave_to_workers(cpus: Sequence[int]) -> str:
    """This thread, and those it starts from now on, leave these CPUs if it may run on others. A line for the log, ""
    if nothing was done."""
    allowed = os.sched_getaffinity(0)
    others = allowed - set(cpus)
    if not others or others == allowed:
        return ""
    os.sched_setaffinity(0, others)
    return f"Python runs on CPU {_listed(others)}, workers on {_listed(cpus)}"


def _listed(cpus: Sequence[int] | set[int]) -> str:
    return ", ".join(map(str, sorted(set(cpus))))
