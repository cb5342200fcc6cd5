"""Lets one process at a time change labs: others wait."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .privilege import LabError

LOCK_TIMEOUT_S = 60.0


@contextmanager
def exclusively() -> Iterator[None]:
    """Lets one process at a time change labs. The lock is an abstract name, not a file, so a crash leaves nothing
    behind."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        while True:
            try:
                lock.bind("\0xts-lab")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                if time.monotonic() > deadline:
                    raise LabError(
                        f"another xts-lab has been at work for {LOCK_TIMEOUT_S:.0f} s; is it stuck?"
                    ) from None
                time.sleep(0.05)
        yield
