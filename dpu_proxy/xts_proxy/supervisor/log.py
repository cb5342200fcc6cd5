"""The log of the proxy: its own lines, and those of its workers, limited in number. xts_messages/services/log_format.py
has its formats."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Protocol

from xts_messages.services.log_format import Format, about, handler

LOG = logging.getLogger("xts-proxy")

#: A host that breaks the protocol again and again must not fill the disk. Beyond this rate, a worker keeps some lines
#: and counts the rest.
LINES_PER_S = 200

#: How many lines per second, of workers and the supervisor, may be about one tenant (TENANT_LOG_LINES_PER_S in
#: native/tenants/tenant.h).
TENANT_LINES_PER_S = 20

#: The beginning of a worker's line about a tenant (channel_log() in native/channel/channel.c).
_ABOUT = re.compile(r"tenant ([A-Za-z0-9._-]{1,63}): (?:queue (\d+): )?")


def start(level: str, wanted: Format = "auto") -> None:
    """Sends everything from `level` on to stderr, or to the journal."""
    text = "%(asctime)s xts-proxy %(levelname)s %(message)s"
    LOG.handlers[:] = [handler(wanted, "xts-proxy", text)]
    LOG.propagate = False
    set_level(level)


def set_level(level: str) -> None:
    """Takes effect at once."""
    LOG.setLevel(level.upper())


def log_notes(notes: list[tuple[int, str]]) -> None:
    """Lines of another process, with their levels."""
    for level, text in notes:
        LOG.log(level, "%s", text)


class Budget:
    """A number of lines per second about one tenant; further lines are counted."""

    def __init__(self, lines_per_s: int = TENANT_LINES_PER_S) -> None:
        self._lines_per_s = lines_per_s
        self._second = 0
        self._lines = self._suppressed = 0

    def log(self, level: int, tenant: str, message: str) -> None:
        """Logs the line if the budget allows it, and before it how many lines were suppressed since the last."""
        if (second := int(time.monotonic())) != self._second:
            self._second, self._lines = second, 0
        if self._lines >= self._lines_per_s:
            self._suppressed += 1
            return
        self._lines += 1
        if self._suppressed:
            count = self._suppressed
            LOG.warning("tenant %s: %d lines suppressed", tenant, count, extra=about(tenant=tenant, count=count))
            self._suppressed = 0
        LOG.log(level, "%s", message, extra=about(tenant=tenant))


class Source(Protocol):
    """A worker, here or in a process of its own."""

    index: int

    def log_fd(self) -> int: ...
    def log_lines(self, lines_max: int) -> list[str]: ...


class WorkerLog:
    """Passes a worker's lines on as they come, but limits their rate."""

    def __init__(self, loop: asyncio.AbstractEventLoop, worker: Source) -> None:
        self._loop = loop
        self._worker = worker
        self._second = 0.0
        self._budget = LINES_PER_S
        self._pause: asyncio.TimerHandle | None = None
        loop.add_reader(worker.log_fd(), self._pass_on)

    def pause(self) -> None:
        """The worker has ended, and with it the lines that it had not told."""
        if self._pause:
            self._pause.cancel()
        self._pause = None
        self._loop.remove_reader(self._worker.log_fd())

    def go_on(self) -> None:
        """It is in another process now."""
        self._budget = LINES_PER_S
        self._loop.add_reader(self._worker.log_fd(), self._pass_on)

    def close(self) -> None:
        """Passes on the lines that wait. The worker must still exist."""
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
        except TimeoutError:  # try again in a second
            self._budget = 0
            return
        except BrokenPipeError:  # it has died: the supervisor learns that from the process itself, and says so
            return
        for line in lines:
            found = _ABOUT.match(line)
            tenant, queue = found.groups() if found else (None, None)
            extra = about(worker=self._worker.index, tenant=tenant, queue=None if queue is None else int(queue))
            LOG.info("worker %d: %s", self._worker.index, line, extra=extra)
            self._budget -= 1
