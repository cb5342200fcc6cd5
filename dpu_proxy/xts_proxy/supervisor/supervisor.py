"""The running proxy: start, reload, drain, stop.

Theory of operation. There are three processes: this one, with an asyncio loop; that of the workers (worker_methods.py),
which carries data without this one; and the one that has the private keys of TLS (keys.py). Everything that needs
privilege or can fail is opened first (sockets, queues, files). Then the other two are forked, and all drop their
privileges. Then workers start and get their queues. Only then is the proxy ready. An error before that ends the proxy
before it serves anybody. When the workers or the process with the keys end, another one goes on; too often, and the
proxy ends (crash.py). A fourth process, which serves metrics (metrics_process.py), is started again when it ends. A
fifth looks after the interface (queue_opener.py).

When network interfaces or addresses of the device change (device_watch.py), the workers are told.

SIGHUP: the file is read and checked; it takes effect only if it is valid and changes nothing that needs a restart
(reload.py).
Files of TLS that are replaced come into force without a signal (file_watch.py).
SIGTERM, SIGINT: new sockets are refused and listeners closed; connections go on until none is left or the time is over;
then every host gets GOODBYE. A second signal ends the wait. If the process that started the proxy ends (--until-fd),
that has the same effect as SIGTERM.

A worker that makes no progress is reported (heartbeat.py), and its figures are left out of status and metrics. With
systemd's watchdog, a sign of life is sent only while every worker makes progress, so a worker that hangs causes a
restart.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from xts_messages.attaching.attach_token import load_key
from xts_messages.services.kept_file import KeptFile
from xts_messages.services.readiness import Readiness
from xts_messages.services.service_manager import passed

from xts_proxy.config.config import Config
from xts_proxy.device import routing
from xts_proxy.device.device_watch import DeviceWatch
from xts_proxy.nic.steering import Steering
from xts_proxy.queues.channels import Channels
from xts_proxy.queues.shm_channels import ShmChannels
from xts_proxy.status import control_socket
from xts_proxy.status.connection_log import ConnectionLog
from xts_proxy.status.figures import Figures
from xts_proxy.supervisor import log, python_cpus, quiet_start, sandbox
from xts_proxy.supervisor.children import Child
from xts_proxy.supervisor.crash import Crashes, KeyCrashes
from xts_proxy.supervisor.heartbeat import Heartbeat, answers
from xts_proxy.supervisor.kept_listener import KeptListener
from xts_proxy.supervisor.log import LOG
from xts_proxy.supervisor.reload import Notes, Reload
from xts_proxy.supervisor.stopping import Stop
from xts_proxy.tenants import guarantees
from xts_proxy.tenants.limit_refusals import RefusalLog
from xts_proxy.tenants.tenants import Tenants
from xts_proxy.tls.file_watch import FileWatch
from xts_proxy.tls.key_lateness import KeyLog
from xts_proxy.tls.keys import KeyProcess
from xts_proxy.tls.renewal import Renewing
from xts_proxy.tls.tls_files import TlsFiles
from xts_proxy.upgrade.asked import Successors
from xts_proxy.upgrade.program_files import this_program
from xts_proxy.upgrade.taking import GoesOnError, Parts, Taking
from xts_proxy.workers.device_clock import DeviceClock
from xts_proxy.workers.name_servers import Device, of_device
from xts_proxy.workers.remote_worker import RemoteWorker
from xts_proxy.workers.ulp import Material, Protocols
from xts_proxy.workers.worker_process import WorkerProcess

if TYPE_CHECKING:
    from xts_proxy.metrics.metrics_process import MetricsProcess

_RELOAD_ENDS_S = 0.05
#: After a hand-over hosts claim what they had, and then send what has waited, on the same cores. What this process
#: still has to begin takes 10 ms of one, and nobody waits for it.
_HOSTS_FIRST_S = 0.1
_REQUEST_BYTES_MAX = 8192


class Supervisor:
    """One proxy, from opening to its end. What it says of itself is in status/figures.py."""

    def __init__(
        self,
        config: Config,
        path: Path | None,
        readiness: Readiness,
        until_fd: int | None = None,
        taking: Taking | None = None,
    ) -> None:
        """`path`: the file to read again on SIGHUP; None without one. `until_fd`: when it is readable or hung up, the
        process that started us is gone, and we stop. `taking`: it takes the place of a running proxy. OSError EBADF:
        until_fd is not open."""
        self.config = config
        self.path = path
        self.readiness = readiness
        if until_fd is not None:
            os.set_inheritable(until_fd, False)
        self._until_fd = until_fd
        self.taking = taking
        this_program()
        self.successors = Successors(self)
        self.started_at = time.time()
        self.state = "starting"
        self.workers: list[RemoteWorker] = []
        self.heartbeat = Heartbeat(self.workers)
        self.figures = Figures(self)
        self._refusals = RefusalLog(self.figures.tenants)
        self._key_log = KeyLog(self.figures.tls_counts)
        self._clock = DeviceClock()
        self._logs: list[log.WorkerLog] = []
        self.tenants = Tenants(config, promises=False)
        self.channels: Channels | None = None
        self.keys: KeyProcess | None = None
        self._protocols: Protocols | None = None
        self.process: WorkerProcess | None = None
        self.metrics: MetricsProcess | None = None
        self._connection_log: ConnectionLog | None = None
        self.steering = Steering((), ())
        self._material: Material | None = None  # only until the workers have it
        self._device = DeviceWatch(lambda: self.config, self._set_device, self._look)
        self.crashes = Crashes(config.proxy.crashes_max, self._logs)
        self.key_crashes = KeyCrashes(config.proxy.crashes_max)
        self.reloading: Reload | None = None
        self.files = TlsFiles()  # in force
        self.watch: FileWatch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.stop = Stop(self.workers)
        self._undo = ExitStack()
        self.control: KeptListener | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._undo.close()

    # --- life ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Opens everything that needs the initial privileges, and then drops these. Called before the loop runs,
        because pyroute2 has its own. OSError: something could not be opened; leaving the context closes the rest."""
        descriptors = sandbox.raise_limits()
        proxy = self.config.proxy
        for warning in guarantees.warnings(self.config, guarantees.machine_of(self.config, descriptors)):
            LOG.warning("%s", warning)
        sandbox.user_to_become(proxy.user)
        upgrade_key = load_key(proxy.upgrade_key) if proxy.upgrade_key else b""
        handler = control_socket.handler(
            self.figures.answer, self._reload_asked, self.successors.ask, lambda: upgrade_key
        )
        self.control = KeptListener(proxy.control, 0o600, handler, _REQUEST_BYTES_MAX)
        self._undo.callback(self.control.close)
        self._undo.callback(self._remove, self.control)
        if proxy.connection_log:
            self._connection_log = self._open_connection_log()
        if proxy.metrics:
            self._open_metrics()
        parts = self.taking.parts if self.taking else None
        self.channels = _CHANNELS[proxy.queue](self.config, self.tenants, parts)
        self._undo.callback(_close, self.channels)
        for name, _ in passed().items:
            LOG.warning("systemd passes the socket %s, which the configuration does not name", name)
        self.steering = self._undo.enter_context(Steering(self.config.steer, proxy.cpus))
        self._fork()
        if sandbox.is_private(Path(__file__)):  # a checkout in /root: the other user cannot read it
            routing.load()
        quiet_start.before_confined()
        for line in sandbox.confine(proxy.user, sandbox.OF_SUPERVISOR, proxy.core_dumps):
            LOG.info("sandbox: %s", line)

    def _open_connection_log(self) -> ConnectionLog:
        account = sandbox.user_to_become(self.config.proxy.user)
        owner = account.pw_uid if account else os.geteuid()
        opened = ConnectionLog(self.config.proxy.connection_log, self.workers, owner)
        self._undo.callback(opened.close)
        return opened

    def _open_metrics(self) -> None:
        """Called before there are keys in memory."""
        # this imports prometheus_client, which most proxies do not need
        from xts_proxy.metrics.metrics_process import MetricsProcess

        proxy = self.config.proxy
        listener = self._undo.enter_context(proxy.metrics.listen())
        self.successors.passed_on.append((proxy.metrics.unix_path or str(proxy.metrics), listener))
        if proxy.metrics.unix_path is not None:
            file = KeptFile(Path(proxy.metrics.unix_path), LOG.warning)
            file.own()
            self._undo.callback(self._remove, file)
        self.metrics = MetricsProcess(proxy, listener, self.figures.of_metrics)
        self._undo.callback(self.metrics.close)
        if proxy.metrics.is_remote and not (proxy.metrics_certificate and proxy.metrics_token):
            without = "TLS (proxy.metrics_certificate)" if not proxy.metrics_certificate else "proxy.metrics_token"
            LOG.warning("metrics are served to other machines at %s without %s", proxy.metrics, without)

    def _fork(self) -> None:
        """Forks the other processes, and reads the files for them."""
        proxy = self.config.proxy
        self.keys = KeyProcess(proxy.user, proxy.core_dumps)
        self._undo.callback(self.keys.close)
        self._protocols = self._undo.enter_context(Protocols(self.keys.load))
        self._device.open()
        self._undo.callback(self._device.close)
        self._material = self._protocols.gather(self.config)
        self.files = self._material.tls
        self._device.known = self._material.device
        self.process = WorkerProcess([connection.fileno() for connection in self.keys.connections], self._clock)
        self._undo.callback(self.process.close)
        self.keys.handed_over()
        self.reloading = Reload(self, self.process, self._protocols, self.keys)
        self.watch = FileWatch(self, self.reloading, Renewing(self.keys.load, self.keys.forget, self.keys.holds))

    def _remove(self, file: KeptFile | KeptListener) -> None:
        """The file of a socket, at the end."""
        if not self.successors.has_listeners:
            with suppress(OSError), sandbox.reading():  # if we may not, it stays, and the next start replaces it
                file.remove()

    async def run(self) -> None:
        """Serves what was opened; returns after an orderly stop. OSError: a worker could not be started."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_log_exception)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop.on_signal)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        if self._until_fd is not None:
            loop.add_reader(self._until_fd, self.stop.on_orphaned, self._until_fd)
        try:
            self._start_workers()
            if self.taking and self.channels:
                self.state = "taking over"
                self._stay_alive()
                await self._take_over(self.taking, self.channels)
                await asyncio.sleep(_HOSTS_FIRST_S)
            if self.control:
                await self.control.start()
            if self.metrics:
                self.metrics.serve()
            self.stop.check()
            self.state = "running"
            LOG.info("ready: queue kind %s, %d worker(s)", self.config.proxy.queue, len(self.workers))
            self.readiness.ready("serving")
            self._clock.start()
            self.heartbeat.start()
            self._refusals.start()
            self._key_log.start()
            self._device.start()
            if self.watch:
                self.watch.start()
            if self.channels:
                self.channels.start(self._end_to_restart)
            if self._connection_log:
                self._connection_log.start()
            if not self.taking:
                self._stay_alive()
            await self.stop.wanted.wait()
            self.stop.check()
            error = await self._drain()
            self.stop.check()
        except BaseException:
            self._stop_workers(errno.ESHUTDOWN)
            raise
        self._stop_workers(error)
        LOG.info("stopped")

    def _start_workers(self) -> None:
        loop = asyncio.get_running_loop()
        assert self.process and self.keys and self._material
        done, notes = self.process.start(self.config, self._material)
        for line in done:
            LOG.info("sandbox of workers: %s", line)
        if line := python_cpus.leave_to_workers(self.config.proxy.cpus):
            LOG.info("%s", line)
        log.log_notes(notes)
        self.crashes.noted(notes)
        self.keys.in_force(self._material.tls.by_number(self.config.tls))
        self._material = None
        self.workers[:] = self.process.workers
        for worker in self.workers:
            self._logs.append(log.WorkerLog(loop, worker))
        for child in (self.process.child, self.keys.child, self.process.understudy):
            if child:
                loop.add_reader(child.fileno(), self._on_child, child)
        assert self.channels is not None
        self.channels.give_to(self.workers)
        if isinstance(self.channels, ShmChannels):
            loop.add_reader(self.channels.endpoint.fileno(), self._on_endpoint)
            self._on_endpoint()

    def _stop_workers(self, error: int) -> None:
        """Stops the workers, once, with GOODBYE(error) to the hosts."""
        for task in (
            self._clock,
            self.heartbeat,
            self._refusals,
            self._key_log,
            self._connection_log,
            self.watch,
            self.reloading,
        ):
            if task:
                task.stop()
        if self.process and self.process.child.ended():
            self.workers.clear()
            return
        workers, self.workers[:] = list(self.workers), []
        if isinstance(self.channels, ShmChannels):
            self.channels.stopping = True
        for relay in self._logs:
            relay.close()
        for worker in workers:
            with suppress(TimeoutError):  # the process is killed then
                worker.stop(error)

    def _on_child(self, child: Child) -> None:
        """One of our processes has ended. Without keys no handshake is possible, and without workers no data is
        carried: another process goes on, if it can, else the proxy ends."""
        asyncio.get_running_loop().remove_reader(child.fileno())
        how = child.ended()
        if self.process and child is self.process.understudy:
            LOG.error("%s: %s; the proxy ends when its workers do", child.name, how)
            return
        why = "the proxy ends"
        if self.process and child is self.process.child:
            why = self._go_on()
        elif self.keys and child is self.keys.child:
            why = self._go_on_with_keys()
        if why:
            self.stop.fail(f"{child.name}: {how}; {why}")

    def _go_on(self) -> str:
        """Without the workers' process: see Crashes.go_on()."""
        if self.state != "running" or not self.process or not self.channels or not self._protocols or not self.keys:
            return "the proxy ends"
        if self.keys.child.ended():
            asyncio.get_running_loop().remove_reader(self.keys.child.fileno())
            if why := self._go_on_with_keys():
                return why
        # not what is in the files now: it need not fit together
        gather = partial(self._protocols.gather, self.config, self.files)
        why = self.crashes.go_on(self.config, gather, self.process, self.channels, self.keys)
        if not why:
            asyncio.get_running_loop().add_reader(self.process.child.fileno(), self._on_child, self.process.child)
        return why

    def _go_on_with_keys(self) -> str:
        """Without the key process: see KeyCrashes.go_on()."""
        if self.state != "running" or not self.process or not self.keys:
            return "the proxy ends"
        loop = asyncio.get_running_loop()
        if self.reloading and self.reloading.runs:  # it asks that process, too, and is about to be refused
            loop.call_later(_RELOAD_ENDS_S, self._on_child, self.keys.child)
            return ""
        why = self.key_crashes.go_on(self.keys, self.process)
        if not why:
            loop.add_reader(self.keys.child.fileno(), self._on_child, self.keys.child)
        return why

    def _end_to_restart(self, why: str) -> None:
        """Only another start helps the interface: not while the proxy stops anyway."""
        if self.state == "running":
            self.stop.fail(why)

    async def _drain(self) -> int:
        """Returns the errno for the GOODBYE."""
        self.state = "draining"
        self._refusals.look()
        if not self.successors.is_heard:
            self.readiness.stopping(self.state)
        error = await self.stop.drain(self.config.proxy, self.channels)
        if self._connection_log and not self.stop.failed:
            self._connection_log.fetch()
        return error

    async def _take_over(self, taking: Taking, channels: Channels) -> None:
        try:
            assert self.process
            await taking.run(channels, self.stop.wanted, self.process)
        except GoesOnError:
            # It must not close in good order what the running one serves: it would tell peers of an end.
            if self.process:
                self.process.child.kill()
            raise

    # --- reloading -------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Begins to apply the file as it is now."""
        try:
            self._reload_asked()
        except OSError as error:
            LOG.warning("reload: %s", error.strerror)

    def _reload_asked(self) -> asyncio.Future[list[str]]:
        """The same; returns the outcome (Reload.begin()). OSError: it cannot begin."""
        if self.path is None:
            raise OSError(errno.EINVAL, "there is no file to read: the proxy was started without --config")
        if self.state != "running" or not self.reloading:
            raise OSError(errno.EBUSY, f"this proxy is {self.state}")
        self.readiness.reloading()
        return self.reloading.begin(self.path, self._reloaded)

    def _reloaded(self, refused: list[str]) -> None:
        """`systemctl status` goes on to say that the file is not what is in force."""
        self.readiness.ready("serving" + (f"; the file is not in force: {refused[0]}" if refused else ""))

    def take(self, new: Config, material: Material, notes: Notes) -> None:
        """Puts a configuration in force that the workers' process has prepared. OSError: nothing has changed."""
        assert self.process
        if self.metrics:
            self.metrics.configure(new.proxy)
        device = of_device(new)  # it may have changed since the file was read
        self.process.configure(device)
        log.log_notes(notes)
        self.crashes.noted(notes)
        self._device.known = device
        self.tenants.configure(new)
        if self.keys:
            self.keys.in_force(material.tls.by_number(new.tls))
        self.config = new
        self.files = material.tls
        if self.watch:
            self.watch.start()
        if self.channels:
            self.channels.config = new
            self.channels.reconfigure(self.workers)
        log.set_level(new.proxy.log_level)
        if self._connection_log:
            self._connection_log.open_again()

    def _look(self) -> None:
        if self.state == "running" and self.channels:
            self.channels.look()

    def _set_device(self, device: Device) -> None:
        if self.state == "running" and self.process:
            self.process.set_device(device)

    # --- events ----------------------------------------------------------------------------------------

    def _stay_alive(self) -> None:
        if not self.readiness.alive_every_s or not self.workers:
            return
        asyncio.get_running_loop().call_later(self.readiness.alive_every_s, self._stay_alive)
        if not self.successors.is_heard and all(answers(worker) for worker in self.workers):
            if self.taking and self.state == "taking over":
                self.taking.alive()
            else:
                self.readiness.alive()

    def _on_endpoint(self) -> None:
        """The endpoint is readable, or a timeout there has passed."""
        channels = self.channels
        if not isinstance(channels, ShmChannels) or not self.workers:
            return
        channels.endpoint.process()
        waits = [channels.endpoint.timeout_s(), channels.reap()]
        if self._timer:
            self._timer.cancel()
            self._timer = None
        soonest = min((wait for wait in waits if wait is not None), default=None)
        if soonest is not None:
            self._timer = asyncio.get_running_loop().call_later(soonest, self._on_endpoint)


def _open_device(config: Config, tenants: Tenants, parts: Parts | None) -> Channels:
    from xts_proxy.queues.afxdp_channels import DeviceChannels  # this imports libxdp, which shm does not need

    return DeviceChannels(config, tenants, parts)


def _open_rdma(config: Config, tenants: Tenants, parts: Parts | None) -> Channels:
    from xts_proxy.queues.rdma_channels import RdmaChannels  # others need no RDMA

    return RdmaChannels(config, tenants, parts)


#: By proxy.queue.
_CHANNELS: dict[str, Callable[[Config, Tenants, Parts | None], Channels]] = {
    "shm": ShmChannels,
    "afxdp": _open_device,
    "rdma": _open_rdma,
}


def _close(channels: Channels) -> None:
    with sandbox.reading():  # because an endpoint removes its socket
        channels.close()


def _log_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    LOG.error("%s", context["message"], exc_info=context.get("exception"))
