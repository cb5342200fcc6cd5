"""Notices that files which [tls] names have new contents, and has them taken over without a signal.

Theory of operation. Every tls.watch_files_s a thread asks for the signatures of all files (file_signatures.py). What
has another signature than when it was read is looked at again after a moment. Only what has the same one then is read:
a file that is being written is not, and who writes certificate and key one after the other has mostly written both.
What was read is checked, and put in force where it fits (renewal.py, reload.py). What does not fit is said once, and is
tried again when one of these files changes, and each minute: nothing has to be mended but the files.

A reload reads all files, whatever their signatures say. From then on those count that it has seen.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from xts_messages.services.log_format import about

from xts_proxy.config.config import Config
from xts_proxy.config.config_tls import Tls
from xts_proxy.supervisor import sandbox
from xts_proxy.supervisor.log import LOG
from xts_proxy.supervisor.reload import RefusedError, Reload, in_thread
from xts_proxy.tls import file_signatures
from xts_proxy.tls.file_signatures import Signatures, files_of
from xts_proxy.tls.renewal import Renewal, Renewing, items_of
from xts_proxy.tls.tls_files import TlsFiles

#: For as long a file has to be as it is before it is read.
SETTLES_S = 1.0
#: What did not fit is tried again after this, though nothing has changed.
AGAIN_S = 60.0


class Target(Protocol):
    """Whose files they are: the supervisor."""

    config: Config
    files: TlsFiles
    state: str


class FileWatch:
    """Of one proxy. `counts`: how often new contents were put in force, and how often some did not fit; `refused`: what
    has files that do not fit now, and why."""

    def __init__(self, target: Target, reloading: Reload, renewing: Renewing) -> None:
        self._target, self._reloading, self._renewing = target, reloading, renewing
        self._handle: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._files: TlsFiles | None = None  # for which what follows is true
        self._known: Signatures = {}  # of what was read
        self._last: Signatures = {}
        self._failed = ""
        self._again_at = 0.0
        self.counts = {"taken": 0, "refused": 0}
        self.refused: dict[str, str] = {}

    def start(self) -> None:
        """In the running loop, and again when the configuration has changed."""
        self._wait(self._target.config.tls.watch_files_s)

    def stop(self) -> None:
        """Harmless when repeated, or before start()."""
        self._wait(0)
        if self._task:
            self._task.cancel()
            self._task = None

    def _wait(self, for_s: float) -> None:
        if self._handle:
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_later(for_s, self._begin) if for_s else None

    def _begin(self) -> None:
        if not self._task:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        settles = False
        try:
            settles = await self._look()
            self._failed = ""
        except (RefusedError, OSError, MemoryError) as error:
            if str(error) != self._failed:
                LOG.warning("tls: files have changed, and their contents cannot be put in force now: %s", error)
            self._failed = str(error)
        self._task = None
        period_s = self._target.config.tls.watch_files_s
        self._wait(min(period_s, SETTLES_S) if settles else period_s)

    async def _look(self) -> bool:
        """Looks once. True: something has changed, and is not read yet. RefusedError, OSError: why it cannot be."""
        tls = self._target.config.tls
        now = await in_thread(lambda: _signatures(tls))
        if self._target.state != "running" or self._target.config.tls is not tls:
            return False
        if self._target.files is not self._files:
            self._begin_with(self._target.files)
        self._try_refused_again(tls)
        changed = {name for name in now if now[name] != self._known.get(name)}
        unsettled = {name for name in changed if now[name] != self._last.get(name)}
        self._last = now
        ready = [item for item in items_of(tls) if unsettled.isdisjoint(files_of(item.of))]
        names = changed.intersection(name for item in ready for name in files_of(item.of))
        if names:
            await self._renew(names, now)
        return bool(unsettled)

    def _begin_with(self, files: TlsFiles) -> None:
        """These are in force now, by a start or a reload."""
        self._files = files
        self._known = dict(files.seen)
        self.refused.clear()

    def _try_refused_again(self, tls: Tls) -> None:
        """Also when none of its files changes: a folder may have become readable, or the key process answers again."""
        if not self.refused or time.monotonic() < self._again_at:
            return
        self._again_at = time.monotonic() + AGAIN_S
        for name in (name for item in items_of(tls) if item.what in self.refused for name in files_of(item.of)):
            self._known.pop(name, None)

    async def _renew(self, names: set[str], now: Signatures) -> None:
        """Reads these files. OSError, RefusedError: another look is needed."""

        def look(config: Config, before: TlsFiles) -> Renewal:
            if before is not self._files:  # a reload has read them meanwhile
                return Renewal(before)
            with sandbox.reading():
                return self._renewing.of(config.tls, before, names)

        renewal = await self._reloading.renew(look)
        if self._target.files not in (self._files, renewal.files):
            return
        self._files = self._target.files
        self._known.update({name: now[name] for name in names})
        if renewal.changed:
            self.counts["taken"] += 1
            LOG.info("tls: new contents of files are in force: %s", ", ".join(renewal.changed))
        for what in renewal.looked_at:
            self._refuse(what, renewal.problems.get(what, ""))

    def _refuse(self, what: str, problem: str) -> None:
        """What was in force of it stays; or, without a problem, its files fit."""
        if not problem:
            self.refused.pop(what, None)
        elif self.refused.get(what) != problem:
            self.refused[what] = problem
            self._again_at = time.monotonic() + AGAIN_S
            self.counts["refused"] += 1
            LOG.warning(
                "tls: files of %s have changed, and do not fit: what was in force stays: %s",
                *(what, problem),
                extra=about(resource=what),
            )


def _signatures(tls: Tls) -> Signatures:
    with sandbox.reading():
        return file_signatures.look(tls)
