"""The process that serves the proxy's metrics, as the supervisor sees it. xts_messages/metrics/metrics_server.py has
the theory of operation.

It is forked before the supervisor reads any key. It runs as the proxy's user, without capabilities, and opens no files
and no connections. When it ends, connections are not affected, and another one is started a second later.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from xts_messages.metrics import metrics_credentials, metrics_server
from xts_messages.services import landlock

from xts_proxy.config.config import Proxy
from xts_proxy.metrics import metrics
from xts_proxy.supervisor import children, sandbox
from xts_proxy.supervisor.log import LOG

_AGAIN_S = 1.0
_ANSWER_S = 5.0


def credentials(config: Proxy) -> metrics_credentials.Credentials:
    """Reads the files that the configuration names. OSError: one cannot be used."""
    try:
        with sandbox.reading():
            return metrics_credentials.read(config.metrics_certificate, config.metrics_key, config.metrics_token)
    except metrics_credentials.CredentialError as error:
        raise OSError(22, f"proxy.metrics_{error.which}: {error}") from error


class MetricsProcess:
    """The process, and the code that answers its questions. `figures` returns what is sent to it, plain data."""

    def __init__(self, config: Proxy, listener: socket.socket, figures: Callable[[], dict[str, Any]]) -> None:
        """Forks it. OSError: a file of the configuration cannot be used."""
        self._config = config
        self._listener = listener
        self._figures = figures
        self._credentials = credentials(config)
        self._sock: socket.socket | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._cannot_start = False
        self.child = self._fork()

    def _fork(self) -> children.Child:
        ours, its = socket.socketpair()
        with its:
            kept = [its.fileno(), self._listener.fileno()]
            try:
                child = children.fork("xts-metrics", kept, lambda: self._run(its))
            except OSError:
                ours.close()
                raise
        self._sock = ours
        return child

    def _run(self, connection: socket.socket) -> None:
        """Runs in the process."""
        sandbox.confine(self._config.user, (), self._config.core_dumps)
        children.bound_to_parent()
        metrics_server.limit()
        landlock.restrict(reads=[path for path in sys.path if path])  # modules that are imported late
        metrics_server.run(self._listener, connection, self._credentials, metrics.families)

    def serve(self) -> None:
        """From now on answers its questions, in the running loop."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self.child.fileno(), self._on_end)
        self._task = loop.create_task(self._answer())

    async def _answer(self) -> None:
        assert self._sock
        reader, self._writer = await asyncio.open_connection(sock=self._sock)
        with suppress(OSError, TimeoutError):
            while question := await reader.read(1):
                if question == b"?":
                    self._writer.write(metrics_server.figures_message(self._encoded()))
                    await asyncio.wait_for(self._writer.drain(), _ANSWER_S)
        self._writer.close()  # which ends it

    def _encoded(self) -> bytes:
        try:
            return msgspec.json.encode(self._figures())
        except OSError:  # the workers do not answer, although they did a moment ago
            return metrics_server.NO_FIGURES

    def _on_end(self) -> None:
        LOG.error("xts-metrics: %s; starting it again", self.child.ended())
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.child.fileno())
        self._forget()
        loop.call_later(_AGAIN_S, self._start_again)

    def _start_again(self) -> None:
        try:
            self.child = self._fork()
        except OSError as error:  # no descriptors, processes or memory left
            if not self._cannot_start:
                LOG.error("xts-metrics cannot be started: %s; trying again", error.strerror)
            self._cannot_start = True
            asyncio.get_running_loop().call_later(_AGAIN_S, self._start_again)
            return
        self._cannot_start = False
        self.serve()

    def _forget(self) -> None:
        if self._task:
            self._task.cancel()
        if self._writer:
            self._writer.close()
        elif self._sock:
            self._sock.close()
        self._writer = self._sock = None
        self.child.close()

    def configure(self, config: Proxy) -> None:
        """Reads certificate, key and token again. OSError: they cannot be used, and the old ones stay."""
        found = credentials(config)
        if found == self._credentials:
            return
        self._credentials = found
        if self._writer:
            self._writer.write(metrics_server.credentials_message(found))

    def close(self) -> None:
        """Called when the loop has ended, or before it began. Harmless when repeated."""
        self.child.close()
        if self._sock:
            self._sock.close()
