"""A machine that is slow for the processes that are started on it, and as ever for the test: together they get a small
share of one processor (a control group's quota)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xts_lab.lab import Lab
from xts_lab.running_programs import Record

from beds.patience import SLOWER

ROOT = Path("/sys/fs/cgroup")
#: The longest that the kernel takes: nobody goes on for up to that long.
PERIOD_US = 1_000_000
_IN = 'echo $$ >"$0" && exec "$@"'


def missing() -> str:
    """Why no machine can be made slow here, or ""."""
    if os.geteuid() != 0:
        return "a control group needs root"
    if not (ROOT / "cpu" / "cpu.cfs_quota_us").exists() and not _second_version():
        return "there is no control group of processors with quotas"
    return ""


def _second_version() -> bool:
    subtree = ROOT / "cgroup.subtree_control"
    return subtree.exists() and "cpu" in subtree.read_text().split()


class SlowMachine(contextlib.AbstractContextManager["SlowMachine"]):
    """Processes that `started_by()` starts, and all that come of them. None may be left at its end."""

    def __init__(self, name: str) -> None:
        self._second = _second_version()
        self.folder = (ROOT if self._second else ROOT / "cpu") / name

    def __enter__(self) -> SlowMachine:
        self.folder.mkdir()
        return self

    def __exit__(self, *_: Any) -> None:
        self.share(1.0)
        deadline = time.monotonic() + 20 * SLOWER
        while (self.folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.folder.rmdir()

    def started_by(self) -> list[str]:
        """What the command of a process begins with."""
        return ["/bin/sh", "-c", _IN, str(self.folder / "cgroup.procs")]

    def share(self, of_a_processor: float) -> None:
        """From now on; 1: as much as they like."""
        quota = -1 if of_a_processor >= 1 else int(PERIOD_US * of_a_processor)
        if self._second:
            (self.folder / "cpu.max").write_text(f"{quota if quota > 0 else 'max'} {PERIOD_US}")
            return
        (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (self.folder / "cpu.cfs_quota_us").write_text(str(quota))

    @contextlib.contextmanager
    def slow(self, of_a_processor: float) -> Iterator[None]:
        self.share(of_a_processor)
        try:
            yield
        finally:
            self.share(1.0)

    def throttled_s(self) -> float:
        """How long they had to wait for their share, by the kernel's count."""
        for line in (self.folder / "cpu.stat").read_text().splitlines():
            name, value = line.split()
            if name in ("throttled_time", "throttled_usec"):
                return int(value) / (1e9 if name == "throttled_time" else 1e6)
        return 0.0


class SlowLab(Lab):
    """Whose agent and proxy are on such a machine, and what popen_slow() starts."""

    def __init__(self, machine: SlowMachine, name: str, **settings: Any) -> None:
        super().__init__(name, **settings)
        self.machine = machine

    def spawn(
        self,
        role: str,
        command: Sequence[str],
        *,
        name: str,
        ready: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Record:
        command = [*self.machine.started_by(), *command]
        return super().spawn(role, command, name=name, ready=ready, environment=environment)

    def slow_command(self, *command: str) -> list[str]:
        return [*self.machine.started_by(), *command]
