"""A process that can open a few more descriptors, and no further one for a while."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.process_limits import limited


def numbers_below(pid: int, free: int) -> int:
    """The limit below which just so many numbers of descriptors are free."""
    used = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    used -= {number for number in used if pid == os.getpid() and not _is_open(number)}  # that of the listing
    limit = 0
    while free or limit in used:
        free -= limit not in used
        limit += 1
    return limit


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


@contextmanager
def few_descriptors(pid: int, free: int, least: int = 0) -> Iterator[None]:
    """Lowers the soft limit, not below `least`: poll() takes no list that is longer than the limit."""
    limit = max(numbers_below(pid, free), least)
    if pid != os.getpid():
        with limited(pid, "Max open files", "nofile", limit):
            yield
        return
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
