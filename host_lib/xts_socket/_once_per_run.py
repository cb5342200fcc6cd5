"""Notices that are written to standard error once among the processes of one `xts run` or `xts dev`: a page of bits
that they share says which have been written (preload/once_per_run.h)."""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import suppress
from pathlib import Path

from ._environment import setting
from ._native import lib

_NAME = "xts-notices"
_LINK = f"/memfd:{_NAME} (deleted)"
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

_written: bytearray | mmap.mmap | None = None


def make() -> int:
    """Makes a page for programs that this process starts with XTS_ROOT_PID set to its id. Returns its descriptor, to
    keep open while they run, or -1: then each process writes its own notices."""
    fd = -1
    try:
        fd = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, lib.ONCE_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        if fd >= 0:
            os.close(fd)
        return -1
    return fd


def once_per_run(number: int) -> bool:
    """Does this notice still have to be written? It counts as written from now on. Two processes at the same moment may
    both write it."""
    global _written  # noqa: PLW0603 - one of the process
    if _written is None:
        _written = _shared() or bytearray(lib.ONCE_BYTES)
    byte, bit = number // 8, 1 << number % 8
    first = not _written[byte] & bit
    _written[byte] |= bit
    return first


def _shared() -> mmap.mmap | None:
    """The page of the first process of the run; None: there is none that this process may use."""
    root = setting("XTS_ROOT_PID") or ""
    if not root.isdecimal() or int(root) == 0:
        return None
    with suppress(OSError):
        for entry in Path(f"/proc/{root}/fd").iterdir():
            with suppress(OSError):
                if os.readlink(entry) == _LINK:  # noqa: PTH115 - a Path would be made of what is no path
                    return _map(entry)
    return None


def _map(entry: Path) -> mmap.mmap | None:
    """Checks the length, since any process of this user could have put a page of another length there."""
    fd = os.open(entry, os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size != lib.ONCE_BYTES or not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            return None
        return mmap.mmap(fd, lib.ONCE_BYTES)
    finally:
        os.close(fd)
