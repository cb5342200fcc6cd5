"""Log lines on stderr: with time and level for people, with the priority prefix that the journal understands for it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from typing import Protocol

LOG = logging.getLogger("xts-proxy")

#: A host that breaks the protocol again and again must not fill the disk. Beyond this, a worker keeps some lines and
#: counts the rest.
LINES_PER_S = 200

#: Of those, and of the supervisor's own, about one tenant (TENANT_LOG_LINES_PER_S in native/tenant.h).
TENANT_LINES_PER_S = 20

_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


class _JournalFormatter(logging.Formatter):
    """sd-daemon(3): each line begins with its priority."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in super().format(record).splitlines())


def start(level: str) -> None:
    """Sends everything from `level` on to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    if "JOURNAL_STREAM" in os.environ:
        handler.setFormatter(_JournalFormatter("%(message)s"))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s xts-proxy %(levelname)s %(message)s"))
    LOG.handlers[:] = [handler]
    LOG.propagate = False
    set_level(level)


def set_level(level: str) -> None:
    """Takes effect at once."""
    LOG.setLevel(level.upper())


class Budget:
    """So many lines a second about one tenant; the rest is counted."""

    def __init__(self, lines_per_s: int = TENANT_LINES_PER_S) -> None:
        self._lines_per_s = lines_per_s
        self._second = 0
        self._lines = self._suppressed = 0

    def log(self, level: int, tenant: str, message: str) -> None:
        """Logs the line, and before it how many there would have been since the last, if it may."""
        if (second := int(time.monotonic())) != self._second:
            self._second, self._lines = second, 0
        if self._lines >= self._lines_per_s:
            self._suppressed += 1
            return
        self._lines += 1
        if self._suppressed:
            LOG.warning("tenant %s: %d lines suppressed", tenant, self._suppressed)
            self._suppressed = 0
        LOG.log(level, "%s", message)


class Source(Protocol):
    """A worker, here or in a process of its own."""

    index: int

    def log_fd(self) -> int: ...
    def log_lines(self, lines_max: int) -> list[str]: ...


class WorkerLog:
    """Passes a worker's lines on as they come, but not in floods."""

    def __init__(self, loop: asyncio.AbstractEventLoop, worker: Source) -> None:
        self._loop = loop
        self._worker = worker
        self._second = 0.0
        self._budget = LINES_PER_S
        self._pause: asyncio.TimerHandle | None = None
        loop.add_reader(worker.log_fd(), self._pass_on)

    def close(self) -> None:
        """Passes on what waits. The worker must still be there."""
        if self._pause:
            self._pause.cancel()
        self._loop.remove_reader(self._worker.log_fd())
        self._budget = LINES_PER_S
        self._write()

    def _pass_on(self) -> None:
        now = time.monotonic()
        if now - self._second >= 1:
            self._second, self._budget = now, LINES_PER_S
        self._write()
        if self._budget <= 0:
            self._loop.remove_reader(self._worker.log_fd())
            self._pause = self._loop.call_later(1.0, self._resume)

    def _resume(self) -> None:
        self._loop.add_reader(self._worker.log_fd(), self._pass_on)

    def _write(self) -> None:
        try:
            lines = self._worker.log_lines(self._budget)
        except TimeoutError:  # a second later, perhaps
            self._budget = 0
            return
        for line in lines:
            LOG.info("worker %d: %s", self._worker.index, line)
            self._budget -= 1
