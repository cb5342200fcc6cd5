"""The workers' process, as the supervisor sees it. What it carries out is in worker_methods.py."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from xts_proxy.config.config import Config
from xts_proxy.supervisor import children
from xts_proxy.supervisor.children import Child
from xts_proxy.workers import calling, understudy
from xts_proxy.workers.adopted_queue import close_all
from xts_proxy.workers.device_clock import DeviceClock
from xts_proxy.workers.name_servers import Device
from xts_proxy.workers.remote_worker import RemoteWorker
from xts_proxy.workers.ulp import Material
from xts_proxy.workers.worker_methods import ANSWER_BYTES_MAX, run


class WorkerProcess:
    """The process, as the supervisor sees it. `close()` ends it."""

    def __init__(self, key_connections: list[int], clock: DeviceClock) -> None:
        """Forks it, with connections to the key process."""
        self._control, its_control = socket.socketpair()
        its, its_slow = self._make_sockets()
        with its, its_slow, its_control:
            kept = [its.fileno(), its_slow.fileno(), its_control.fileno(), *key_connections]
            self.child = children.fork(
                "xts-workers",
                kept,
                lambda: run(its, its_slow, its_control, key_connections, clock),
                starts_quietly=True,
            )
        self._make_callers()
        self.workers: list[RemoteWorker] = []
        self.understudy: Child | None = None

    def _make_sockets(self) -> tuple[socket.socket, socket.socket]:
        """The ends of the process that is about to be made."""
        self._sock, its = socket.socketpair()
        self._slow, its_slow = socket.socketpair()
        return its, its_slow

    def _make_callers(self) -> None:
        self._caller = calling.Caller(self._sock, ANSWER_BYTES_MAX, self.child.fileno())
        self._slow_caller = calling.Caller(self._slow, ANSWER_BYTES_MAX, self.child.fileno())

    def close(self) -> None:
        """Harmless when repeated."""
        for worker in self.workers:
            worker.close()
        self._sock.close()
        self.child.close()
        if self.understudy:
            self.understudy.close()
        self._slow.close()
        self._control.close()

    def succeed(self, config: Config, material: Material) -> tuple[list[str], list[tuple[int, str]]]:
        """The process has ended, and another one goes on, made by the understudy; the RemoteWorkers are those of that
        one from now on. As start(). OSError: there is none."""
        if not self.understudy or self.understudy.ended():
            raise OSError(errno.ESRCH, "there is no understudy")
        self._sock.close()
        self._slow.close()
        its, its_slow = self._make_sockets()
        with its, its_slow:
            pid = understudy.ask(self._control, (its, its_slow))
        self.child.close()
        self.child = children.adopt("xts-workers", pid)
        self._make_callers()
        before = self.workers
        said = self.start(config, material)
        for worker, made in zip(before, self.workers, strict=True):
            worker.becomes(made)
        self.workers = before
        return said

    @property
    def silent_s(self) -> float:
        """For how long the last call has been unanswered; 0.0: it was answered."""
        return time.monotonic() - self._caller.silent_since if self._caller.silent_since else 0.0

    def call(self, method: str, *arguments: Any, descriptors: list[int] | None = None, **how: Any) -> Any:
        result, came = self._ask(self._caller, method, *arguments, descriptors=descriptors or [], **how)
        close_all(came)
        return result

    def call_for_descriptors(self, method: str, *arguments: Any, **how: Any) -> tuple[Any, list[int]]:
        """As call(), with the descriptors that the method hands over."""
        return self._ask(self._caller, method, *arguments, **how)

    def _ask(self, caller: calling.Caller, method: str, *arguments: Any, **how: Any) -> tuple[Any, list[int]]:
        try:
            return caller.call(method, *arguments, **how)
        except OSError:
            if caller.broken:
                self.child.kill()  # which ends the proxy, in order
            raise

    def start(self, config: Config, material: Material) -> tuple[list[str], list[tuple[int, str]]]:
        """Starts the workers. Returns which privileges were dropped, and other lines to log. OSError: why it failed."""
        (done, notes, pid), came = self._ask(
            self._caller,
            "start",
            config,
            replace(material, programs=[]),
            descriptors=material.programs,
            patience_s=None,
        )
        if len(came) != config.proxy.workers:
            close_all(came)
            raise OSError(errno.EPROTO, "the workers' process did not start all of them")
        self.workers = [RemoteWorker(self, index, log_fd) for index, log_fd in enumerate(came)]
        if pid:
            self.understudy = children.adopt("xts-understudy", int(pid))
        return done, notes

    def renew_keys(self, connections: Sequence[socket.socket]) -> None:
        """There is another key process."""
        self.call("renew_keys", descriptors=[connection.fileno() for connection in connections])

    def prepare(self, config: Config, material: Material) -> list[tuple[int, str]]:
        """Builds a configuration that `configure()` will put in force. Returns lines to log. OSError: there is a
        mistake. May be called from another thread, and takes as long as it takes."""
        (notes), came = self._ask(
            self._slow_caller,
            "prepare",
            *(config, replace(material, programs=[])),
            descriptors=material.programs,
            patience_s=None,
        )
        close_all(came)
        return [(int(level), str(text)) for level, text in notes]

    def configure(self, device: Device) -> None:
        """Puts what was prepared in force, in all workers. OSError: they do not answer."""
        self.call("configure", device)

    def set_device(self, device: Device) -> None:
        """Gives all workers the new device, with the current configuration. OSError: they do not answer."""
        self.call("set_device", device)

    def give_resumption(self, private_fd: int) -> int:
        """What TLS sessions are resumed from is written there. Returns how many bytes it has. OSError."""
        return int(self.call("give_resumption", descriptors=[private_fd]))

    def take_resumption(self, private_fd: int, count: int) -> int:
        """It is taken. Returns how many keys and sessions it was. OSError."""
        return int(self.call("take_resumption", count, descriptors=[private_fd]))

    def tenants(self) -> dict[str, dict[str, dict[str, int]]]:
        """Account.figures() of each tenant, by its name."""
        return dict(self.call("tenants"))

    def filters(self) -> dict[str, dict[str, int]]:
        """ulp.filter_totals()."""
        return dict(self.call("filters"))

    def tls_counts(self) -> dict[str, int]:
        """struct xts_tls_counts."""
        return dict(self.call("tls_counts"))
