"""A Unix socket that the supervisor's loop serves, made again when somebody has removed its file.

It accepts by itself. asyncio's own servers do not bear a lack of descriptors: each failed accept() is a traceback in
the log, and makes a hundred timers that try again, of which each makes a hundred. Who asks at such a time is served
with a descriptor that is kept for it, one after the other: it may be the operator, who wants to know what is wrong.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from xts_messages.metrics.metrics_address import listen_unix
from xts_messages.services import kept_file
from xts_messages.services.kept_file import KeptFile

from xts_proxy.supervisor.log import LOG

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
#: What accept() says of a machine or a process that has no room.
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_AGAIN_S = 0.1
#: Within which a connection has taken what is left of its answer.
_CLOSES_S = 1.0
_TELL_S = 10.0


class KeptListener:
    """Listens at `path` at once. OSError: it cannot."""

    def __init__(self, path: str, mode: int, handler: Handler, limit: int) -> None:
        self.path = path
        self.listener = listen_unix(path, mode)
        self._mode, self._handler, self._limit = mode, handler, limit
        self._file = KeptFile(Path(path), LOG.warning)
        self._file.own()
        self._reserve = os.eventfd(0)  # -1: in use
        self._told_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._serves = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Serves from now on."""
        self._serves = True
        self._listen()
        self._look()

    def stop(self) -> None:
        """Accepts nobody any more; harmless when repeated."""
        if self._timer:
            self._timer.cancel()
        self._timer = None
        self._pause()
        self._serves = False

    def remove(self) -> None:
        """Its file, if it is still this one. OSError: we may not."""
        self._file.remove()

    def close(self) -> None:
        self.listener.close()
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1

    def _listen(self) -> None:
        if self._serves:
            self.listener.setblocking(False)
            asyncio.get_running_loop().add_reader(self.listener.fileno(), self._accept)

    def _pause(self) -> None:
        if self._serves and self.listener.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self.listener.fileno())

    def _accept(self) -> None:
        """One connection: if there are more, the loop calls again."""
        try:
            connection, _ = self.listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._accept_without_room(error)
            return
        self._serve(connection)

    def _accept_without_room(self, error: OSError) -> None:
        """With the descriptor that is kept; until it is back, nobody else is accepted."""
        self._pause()
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= _TELL_S:
            self._told_at = now
            LOG.warning("%s: %s; requests are answered one after the other", self.path, error.strerror)
        if error.errno in _NO_ROOM and self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1
            try:
                connection, _ = self.listener.accept()
            except OSError:  # another thread has taken it, or the whole machine has none
                pass
            else:
                self._serve(connection).add_done_callback(lambda _: self._room_again())
                return
        asyncio.get_running_loop().call_later(_AGAIN_S, self._room_again)

    def _room_again(self) -> None:
        """Keeps a descriptor again, and listens; without one, it tries later."""
        if self.listener.fileno() < 0:
            return
        if self._reserve < 0:
            try:
                self._reserve = os.eventfd(0)
            except OSError:
                asyncio.get_running_loop().call_later(_AGAIN_S, self._room_again)
                return
        self._listen()

    def _serve(self, connection: socket.socket) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._handle(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _handle(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=self._limit)
        await self._handler(reader, writer)
        try:
            await asyncio.wait_for(writer.wait_closed(), _CLOSES_S)  # its descriptor is free then
        except TimeoutError:
            writer.transport.abort()
        except OSError:
            return

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(kept_file.EVERY_S, self._look)
        self._file.look(self._listen_again)

    def _listen_again(self) -> None:
        listener = listen_unix(self.path, self._mode)
        self._pause()
        self.listener.close()  # with the socket whose file is gone
        self.listener = listener
        self._listen()
