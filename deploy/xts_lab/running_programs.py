"""Programs that outlive the command that started them, and are stopped exactly, or not at all.

A process id alone may by now belong to somebody else. A record therefore holds the start time too (in clock
ticks since boot, from /proc), and each program leads a session of its own: what it started in turn is found
by that session, for as long as any of it lives.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

STOP_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class _Stat:
    """What /proc/PID/stat says of a process."""

    state: str
    session: int
    start_ticks: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before may hold spaces and parentheses
    return _Stat(state=fields[0], session=int(fields[3]), start_ticks=int(fields[19]))


@dataclass(frozen=True)
class Record:
    """Who a program is; kept in a file of its own."""

    pid: int
    start_ticks: int
    command: list[str]

    @classmethod
    def of(cls, pid: int, command: list[str]) -> Record:
        """The record of a living process."""
        found = _stat(pid)
        if found is None:
            raise ProcessLookupError(3, f"no process {pid}")
        return cls(pid, found.start_ticks, command)

    @classmethod
    def read(cls, path: Path) -> Record | None:
        """The record in a file; None when there is none, or a crash left half of one."""
        try:
            return cls(**json.loads(path.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Writes the file; it is there whole or not at all."""
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(self)))
        temporary.rename(path)

    @property
    def alive(self) -> bool:
        """True while the program itself runs."""
        found = _stat(self.pid)
        return found is not None and found.state not in "ZX" and found.start_ticks == self.start_ticks

    def members(self) -> list[int]:
        """Process ids of the program and of what it started, those that still run."""
        leader = _stat(self.pid)
        if leader is not None and leader.start_ticks != self.start_ticks:
            return []  # the number is somebody else's; it is not given again while the session has members
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                stat = _stat(int(entry.name))
                if stat is not None and stat.session == self.pid and stat.state not in "ZX":
                    found.append(int(entry.name))
        return found


def stop(record: Record, timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Ends the program and what it started: SIGTERM, then after timeout_s SIGKILL. Blocks until they are
    gone."""
    if record.alive:
        _signal([record.pid], signal.SIGTERM)
        _wait_gone([record.pid], timeout_s)
    left = record.members()
    _signal(left, signal.SIGKILL)
    _wait_gone(left, timeout_s)
    with suppress(ChildProcessError):
        os.waitpid(record.pid, os.WNOHANG)  # it may have been a child of ours


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait_gone(pids: Iterable[int], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        finally:
            os.close(descriptor)


def wait_ready(descriptor: int, timeout_s: float) -> bool:
    """Waits until a program writes to its --ready-fd. False: it closed it instead, or was silent for
    timeout_s."""
    readable, _, _ = select.select([descriptor], [], [], timeout_s)
    return bool(readable) and os.read(descriptor, 64) != b""
