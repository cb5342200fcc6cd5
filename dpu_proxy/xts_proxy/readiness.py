"""Notifies the starter that we are ready, reloading, or stopping: by a descriptor, and by sd_notify(3)."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress


class Readiness:
    """`--ready-fd N` gets one line and is closed; $NOTIFY_SOCKET gets the states of systemd's protocol."""

    def __init__(self, ready_fd: int | None) -> None:
        """OSError EBADF: ready_fd is not open."""
        if ready_fd is not None:
            os.set_inheritable(ready_fd, False)
        self._ready_fd = ready_fd
        self._socket = os.environ.pop("NOTIFY_SOCKET", "")
        watchdog_us = os.environ.pop("WATCHDOG_USEC", "")
        #: How often alive() is expected, half of what systemd waits; 0: never.
        self.alive_every_s = int(watchdog_us) / 2e6 if self._socket and watchdog_us.isdigit() else 0.0

    def ready(self, status: str) -> None:
        """Everything serves."""
        if self._ready_fd is not None:
            with suppress(BrokenPipeError):  # nobody waits any more; that is no reason to stop
                os.write(self._ready_fd, b"ready\n")
            os.close(self._ready_fd)
            self._ready_fd = None
        self._notify(f"READY=1\nSTATUS={status}")

    def alive(self) -> None:
        self._notify("WATCHDOG=1")

    def reloading(self) -> None:
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        self._notify(f"STOPPING=1\nSTATUS={status}")

    def _notify(self, message: str) -> None:
        if not self._socket:
            return
        address = "\0" + self._socket[1:] if self._socket.startswith("@") else self._socket
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(message.encode(), address)
