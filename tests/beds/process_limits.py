"""Limits of other processes, for a while."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def identity(pid: int, which: str) -> int:
    """The effective one: "Uid", "Gid"."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{which}:")).split()[2])


def _soft(pid: int, row: str) -> str:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(line for line in lines if line.startswith(row)).removeprefix(row).split()[0]


def _set(pid: int, option: str, value: str) -> None:
    """As the process's user: a machine may have no CAP_SYS_RESOURCE."""
    as_its_user = ["setpriv", f"--reuid={identity(pid, 'Uid')}", f"--regid={identity(pid, 'Gid')}", "--clear-groups"]
    prlimit = ["prlimit", "--pid", str(pid), f"--{option}={value}:"]
    subprocess.run([*as_its_user, *prlimit] if identity(pid, "Uid") else prlimit, check=True)


@contextmanager
def limited(pid: int, row: str, option: str, value: int) -> Iterator[None]:
    """`row`: of /proc/PID/limits. `option`: of prlimit(1)."""
    before = _soft(pid, row)
    _set(pid, option, str(value))
    try:
        yield
    finally:
        with suppress(OSError, subprocess.CalledProcessError):  # it has ended
            _set(pid, option, before)


@contextmanager
def no_more_processes(pid: int) -> Iterator[None]:
    """It can start no further process or thread. The limit does not hold for root."""
    with limited(pid, "Max processes", "nproc", 1):
        yield


@contextmanager
def little_memory(pid: int, more_kib: int) -> Iterator[None]:
    """It gets so much more address space; then calls such as mmap() fail with ENOMEM."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    size_kib = int(next(line for line in lines if line.startswith("VmSize:")).split()[1])
    with limited(pid, "Max address space", "as", (size_kib + more_kib) << 10):
        yield
