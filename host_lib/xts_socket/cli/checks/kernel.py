"""The kernel: its version, and whether it has AF_XDP."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterator

from . import Check

_AF_XDP = 44

#: For unprivileged use of an AF_XDP socket that was handed over, and for multi-buffer AF_XDP.
_KERNEL_WANTED = (6, 6)


def checks() -> Iterator[Check]:
    release = os.uname().release
    version = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    if version >= _KERNEL_WANTED:
        yield Check("kernel", "ok", release)
    else:
        yield Check(
            "kernel",
            "warn",
            f"{release}: no multi-buffer AF_XDP, and AF_XDP queues only for privileged processes",
            "a kernel from 6.6; until then use shm",
        )
    yield _af_xdp()


def _af_xdp() -> Check:
    try:
        socket.socket(_AF_XDP, socket.SOCK_RAW).close()
    except PermissionError:
        return Check("AF_XDP", "ok", "in the kernel; this user may not open it, and need not: xts-agent does")
    except OSError as failure:
        if failure.errno == errno.EAFNOSUPPORT:
            return Check(
                "AF_XDP",
                "warn",
                "not in this kernel",
                "a kernel with CONFIG_XDP_SOCKETS=y; shm works without",
            )
        return Check("AF_XDP", "warn", f"cannot be opened: {failure.strerror}")
    return Check("AF_XDP", "ok", "opens")
