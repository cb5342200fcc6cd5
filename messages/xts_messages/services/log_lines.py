"""Lines of a log on standard error, which never wait for who reads it.

Theory of operation. A pipe or a terminal whose reader has stopped takes some kilobytes, and then holds up who writes.
A service must not stand still for that: its descriptor is asked first, and takes at most as much at once as a pipe that
is ready has room for. What does not go, for that reason or because there is no room on the disk, is dropped and
counted, and the next line that goes is preceded by one that says how many were lost. The descriptor is not made
non-blocking: it is shared with other processes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys

#: A pipe that is ready takes this much at once.
_PIECE_BYTES = select.PIPE_BUF


def have_standard_descriptors() -> None:
    """For the beginning of a service: one that was closed leads to nowhere, or the next file or socket that is opened
    would get its number, and the log with it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


class Lines:
    """Standard error. `lost`: lines that did not go, since the last one that did."""

    def __init__(self) -> None:
        self.lost = 0
        self._is_torn = False  # the last line that went has no end

    def put(self, text: str) -> bool:
        """False: it did not go, or only a part of it."""
        data = text.encode(errors="backslashreplace") + b"\n"
        if self._is_torn:
            data = b"\n" + data
        went = self._write(memoryview(data))
        self._is_torn = 0 < went < len(data) or (went == 0 and self._is_torn)
        return went == len(data)

    def _write(self, data: memoryview) -> int:
        """How many bytes went."""
        went = 0
        with contextlib.suppress(OSError, ValueError):  # it is closed, or there is no room on the disk
            if (fd := _descriptor()) is None:
                return sys.stderr.write(bytes(data).decode())
            ready = select.poll()
            ready.register(fd, select.POLLOUT)
            while went < len(data) and any(events & select.POLLOUT for _, events in ready.poll(0)):
                went += os.write(fd, data[went : went + _PIECE_BYTES])
        return went


def _descriptor() -> int | None:
    """Of standard error; None: something else is in its place, as in a test."""
    try:
        return sys.stderr.fileno() if sys.stderr else 2
    except (OSError, ValueError):
        return None


class LineHandler(logging.Handler):
    """Writes records as lines."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = Lines()

    def emit(self, record: logging.LogRecord) -> None:
        lines = self._lines
        try:
            if lines.lost and lines.put(self.format(self.loss(record.name))):
                lines.lost = 0
            lines.lost += bool(lines.lost or not self.put(record))
        except Exception:  # a record that cannot be formatted
            self.handleError(record)

    def put(self, record: logging.LogRecord) -> bool:
        return self._lines.put(self.format(record))

    def loss(self, name: str) -> logging.LogRecord:
        """The record that says how many were lost."""
        said = f"{self._lines.lost} lines of the log are lost: nobody read them, or there was no room for them"
        return logging.LogRecord(name, logging.WARNING, __file__, 0, said, None, None)
