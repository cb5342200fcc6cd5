"""From where on a file may be sent: sendfile() copies, and its errors are to be those of the kernel's."""

from __future__ import annotations

import os

#: Each file system has a limit, and the kernel knows it: this is below all of them.
SURE_OFFSET = 1 << 30
_kernels = os.sendfile  # install() replaces the name


def check_offset(fd: int, at: int, count: int) -> None:
    """OSError as of os.sendfile(), if it would send nothing of this file from there on."""
    if at < SURE_OFFSET:
        return
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        _kernels(writing, fd, at, min(count, 1))
    finally:
        os.close(reading)
        os.close(writing)
