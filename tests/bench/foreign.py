"""What other programs take from the machine while we measure.

User time of both cores less that of our own processes: kernel threads have none, so what is left is somebody
else's. On a virtual machine, the time as well that the hypervisor gave to others although there was work here
(stolen). Runs that were disturbed are made again rather than believed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Foreign:
    """Since the last look. `pids`: our processes other than this one and its finished children."""

    def __init__(self, pids: Iterable[int]) -> None:
        self.pids = tuple(pids)
        self._total, self._ours = self._now()

    def _now(self) -> tuple[float, float]:
        cpu = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
        ours = os.times()
        taken = (int(cpu[1]) + int(cpu[2]) + int(cpu[8])) * _TICK_S  # user, nice, steal
        return taken, ours.user + ours.children_user + sum(map(_user_s, self.pids))

    def look(self) -> float:
        """Seconds of core time that others have had since the last look, or the beginning."""
        total, ours = self._now()
        used = (total - self._total) - (ours - self._ours)
        self._total, self._ours = total, ours
        return max(0.0, used)


def _user_s(pid: int) -> float:
    return _times_s(pid)[0]


def threads_s(pid: int) -> float:
    """User and system time so far of all threads of a process that it has now, to the nanosecond."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text(encoding="ascii").split()[0]) for thread in threads) / 1e9


def _times_s(pid: int) -> tuple[float, float]:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return int(fields[11]) * _TICK_S, int(fields[12]) * _TICK_S
