"""The CPUs for the proxy's Python: not those that workers are pinned to (proxy.cpus), if there are others.

A worker is SCHED_BATCH and does not preempt an ordinary thread when it wakes (native/loop/worker.c). On a core shared
with the supervisor, it would wait for the supervisor's work: 0.3 to 1 ms for a process that attaches.
"""

from __future__ import annotations

import os
from collections.abc import Sequence


def leave_to_workers(cpus: Sequence[int]) -> str:
    """Moves this thread, and those that it starts from now on, away from these CPUs, if it may run on others. Returns a
    line for the log; "" if nothing was done."""
    allowed = os.sched_getaffinity(0)
    others = allowed - set(cpus)
    if not others or others == allowed:
        return ""
    os.sched_setaffinity(0, others)
    return f"Python runs on CPU {_listed(others)}, workers on {_listed(cpus)}"


def _listed(cpus: Sequence[int] | set[int]) -> str:
    return ", ".join(map(str, sorted(set(cpus))))
