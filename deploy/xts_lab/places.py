"""Where the demo's programs run: in a lab, or, for an unprivileged user, on the loopback of this machine.

Either way there is a client side (`host`: offloaded, `kern`: plain kernel TCP) and the world (`net`). On
loopback they are all this machine, and the proxy, which needs no privilege on a shared-memory queue, reaches
127.0.0.1.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from xts_messages.services.signal_handlers import handlers_later

from xts_lab.loopback import ALLOW_LOOPBACK

from . import netns, topology
from .free_ports import free_ports
from .lab import START_TIMEOUT_S, Lab
from .privilege import RUN_DIRECTORY, LabError
from .running_programs import wait_ready

#: A demo's lab has the number of its process, so that several can run.
LAB_PREFIX = "xts-demo-"


def certificates_folder() -> tempfile.TemporaryDirectory[str]:
    """A directory for a demo's certificates and their keys. Its name has the number of the process, as the lab's name
    does."""
    return tempfile.TemporaryDirectory(prefix=f"{LAB_PREFIX}{os.getpid()}-")


def remove_abandoned() -> None:
    """Takes down the labs of demos that were killed, and removes the keys that they made."""
    for folder in Path(tempfile.gettempdir()).glob(f"{LAB_PREFIX}[0-9]*-*"):
        pid = folder.name.removeprefix(LAB_PREFIX).partition("-")[0]
        with suppress(FileNotFoundError):  # another demo may remove it at the same time
            if not Path("/proc", pid).exists() and folder.lstat().st_uid == os.geteuid():
                shutil.rmtree(folder, ignore_errors=True)  # this follows no symbolic links
    for directory in RUN_DIRECTORY.glob(f"{LAB_PREFIX}*"):
        pid = directory.name.removeprefix(LAB_PREFIX)
        if pid.isdigit() and not Path("/proc", pid).exists():
            for role in topology.EVERY_ROLE:
                namespace = topology.namespace_of(directory.name, role)
                for left in netns.processes_in(namespace) if netns.exists(namespace) else ():
                    with suppress(ProcessLookupError):
                        os.kill(left, signal.SIGKILL)  # nginx and jobs: nobody else is in a demo's namespaces
            Lab(directory.name).down()


@dataclass(frozen=True)
class Addresses:
    """The addresses of the demo's servers."""

    net: str  # servers of the world
    host: str  # listeners of the offloaded host: an address of the device
    kern: str  # listeners on the host's own kernel


class Place(Protocol):
    """What the demo needs of a place."""

    queue: str
    addresses: Addresses
    http_port: int
    https_port: int
    host_core: int
    device_core: int

    @property
    def directory(self) -> Path:
        """A directory for scratch files, which is removed with the place."""

    @property
    def description(self) -> str:
        """A description for the user."""

    def __enter__(self) -> Place: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def start(self, role: str, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts a program there; options as for subprocess.Popen."""


def two_cores() -> tuple[int, int]:
    """A core for the host and one for everything else; the same one if there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[0], cores[min(1, len(cores) - 1)]


class LabPlace(AbstractContextManager["LabPlace"]):
    """A lab of its own."""

    def __init__(self, queue: str, tables: str = "") -> None:
        """tables: more of them for the proxy's configuration, as TOML."""
        self.queue = queue
        self.http_port = 80
        self.https_port = 443
        self.addresses = Addresses(net="198.18.0.2", host="198.18.0.1", kern="198.18.1.2")
        self.host_core, self.device_core = two_cores()
        self.lab = Lab(f"{LAB_PREFIX}{os.getpid()}", queue=queue, queues=2, tables=tables, relayed_max=0)

    @property
    def directory(self) -> Path:
        return self.lab.directory

    @property
    def description(self) -> str:
        return f"{self.queue} queue, in a lab of namespaces"

    def __enter__(self) -> LabPlace:
        remove_abandoned()
        self.lab.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, LabError):  # because the logs are removed with the lab
            error.args = (f"{error}\n{self.lab.tail('proxy')}{self.lab.tail('agent')}",)
        self.lab.down()

    def start(self, role: str, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        return self.lab.popen(role, command, **options)


class LoopbackPlace(AbstractContextManager["LoopbackPlace"]):
    """A proxy on a shared-memory queue, started as the current user; everything is 127.0.0.1."""

    queue = "shm"
    addresses = Addresses(net="127.0.0.1", host="127.0.0.1", kern="127.0.0.1")

    def __init__(self, tables: str = "") -> None:
        """tables: more of them for the proxy's configuration, as TOML."""
        self.http_port, self.https_port = free_ports(2)
        self.tables = tables
        self.proxy_pid = 0
        self.host_core, self.device_core = two_cores()
        self._stack = ExitStack()
        self._directory = Path()
        self._environment: dict[str, str] = {}

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def description(self) -> str:
        return "shm queue without privilege; everything on loopback"

    def __enter__(self) -> LoopbackPlace:
        with self._stack:
            self._directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-")))
            commands = Path(sys.executable).parent
            self._environment = dict(os.environ) | {
                "PATH": f"{commands}:{os.environ.get('PATH', os.defpath)}",
                "XTS_ENDPOINT": str(self._directory / "endpoint.sock"),
            }
            self._start_proxy()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start_proxy(self) -> None:
        configuration = self._directory / "proxy.toml"
        configuration.write_text(
            f'[proxy]\nqueue = "shm"\nendpoint = "{self._directory}/endpoint.sock"\n'
            f'control = "{self._directory}/proxy.sock"\ncpus = [{self.device_core}]\n{self.tables}{ALLOW_LOOPBACK}'
        )
        log = self._stack.enter_context((self._directory / "proxy.log").open("w"))
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb"), os.fdopen(writing, "wb") as ready:
            command = [sys.executable, "-m", "xts_proxy", "--config", str(configuration), "--ready-fd", str(writing)]
            options = {"pass_fds": [writing], "stdout": log, "stderr": log, "start_new_session": True}
            proxy = self._stack.enter_context(started(lambda: self.start("dpu", command, **options)))
            self.proxy_pid = proxy.pid
            ready.close()
            if not wait_ready(reading, START_TIMEOUT_S):
                raise RuntimeError(f"xts-proxy did not get ready\n{(self._directory / 'proxy.log').read_text()}")

    def start(self, role: str, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(command, env=self._environment, **options)


@contextmanager
def started(start: Callable[[], subprocess.Popen[Any]], timeout_s: float = 5) -> Iterator[subprocess.Popen[Any]]:
    """Starts a program, and ends it with the block: SIGTERM, after timeout_s SIGKILL. Ctrl-C does not come between its
    start and our knowing it."""
    made = []
    try:
        with handlers_later():
            made.append(start())
        yield made[0]
    finally:
        for process in made:
            end(process, timeout_s)


def end(process: subprocess.Popen[Any], timeout_s: float = 5) -> None:
    """Ends a program that we started, and waits for it: SIGTERM, after timeout_s SIGKILL."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
