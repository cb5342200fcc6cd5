"""The running proxy: start, reload, drain, stop.

Theory of operation. One asyncio loop, and worker threads that need nothing from it to carry data. Everything that
takes privilege or can fail is opened first (sockets, queues); then the sandbox closes; then workers start and get
their queues. Only then are we ready. A mistake on the way ends the process before anything serves.

SIGHUP: the file is read and checked; only if it is valid and changes nothing that needs a restart is any of it taken
over. SIGTERM, SIGINT: new sockets are refused and listeners closed, connections go on until none is left or the time
is over; then every host is told GOODBYE. A second signal ends the waiting.

A worker that makes no progress is reported (heartbeat.py), and status and metrics do without its figures. Under
systemd's watchdog, a sign of life is sent only when every worker makes progress: one that hangs is a restart.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from xts_proxy import control, log, metrics, sandbox, ulp_tls
from xts_proxy.config import Config, ConfigError, load, restart_needed
from xts_proxy.config_tenant import effective, shortages
from xts_proxy.heartbeat import Heartbeat, answers
from xts_proxy.log import LOG
from xts_proxy.readiness import Readiness
from xts_proxy.shm import ShmChannels
from xts_proxy.tenants import Tenants, machine_of
from xts_proxy.ulp import Protocols
from xts_proxy.workers import LINK_STATES, Worker

_DRAIN_LOOK_S = 0.05
_REAP_S = 0.05
_REQUEST_BYTES_MAX = 8192


class Channels(Protocol):
    """Where channels come from: shm.py or device.py."""

    config: Config

    def give_to(self, workers: list[Worker]) -> None: ...
    def reconfigure(self, workers: list[Worker]) -> None: ...
    def programs(self) -> dict[int, tuple[int, str]]: ...
    def counters(self) -> dict[str, tuple[int, str]]: ...
    def close(self) -> None: ...


class Supervisor:
    """One proxy, from opening to its end."""

    def __init__(self, config: Config, path: Path | None, readiness: Readiness) -> None:
        """`path`: the file to read again on SIGHUP; None without one."""
        self.config = config
        self.path = path
        self.readiness = readiness
        self.started_at = time.time()
        self.state = "starting"
        self.workers: list[Worker] = []
        self._heartbeat = Heartbeat(self.workers)
        self._logs: list[log.WorkerLog] = []
        self.tenants = Tenants(config)
        self.channels: Channels | None = None
        self._protocols = Protocols()
        self._ulp: Any = None  # struct xts_ulp_config in force
        self.reloads = {"taken": 0, "refused": 0}
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._undo = ExitStack()
        self._listeners: list[tuple[socket.socket, Callable[..., object]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._undo.close()

    # --- life ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Everything that takes the rights we started with, and then gives them up. Before the loop runs: pyroute2 has
        one of its own. OSError: something could not be had; leaving the context closes the rest."""
        descriptors = sandbox.raise_limits()
        proxy = self.config.proxy
        for warning in shortages(effective(self.config.tenant), machine_of(self.config, descriptors)):
            LOG.warning("%s", warning)
        if proxy.user:
            sandbox.find_user(proxy.user)
        self._listen_unix(proxy.control, 0o600, control.handler(self.answer))
        where = proxy.metrics
        if where.unix_path is not None:
            self._listen_unix(where.unix_path, 0o666, metrics.handler(self.metrics_text))
        elif where.host is not None:
            family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
            try:
                listener = socket.create_server((where.host, where.port), family=family)
            except OSError as error:
                raise OSError(error.errno, f"metrics at {where}: {error.strerror}") from error
            self._listeners.append((self._undo.enter_context(listener), metrics.handler(self.metrics_text)))
        self.channels = (
            ShmChannels(self.config, self.tenants) if proxy.queue == "shm" else _open_device(self.config, self.tenants)
        )
        self._undo.callback(self.channels.close)
        self._undo.enter_context(self._protocols)
        self._ulp = self._protocols.build(self.config)
        for line in sandbox.confine(proxy.user, proxy.core_dumps):
            LOG.info("sandbox: %s", line)

    def _listen_unix(self, path: str, mode: int, serve: Callable[..., object]) -> None:
        listener = self._undo.enter_context(control.listen_unix(path, mode))
        self._undo.callback(_unlink, path)
        self._listeners.append((listener, serve))

    async def run(self) -> None:
        """Serves what was opened; returns after an orderly stop. OSError: a worker could not be started."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_log_exception)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop_signal)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        try:
            self._start_workers()
            for listener, serve in self._listeners:
                await _serve(listener, serve)
            self.state = "running"
            LOG.info("ready: queue kind %s, %d worker(s)", self.config.proxy.queue, len(self.workers))
            self.readiness.ready("serving")
            self._heartbeat.start()
            self._stay_alive()
            await self._stopping.wait()
            error = await self._drain()
        except BaseException:
            self._stop_workers(errno.ESHUTDOWN)
            raise
        self._stop_workers(error)
        LOG.info("stopped")

    def _start_workers(self) -> None:
        loop = asyncio.get_running_loop()
        for index in range(self.config.proxy.workers):
            worker = Worker(index, self.config, self.tenants.numbers(), self._ulp)
            self.workers.append(worker)
            self._logs.append(log.WorkerLog(loop, worker))
        assert self.channels is not None
        self.channels.give_to(self.workers)
        if isinstance(self.channels, ShmChannels):
            loop.add_reader(self.channels.endpoint.fileno(), self._on_endpoint)

    def _stop_workers(self, error: int) -> None:
        """Once; GOODBYE(error) to the hosts."""
        self._heartbeat.stop()
        workers, self.workers[:] = list(self.workers), []
        if isinstance(self.channels, ShmChannels):
            self.channels.stopping = True
        for relay in self._logs:
            relay.close()
        for worker in workers:
            worker.stop(error)

    # --- stopping --------------------------------------------------------------------------------------

    def _on_stop_signal(self) -> None:
        if self._stopping.is_set():
            LOG.warning("second signal: stopping at once")
            self._hurry.set()
        self._stopping.set()

    async def _drain(self) -> int:
        """Until no connection is left, or the time is over. The errno for the GOODBYE."""
        self.state = "draining"
        timeout_s = self.config.proxy.drain_timeout_s
        self.readiness.stopping(self.state)
        if isinstance(self.channels, ShmChannels):
            self.channels.stopping = True
        for worker in self.workers:
            worker.drain()
        LOG.info("stopping: %d connections may go on for %g s", self._connections(), timeout_s)
        deadline = time.monotonic() + timeout_s
        while (left := self._connections()) and time.monotonic() < deadline and not self._hurry.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), _DRAIN_LOOK_S)
        if left:
            LOG.warning("%d connections are cut off", left)
        return errno.ESHUTDOWN if left else 0

    def _connections(self) -> int:
        every = [worker.stats() for worker in self.workers if answers(worker)]
        hanging = len(self.workers) - len(every)  # at least one each, as far as we know
        return hanging + sum(int(stats["connections"] + stats["parked_connections"]) for stats in every)

    # --- reloading -------------------------------------------------------------------------------------

    def reload(self) -> bool:
        """Takes over the file as it is now; False and a log line when it cannot, and nothing has changed."""
        if self.path is None or self.state != "running":
            LOG.warning("reload: %s", "there is no file to read" if self.path is None else self.state)
            return False
        self.readiness.reloading()
        taken = self._reload(self.path)
        self.reloads["taken" if taken else "refused"] += 1
        self.readiness.ready("serving")
        return taken

    def _reload(self, path: Path) -> bool:
        try:
            new = load(path)
        except ConfigError as error:
            for mistake in error.mistakes:
                LOG.error("reload: %s", mistake)
            LOG.error("reload: the configuration in force stays")
            return False
        if changes := restart_needed(self.config, new):
            for change in changes:
                LOG.error("reload: %s: %s; this needs a restart", path, change)
            LOG.error("reload: the configuration in force stays")
            return False
        try:
            ulp = self._protocols.build(new)
        except OSError as error:
            LOG.error("reload: %s", error.strerror)
            LOG.error("reload: the configuration in force stays")
            return False
        self.tenants.configure(new)
        for worker in self.workers:
            worker.configure(new, self.tenants.numbers(), ulp)
        self._ulp = ulp
        self.config = new
        if self.channels:
            self.channels.config = new
            self.channels.reconfigure(self.workers)
        log.set_level(new.proxy.log_level)
        LOG.info("reload: %s is in force", path)
        return True

    # --- events ----------------------------------------------------------------------------------------

    def _stay_alive(self) -> None:
        if not self.readiness.alive_every_s or not self.workers:
            return
        if all(answers(worker) for worker in self.workers):
            self.readiness.alive()
        asyncio.get_running_loop().call_later(self.readiness.alive_every_s, self._stay_alive)

    def _on_endpoint(self) -> None:
        """Something came at the endpoint, or a time there is over."""
        channels = self.channels
        if not isinstance(channels, ShmChannels) or not self.workers:
            return
        channels.endpoint.process()
        waits = [channels.endpoint.timeout_s(), _REAP_S if channels.reap() else None]
        if self._timer:
            self._timer.cancel()
            self._timer = None
        soonest = min((wait for wait in waits if wait is not None), default=None)
        if soonest is not None:
            self._timer = asyncio.get_running_loop().call_later(soonest, self._on_endpoint)

    # --- figures ---------------------------------------------------------------------------------------

    def answer(self, question: control.Question) -> dict[str, Any]:
        """What the control socket is asked."""
        programs = self.channels.programs() if self.channels else {}
        awake = [worker for worker in self.workers if answers(worker)]
        channels = []
        for worker in awake:
            for row in worker.channels():
                pid, program = programs.get(row["queue_id"], (row["pid"], ""))
                row |= {"worker": worker.index, "pid": pid, "program": program}
                row["link_state"] = LINK_STATES[row["link_state"]]
                channels.append(row)
        result: dict[str, Any] = {
            "proxy": {
                "version": version("xts-offload"),
                "pid": os.getpid(),
                "state": self.state,
                "queue": self.config.proxy.queue,
                "config": str(self.path) if self.path else None,
                "uptime_s": time.time() - self.started_at,
                "reloads": self.reloads,
            },
            "workers": [self._worker_row(worker, worker in awake) for worker in self.workers],
            "tenants": [{"tenant": account.name} | account.figures() for account in self.tenants.accounts.values()],
            "tls": ulp_tls.counts(),
            "channels": sorted(channels, key=lambda row: row["queue_id"]),
        }
        if question.connections:
            result["connections"] = [row | {"worker": worker.index} for worker in awake for row in worker.connections()]
        return result

    def _worker_row(self, worker: Worker, awake: bool) -> dict[str, Any]:
        stands_s, reports = self._heartbeat.figures(worker)
        row: dict[str, Any] = {"worker": worker.index, "no_progress_s": round(stands_s, 1), "no_progress": reports}
        if not awake:
            return row
        stats = worker.stats()
        refused = stats["refused_policy"] + stats["refused_limit"]
        kept = stats["kept_listeners"] + stats["parked_connections"]
        return row | {**stats, "refused": refused, "kept": kept}

    def metrics_text(self) -> str:
        """What /metrics shows."""
        families = metrics.Families()
        info = {"version": version("xts-offload"), "queue": self.config.proxy.queue}
        families.add("xts_proxy_info", 1, info, "The proxy's version and kind of queue", gauge=True)
        families.add(
            "xts_proxy_start_time_seconds", self.started_at, {}, "When the proxy started, Unix time", gauge=True
        )
        draining = int(self.state == "draining")
        families.add("xts_proxy_draining", draining, {}, "Whether the proxy is stopping", gauge=True)
        for result, count in self.reloads.items():
            families.add("xts_proxy_reloads", count, {"result": result}, "Reloads of the configuration")
        for name, (count, help_text) in (self.channels.counters() if self.channels else {}).items():
            families.add(name, count, {}, help_text)
        for name, count in ulp_tls.counts().items():
            families.add(f"xts_tls_{name}", count, {}, f"{name} of struct xts_tls_counts, ulp/tls_config.h")
        for worker in self.workers:
            metrics.add_worker(families, worker.index, worker.stats())
        for account in self.tenants.accounts.values():
            metrics.add_tenant(families, account.name, account.figures())
        for worker in self.workers:
            for row in worker.channels():
                metrics.add_channel(families, worker.index, row)
        return families.text()


def _open_device(config: Config, tenants: Tenants) -> Channels:
    from xts_proxy.device import DeviceChannels  # libxdp, which shm does without

    return DeviceChannels(config, tenants)


async def _serve(listener: socket.socket, serve: Any) -> None:
    if listener.family == socket.AF_UNIX:
        await asyncio.start_unix_server(serve, sock=listener, limit=_REQUEST_BYTES_MAX)
    else:
        await asyncio.start_server(serve, sock=listener, limit=_REQUEST_BYTES_MAX)


def _unlink(path: str) -> None:
    with suppress(OSError):  # another user's directory, after the sandbox: the next start replaces it
        Path(path).unlink()


def _log_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    LOG.error("%s", context["message"], exc_info=context.get("exception"))
