"""The process that serves the agent's metrics, as the agent sees it. xts_messages/metrics/metrics_server.py has the
theory of operation. When it ends, queues are handed out as before, and another one is started a second later.

It must have neither the agent's key in its memory nor any privilege. So a keeper, which never had the key (starter.py),
drops all privileges and forks the server, and forks it again each time it has ended. Each server has its own connection
to the agent, which the keeper sends to the agent, because the previous server may have left half a message on the old
one. The keeper reads certificate, key and token itself, each time that it is started. When it ends, so does its server;
the agent has the listening socket, on which scrapes wait for the next one.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import pwd
import select
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, Self

from xts_messages.metrics import metrics_credentials, metrics_server
from xts_messages.metrics.metrics_address import MetricsAddress
from xts_messages.services import landlock, privilege

from xts_agent import child, metric_catalogue
from xts_agent.config import AgentConfig
from xts_agent.starter import Role

log = logging.getLogger("xts-agent")

_AGAIN_S = 1.0


class MetricsProcess:
    """A context manager. OSError: it cannot listen, or a file of the configuration cannot be used."""

    def __init__(self, config: AgentConfig, keeper: socket.socket, figures: Callable[[], dict[str, Any]]) -> None:
        """keeper: the connection to it (role())."""
        self._figures = figures
        self._address = MetricsAddress.parse(config.metrics)
        if self._address.is_remote and not (config.metrics_certificate and config.metrics_token):
            log.warning("metrics are served to other machines at %s without TLS or token", self._address)
        self._server: socket.socket | None = None
        self._keeper: socket.socket | None = None
        self._poll = select.epoll()
        try:
            _credentials(config)  # the keeper's own attempt comes too late to refuse the start
            self._listener = self._address.listen()
        except OSError:
            self._poll.close()
            raise
        self.renew(keeper)

    def renew(self, keeper: socket.socket) -> None:
        """Another keeper was started, at this connection."""
        self._lose_keeper()
        self._forget_server()
        try:
            child.send(keeper, b"begin", (self._listener.fileno(),))
        except OSError:  # it has ended; there will be another
            keeper.close()
            return
        keeper.setblocking(False)
        self._keeper = keeper
        self._poll.register(keeper, select.EPOLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def unix_path(self) -> str | None:
        """The Unix socket, which is removed at the end."""
        return self._address.unix_path

    def fileno(self) -> int:
        """Readable when `answer()` has something to do."""
        return self._poll.fileno()

    def answer(self) -> None:
        """Answers what waits."""
        ready = {fd for fd, _ in self._poll.poll(0)}
        if self._server and self._server.fileno() in ready:
            self._answer(self._server)
        if self._keeper and self._keeper.fileno() in ready:
            self._take_server(self._keeper)

    def _answer(self, server: socket.socket) -> None:
        try:
            questions = server.recv(64)
            for _ in range(questions.count(b"?")):
                message = metrics_server.figures_message(json.dumps(self._figures()).encode())
                # The server reads each answer before it asks again, so there is room.
                if server.send(message) != len(message):
                    raise BlockingIOError
        except OSError:
            questions = b""
        if not questions:
            log.error("the process that serves metrics has ended, or does not take answers; it is started again")
            self._forget_server()

    def _take_server(self, keeper: socket.socket) -> None:
        """Receives the connection of a server that the keeper has started."""
        try:
            data, descriptors, _, _ = socket.recv_fds(keeper, 16, 1)
        except OSError:
            data, descriptors = b"", []
        if not data or not descriptors:
            self._lose_keeper()
            return
        self._forget_server()
        self._server = socket.socket(fileno=descriptors[0])
        self._server.setblocking(False)
        self._poll.register(self._server, select.EPOLLIN)

    def _lose_keeper(self) -> None:
        if self._keeper:
            self._poll.unregister(self._keeper)
            self._keeper.close()  # this ends it, if it runs
            self._keeper = None

    def _forget_server(self) -> None:
        if self._server:
            self._poll.unregister(self._server)
            self._server.close()  # this ends it, if it runs
            self._server = None

    def close(self) -> None:
        """Harmless when repeated."""
        if self._listener.fileno() < 0:
            return
        self._forget_server()
        self._lose_keeper()
        self._poll.close()
        self._listener.close()
        if self._address.unix_path is not None:
            with suppress(OSError):
                Path(self._address.unix_path).unlink()


def role(config: AgentConfig, user: pwd.struct_passwd | None) -> Role:
    """The keeper. It becomes this user (None: its user does not change)."""
    return Role("xts-metr-keeper", functools.partial(_keep, config, user))


def _credentials(config: AgentConfig) -> metrics_credentials.Credentials:
    try:
        return metrics_credentials.read(config.metrics_certificate, config.metrics_key, config.metrics_token)
    except metrics_credentials.CredentialError as error:
        raise OSError(22, f"metrics_{error.which}: {error}") from error


def _keep(config: AgentConfig, user: pwd.struct_passwd | None, agent: socket.socket) -> int:
    """Runs in the keeper: starts servers until the agent has ended."""
    credentials = _credentials(config)
    privilege.confine(user=user)
    _, descriptors, _, _ = socket.recv_fds(agent, 16, 1)
    if len(descriptors) != 1:
        return 1
    listener = socket.socket(fileno=descriptors[0])
    metrics_server.limit()
    landlock.restrict(reads=[path for path in sys.path if path])
    events = select.poll()
    events.register(agent, select.POLLIN)  # the agent never sends anything, so this means that it has ended
    while True:
        ours, its = socket.socketpair()
        with ours, its:
            process = os.fork()
            if process == 0:
                agent.close()
                ours.close()
                _serve(listener, its, credentials)
            socket.send_fds(agent, [b"server"], [ours.fileno()])
        if not _outlived(process, events) or events.poll(_AGAIN_S * 1000):
            return 0


def _outlived(process: int, events: select.poll) -> bool:
    """Waits until a server has ended. False: the agent has ended, which ends the server, too."""
    ended = os.pidfd_open(process)
    try:
        events.register(ended, select.POLLIN)
        outlived = any(fd == ended for fd, _ in events.poll())
        events.unregister(ended)
    finally:
        os.close(ended)
    if outlived:
        os.waitpid(process, 0)
    return outlived


def _serve(listener: socket.socket, agent: socket.socket, credentials: metrics_credentials.Credentials) -> NoReturn:
    status = 1
    try:
        child.set_name("xts-metrics")
        metrics_server.run(listener, agent, credentials, metric_catalogue.metrics)
        status = 0
    finally:
        os._exit(status)
