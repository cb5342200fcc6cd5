"""The product's processes by their names: a program and those that it has started."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from beds.patience import SLOWER


def below(pid: int) -> Iterator[tuple[str, int]]:
    """Name and number of each process that descends from one, as far as it lives."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in map(int, found):
        try:
            name = Path(f"/proc/{child}/comm").read_text().strip()
        except OSError:
            continue
        yield name, child
        yield from below(child)


def of(pids: Iterable[int], name: str) -> list[int]:
    """Those of this name."""
    found = []
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                found.append(pid)
    return found


def named(pid: int, name: str) -> list[int]:
    """The processes of this name that descend from one."""
    return [child for found, child in below(pid) if found == name]


def one(pid: int, name: str, seconds: float = 10 * SLOWER, other_than: int = 0) -> int:
    """The process of this name that descends from one, as soon as there is just one."""
    deadline = time.monotonic() + seconds
    while len(found := [child for child in named(pid, name) if child != other_than]) != 1:
        assert time.monotonic() < deadline, f"{name}: {found}"
        time.sleep(0.005)
    return found[0]


def _states(pid: int) -> Iterator[str]:
    """Of its threads, as in proc(5)."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it may end meanwhile
            yield (thread / "stat").read_text().rpartition(")")[2].split()[0]


def stop(pid: int, seconds: float = 10 * SLOWER) -> None:
    """Stops it; when this returns, none of its threads runs. One of them has to take the signal first, and on a busy
    machine the others go on until that one gets a processor."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + seconds
    while running := [state for state in _states(pid) if state not in "TtZX"]:
        assert time.monotonic() < deadline, f"{pid} does not stop: {running}"
        time.sleep(0.001)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
