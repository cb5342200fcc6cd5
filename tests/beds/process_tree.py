"""The product's processes by their names: a program and those that it has started."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path


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


def one(pid: int, name: str, seconds: float = 10, other_than: int = 0) -> int:
    """The process of this name that descends from one, as soon as there is just one."""
    deadline = time.monotonic() + seconds
    while len(found := [child for child in named(pid, name) if child != other_than]) != 1:
        assert time.monotonic() < deadline, f"{name}: {found}"
        time.sleep(0.005)
    return found[0]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
