"""What the processes of one `xts run` or `xts dev` share (preload/once_per_run.h): which notices have been written to
standard error, each once among all of them, and how many sockets of strict ones were offloaded or refused."""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ._environment import setting
from ._native import lib

_NAME = "xts-notices"
_LINK = f"/memfd:{_NAME} (deleted)"
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

_COUNTERS = Struct("=QQQ")
_COUNTERS_AT = 16  # behind the bits of the notices

_page: bytearray | mmap.mmap | None = None


class RunSockets(NamedTuple):
    """Sockets of the strict processes of a run. `refused`: the rules offload them, and they were not offloaded.
    `reason`: of the last of these."""

    offloaded: int
    refused: int
    reason: int


def sockets_of(fd: int) -> RunSockets:
    """Counts in the page that make() has returned."""
    return RunSockets(*_COUNTERS.unpack(os.pread(fd, _COUNTERS.size, _COUNTERS_AT)))


def count_in_run(reason: int) -> None:
    """Counts a socket of a strict process: 0: it is offloaded, or the reason why it is not."""
    page = _shared_page()
    offloaded, refused, last = _COUNTERS.unpack_from(page, _COUNTERS_AT)
    _COUNTERS.pack_into(page, _COUNTERS_AT, offloaded + (not reason), refused + bool(reason), reason or last)


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
    page = _shared_page()
    byte, bit = number // 8, 1 << number % 8
    first = not page[byte] & bit
    page[byte] |= bit
    return first


def _shared_page() -> bytearray | mmap.mmap:
    """The page of the run, or one of this process's own."""
    global _page  # noqa: PLW0603 - one of the process
    if _page is None:
        _page = _shared() or bytearray(lib.ONCE_BYTES)
    return _page


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
