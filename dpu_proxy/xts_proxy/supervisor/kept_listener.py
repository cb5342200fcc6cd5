"""A Unix socket that the supervisor's loop serves, made again when somebody has removed its file."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xts_messages.metrics.metrics_address import listen_unix
from xts_messages.services import kept_file
from xts_messages.services.kept_file import KeptFile

from xts_proxy.supervisor.log import LOG

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


class KeptListener:
    """Listens at `path` at once. OSError: it cannot."""

    def __init__(self, path: str, mode: int, handler: Handler, limit: int) -> None:
        self.path = path
        self.listener = listen_unix(path, mode)
        self._mode, self._handler, self._limit = mode, handler, limit
        self._file = KeptFile(Path(path), LOG.warning)
        self._file.own()
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Serves from now on."""
        await self._serve()
        self._look()

    def stop(self) -> None:
        """Accepts nobody any more; harmless when repeated."""
        if self._timer:
            self._timer.cancel()
        self._timer = None
        if self._server:
            self._server.close()

    def remove(self) -> None:
        """Its file, if it is still this one. OSError: we may not."""
        self._file.remove()

    def close(self) -> None:
        self.listener.close()

    async def _serve(self) -> None:
        # the name it was bound with is not where its file is (unix_listener.py), which asyncio would look for
        options: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        serve = asyncio.start_unix_server
        self._server = await serve(self._handler, sock=self.listener, limit=self._limit, **options)

    def _look(self) -> None:
        self._file.look(self._listen_again)
        self._timer = asyncio.get_running_loop().call_later(kept_file.EVERY_S, self._look)

    def _listen_again(self) -> None:
        listener = listen_unix(self.path, self._mode)
        if self._server:
            self._server.close()  # with the socket whose file is gone
        self.listener = listener
        task = asyncio.get_running_loop().create_task(self._serve())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
