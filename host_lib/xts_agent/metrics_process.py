"""The process that serves the agent's metrics, from the agent. xts_messages/metrics_server.py has the theory of
operation. It is forked before the agent has its key, and has no right. When it ends, queues are handed out as before.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import pwd
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from xts_messages import landlock, metrics_credentials, metrics_server, privilege
from xts_messages.metrics_address import MetricsAddress

from xts_agent import child, metric_catalogue
from xts_agent.config import AgentConfig

log = logging.getLogger("xts-agent")


class MetricsProcess:
    """A context manager. OSError: it cannot listen, or a file of the configuration cannot be used."""

    def __init__(
        self, config: AgentConfig, user: pwd.struct_passwd | None, figures: Callable[[], dict[str, Any]]
    ) -> None:
        self._figures = figures
        self._address = MetricsAddress.parse(config.metrics)
        try:
            credentials = metrics_credentials.read(config.metrics_certificate, config.metrics_key, config.metrics_token)
        except metrics_credentials.CredentialError as error:
            raise OSError(22, f"metrics_{error.which}: {error}") from error
        if self._address.is_remote and not (config.metrics_certificate and config.metrics_token):
            log.warning("metrics are served to other machines at %s without TLS or token", self._address)
        self._sock, its = socket.socketpair()
        with self._address.listen() as listener, its:
            connection, self._process = child.fork(functools.partial(_main, user, credentials))
            with connection:
                socket.send_fds(connection, [b"begin"], [listener.fileno(), its.fileno()])
        self._sock.setblocking(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def unix_path(self) -> str | None:
        """The socket that is removed at the end."""
        return self._address.unix_path

    def fileno(self) -> int:
        """Readable when `answer()` has something to do."""
        return self._sock.fileno()

    def answer(self) -> bool:
        """Answers its questions; False: it has ended."""
        try:
            questions = self._sock.recv(64)
            for _ in range(questions.count(b"?")):
                message = metrics_server.figures_message(json.dumps(self._figures()).encode())
                # It takes in each answer before it asks again, so that there is room.
                if self._sock.send(message) != len(message):
                    raise BlockingIOError
        except OSError:
            questions = b""
        if not questions:
            log.error("the process that serves metrics has ended, or does not take answers; there are none any more")
        return bool(questions)

    def close(self) -> None:
        if self._sock.fileno() < 0:
            return
        self._sock.close()  # which ends it
        os.waitpid(self._process, 0)
        if self._address.unix_path is not None:
            with suppress(OSError):
                Path(self._address.unix_path).unlink()


def _main(user: pwd.struct_passwd | None, credentials: metrics_credentials.Credentials, first: socket.socket) -> int:
    _, descriptors, _, _ = socket.recv_fds(first, 16, 2)
    first.close()
    if len(descriptors) != 2:
        return 1
    listener, connection = (socket.socket(fileno=fd) for fd in descriptors)
    privilege.confine(user=user)
    metrics_server.limit()
    landlock.restrict(reads=[path for path in sys.path if path])
    metrics_server.run(listener, connection, credentials, metric_catalogue.metrics)
    return 0
