"""A thread of another process that gets no processor for a while, next to others of its process that do."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17  # <linux/ptrace.h>
_WALL = 0x40000000  # <linux/wait.h>
_libc = ctypes.CDLL(None, use_errno=True)


def _ptrace(request: int, thread: int) -> None:
    if _libc.ptrace(ctypes.c_long(request), ctypes.c_long(thread), None, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def held(thread: int) -> Iterator[None]:
    """The process is a child of this one. It goes on in the thread that has held it, which is this one."""
    _ptrace(_SEIZE, thread)
    _ptrace(_INTERRUPT, thread)
    os.waitpid(thread, _WALL)
    try:
        yield
    finally:
        _ptrace(_DETACH, thread)
