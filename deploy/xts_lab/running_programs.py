"""Programs that outlive the command that started them. Only exactly these programs are ever stopped.

A process id alone may have been reused for another process. So a record also holds the start time (in clock ticks since
boot, from /proc), and each program leads its own session: processes that it has started are found by that session, as
long as any of them lives.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

STOP_TIMEOUT_S = 5.0


class _Stat(NamedTuple):
    """The contents of /proc/PID/stat."""

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


class Record(NamedTuple):
    """Identifies a program; each record is a file. (A data class would take the lab's launcher twice its time.)"""

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
        """The record in a file; None: there is none, or a crash has left half of one."""
        try:
            return cls(**json.loads(path.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Writes the file atomically."""
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(self._asdict()))
        temporary.rename(path)

    @property
    def alive(self) -> bool:
        """Does the program itself still run?"""
        found = _stat(self.pid)
        return found is not None and found.state not in "ZX" and found.start_ticks == self.start_ticks

    def members(self) -> list[int]:
        """The process ids of the program and of processes that it started, as far as they still run."""
        leader = _stat(self.pid)
        if leader is not None and leader.start_ticks != self.start_ticks:
            # the number belongs to another process, so the session has no members left: a number in use is not given
            # again
            return []
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                stat = _stat(int(entry.name))
                if stat is not None and stat.session == self.pid and stat.state not in "ZX":
                    found.append(int(entry.name))
        return found


def stop(record: Record, timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Ends the program and the processes that it started: SIGTERM, and after timeout_s SIGKILL. Blocks until they are
    gone."""
    if record.alive:
        _signal([record.pid], signal.SIGTERM)
        _wait_gone([record.pid], timeout_s)
    left = record.members()
    _signal(left, signal.SIGKILL)
    _wait_gone(left, timeout_s)
    with suppress(ChildProcessError):
        os.waitpid(record.pid, os.WNOHANG)  # it may have been our child


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
            _polled(descriptor, deadline - time.monotonic())
        finally:
            os.close(descriptor)


def wait_ready(descriptor: int, timeout_s: float) -> bool:
    """Waits until a program writes to its --ready-fd. False: it closed the descriptor instead, or wrote nothing for
    timeout_s."""
    return _polled(descriptor, timeout_s) and os.read(descriptor, 64) != b""


def _polled(descriptor: int, timeout_s: float) -> bool:
    """Whether there is something to read; select() would refuse descriptors of 1,024 and above."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))
