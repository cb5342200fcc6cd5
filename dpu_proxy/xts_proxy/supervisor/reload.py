"""A reload of the configuration (SIGHUP), in addition to all that the supervisor has to do meanwhile.

Theory of operation. With some thousand certificates a reload takes longer than systemd's watchdog waits for a sign of
life. So its slow part runs in a thread: reading the files, loading the keys, and having the workers' process build what
its workers get (`prepare`, over a connection of its own). Nothing is in force until then. The last part runs in the
loop and is short: `take` applies what was built. A mistake anywhere leaves the old configuration in force.

Files that only have new contents, such as a renewed certificate, come into force the same way, with the configuration
as it is: `renew`, which file_watch.py asks for. The file of the configuration is not read then.

There is one reload at a time. SIGHUP during a reload causes another one after it, for the file may have changed since
it was read. Who has asked (`xts-proxy reload`) is told the outcome of the first that has read the file after that.
"""

from __future__ import annotations

import _thread
import asyncio
import errno
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from xts_messages.settings.config_mistakes import ConfigError

from xts_proxy.config.config import Config, load, restart_needed
from xts_proxy.supervisor import sandbox
from xts_proxy.supervisor.log import LOG
from xts_proxy.tls.keys import Key, KeyProcess
from xts_proxy.tls.renewal import Renewal
from xts_proxy.tls.tls_files import TlsFiles
from xts_proxy.workers.ulp import Material, Protocols
from xts_proxy.workers.worker_process import WorkerProcess

_Result = TypeVar("_Result")
Notes = list[tuple[int, str]]
_Prepared = tuple[Config, Material, Notes]

#: In which a thread begins, also on a busy machine.
_BEGINS_S = 20.0
_NO_MEMORY_S = 0.1


class RefusedError(Exception):
    """The file cannot take effect; the lines say why."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.lines,), self.__dict__


class Target(Protocol):
    """Who is reloaded: the supervisor."""

    config: Config
    files: TlsFiles
    state: str

    def take(self, new: Config, material: Material, notes: Notes) -> None:
        """Puts a prepared configuration in force. OSError: nothing has changed."""
        ...


class Reload:
    """The reloads of one proxy. `taken` and `refused` count them."""

    def __init__(self, target: Target, process: WorkerProcess, protocols: Protocols, keys: KeyProcess) -> None:
        self._target = target
        self._process = process
        self._protocols = protocols
        self._keys = keys
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._one = asyncio.Lock()
        self._asking: list[asyncio.Future[list[str]]] = []  # for the outcome of the next one that begins
        self.counts = {"taken": 0, "refused": 0}

    @property
    def runs(self) -> bool:
        return self._task is not None or self._one.locked()

    def begin(self, path: Path, ended: Callable[[list[str]], None]) -> asyncio.Future[list[str]]:
        """Begins one, in the running loop, or after the one that is running. Returns its outcome: the lines that say
        why the file is not in force, none if it is. `ended` is called with that when all have been carried out."""
        loop = asyncio.get_running_loop()
        asking = loop.create_future()
        self._asking.append(asking)
        if self._task:
            self._again = True
        else:
            self._task = loop.create_task(self._run(path, ended))
        return asking

    def stop(self) -> None:
        """A reload that is running has no effect any more."""
        if self._task:
            self._task.cancel()
            self._task = None
        self._tell(self._asking, ["the proxy stops"])

    @staticmethod
    def _tell(asking: list[asyncio.Future[list[str]]], lines: list[str]) -> None:
        for one in asking:
            if not one.done():
                one.set_result(lines)

    async def _run(self, path: Path, ended: Callable[[list[str]], None]) -> None:
        while True:
            self._again = False
            asking, self._asking = self._asking, []
            lines: list[str] = []
            try:
                async with self._one:
                    await self._apply(lambda: self._prepared(path))
            except asyncio.CancelledError:
                self._tell(asking, ["the proxy stops"])
                raise
            except (RefusedError, OSError, MemoryError) as refused:
                lines = _lines_of(refused)
                for line in lines:
                    LOG.error("reload: %s", line)
                LOG.error("reload: the configuration in force stays")
                self.counts["refused"] += 1
            else:
                LOG.info("reload: %s is in force", path)
                self.counts["taken"] += 1
            self._tell(asking, lines)
            if not self._again:
                break
        self._task = None
        ended(lines)

    async def renew(self, look: Callable[[Config, TlsFiles], Renewal]) -> Renewal:
        """Puts what `look` finds in files in force, in place of what is. It is called in a thread. RefusedError: what
        was in force stays."""
        async with self._one:
            config, before = self._target.config, self._target.files
            renewal = await in_thread(lambda: look(config, before))
            if renewal.changed:
                await self._apply(lambda: self._renewed(config, renewal))
            return renewal

    async def _apply(self, prepared: Callable[[], _Prepared]) -> None:
        new, material, notes = await in_thread(prepared)
        try:
            if self._target.state != "running":
                raise RefusedError([self._target.state])
            self._target.take(new, material, notes)
        except OSError as error:
            await in_thread(lambda: self._forget(material))
            raise RefusedError([str(error.strerror)]) from error

    def _renewed(self, config: Config, renewal: Renewal) -> _Prepared:
        """In the thread. RefusedError."""
        try:
            material = self._protocols.gather(config, renewal.files)
            return config, material, self._process.prepare(config, material)
        except OSError as error:
            self._forget_each(renewal.loaded)
            raise RefusedError([str(error.strerror)]) from error

    def _prepared(self, path: Path) -> _Prepared:
        """In the thread. RefusedError."""
        try:
            with sandbox.reading():
                new = load(path)
        except ConfigError as error:
            raise RefusedError([str(mistake) for mistake in error.mistakes]) from error
        if changes := restart_needed(self._target.config, new):
            raise RefusedError([f"{path}: {change}; this needs a restart" for change in changes])
        try:
            with sandbox.reading():
                material = self._protocols.gather(new)
        except OSError as error:
            raise RefusedError([str(error.strerror)]) from error
        try:
            return new, material, self._process.prepare(new, material)
        except OSError as error:
            self._forget(material)
            raise RefusedError([str(error.strerror)]) from error

    def _forget(self, material: Material) -> None:
        """What it has loaded. Keys that are in force go on being so."""
        in_force = self._target.files.keys.values()
        self._forget_each(key for key in material.tls.keys.values() if isinstance(key, Key) and key not in in_force)

    def _forget_each(self, keys: Iterable[Key]) -> None:
        for key in keys:
            try:
                self._keys.forget(key)
            except OSError as error:  # it is told again, or has ended; the reload goes on
                LOG.warning("reload: %s", error.strerror)


def _lines_of(refused: RefusedError | OSError | MemoryError) -> list[str]:
    if isinstance(refused, RefusedError):
        return refused.lines
    return [refused.strerror or str(refused) if isinstance(refused, OSError) else os.strerror(errno.ENOMEM)]


async def in_thread(run: Callable[[], _Result]) -> _Result:
    """Its result. OSError EAGAIN: there is no thread.

    Unlike with asyncio.to_thread(), the end of the loop does not wait for a thread that hangs. Not a threading.Thread:
    its start() waits for ever for one that memory runs out for as it begins."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def tell(result: _Result | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type] # None is a result, too

    begun = asyncio.Event()

    def body() -> None:
        result, problem = None, None
        _have_called(loop, begun.set)
        try:
            result = run()
        except BaseException as error:  # told to who waits
            problem = error
        _have_called(loop, tell, result, problem)

    try:
        _thread.start_new_thread(body, ())
        await asyncio.wait_for(begun.wait(), _BEGINS_S)
    except (RuntimeError, MemoryError, TimeoutError):
        future.cancel()
        raise OSError(errno.EAGAIN, "no thread can be started (limit of processes, or memory)") from None
    return await future


def _have_called(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    """From a thread, in the loop, which waits for it: so also without memory, as soon as there is some."""
    with suppress(RuntimeError):  # the loop has ended
        while True:
            try:
                loop.call_soon_threadsafe(call, *arguments)
                return
            except MemoryError:
                time.sleep(_NO_MEMORY_S)
