"""Signals as bytes of a descriptor, for the agent's loop."""

from __future__ import annotations

import signal
import socket


def stop_on_signals() -> int:
    """A descriptor that becomes readable on SIGTERM, SIGINT or SIGHUP; it has their numbers, one byte each."""
    reader, writer = socket.socketpair()
    for side in (reader, writer):
        side.setblocking(False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer.detach())
    return reader.detach()
