"""`Wakeup`: makes a signal end the wait of our selector whenever it comes.

Python runs signal handlers between its own instructions: a signal that comes while the library spins, or prepares to
sleep, would be handled only after the next event. So the interpreter is asked to write to a pipe that the loop watches
(signal.set_wakeup_fd), as asyncio does itself while it has signal handlers of its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from contextvars import Context


class Wakeup:
    """In force from begin() to end(): while the loop runs, in the main thread, unless other code has set a wakeup
    descriptor."""

    __slots__ = ("_read_end", "_write_end")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        Context().run(loop.add_reader, self._read_end, self._drain)
        if loop.is_running():
            self.begin()

    def begin(self) -> None:
        try:
            before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        except ValueError:  # in another thread, which does not handle signals
            return
        if before not in (-1, self._write_end):
            signal.set_wakeup_fd(before)

    def end(self) -> None:
        with suppress(ValueError):
            now = signal.set_wakeup_fd(-1)
            if now not in (-1, self._write_end):
                signal.set_wakeup_fd(now)

    def close(self) -> None:
        """To be called when the loop no longer watches it."""
        self.end()
        os.close(self._read_end)
        os.close(self._write_end)

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._read_end, 4096)
