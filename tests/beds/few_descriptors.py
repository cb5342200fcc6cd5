"""A process that can open a few more descriptors, and no further one for a while."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    before = next(line for line in limits if line.startswith("Max open files")).split()[3]
    _limit(pid, max(numbers_below(pid, free), least))
    try:
        yield
    finally:
        with suppress(ProcessLookupError, subprocess.CalledProcessError):  # it has ended
            _limit(pid, int(before))


def _limit(pid: int, count: int) -> None:
    """As the process's user: a machine may have no CAP_SYS_RESOURCE."""
    owner = Path(f"/proc/{pid}").stat()
    if owner.st_uid == os.geteuid():
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
        return
    as_its_user = ["setpriv", f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups"]
    subprocess.run([*as_its_user, "prlimit", "--pid", str(pid), f"--nofile={count}:"], check=True)
