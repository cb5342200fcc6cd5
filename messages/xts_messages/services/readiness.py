"""Notifies the program that started us that we are ready, reloading, or stopping: through a descriptor, and
sd_notify(3)."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from xts_messages.services.service_manager import manager


class Readiness:
    """`--ready-fd N` gets one line and is closed; $NOTIFY_SOCKET gets the states of systemd's protocol."""

    def __init__(self, ready_fd: int | None) -> None:
        """OSError EBADF: ready_fd is not open."""
        if ready_fd is not None:
            os.set_inheritable(ready_fd, False)
        self._ready_fd = ready_fd
        self._manager = manager()
        watchdog_us = os.environ.pop("WATCHDOG_USEC", "")
        #: How often alive() has to be called, which is half of systemd's limit; 0: never.
        self.alive_every_s = int(watchdog_us) / 2e6 if self._manager and watchdog_us.isdigit() else 0.0

    def ready(self, status: str, line: str = "ready") -> None:
        """Everything is being served. `line` is for the descriptor."""
        if self._ready_fd is not None:
            with suppress(BrokenPipeError):  # no process waits any more, which is no reason to stop
                os.write(self._ready_fd, f"{line}\n".encode())
            os.close(self._ready_fd)
            self._ready_fd = None
        self._manager.notify(f"READY=1\nSTATUS={' '.join(status.split())}")

    def alive(self) -> None:
        self._manager.notify("WATCHDOG=1")

    def reloading(self) -> None:
        self._manager.notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        self._manager.notify(f"STOPPING=1\nSTATUS={status}")
