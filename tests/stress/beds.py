"""Where a run happens: a lab (root), loopback with a proxy of our own on shared memory, or kernel TCP."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from beds.card_lab import CardLab
from beds.card_lab import missing as cards_missing
from beds.lab import MTU_VARIABLE
from beds.patience import SLOWER
from beds.ready import readable
from xts_lab.lab import Lab
from xts_lab.loopback import ALLOW_LOOPBACK
from xts_proxy.status import control_socket
from xts_socket.cli.sockets import attached as host_status

from .ends import BUILT, build_proxy
from .settings import Settings

_DEVICE_ADDRESS, _PEER_ADDRESS = "198.18.0.1", "198.18.0.2"
_START_S, _ANSWER_S = 20.0 * SLOWER, 5.0 * SLOWER
#: A race ends the program that has it, with a status that the run sees. ASan keeps freed memory, up to 256 MiB by
#: default: of that, the run's limits of memory know nothing, and a fast machine frees more in the same time.
_SANITIZERS = {"TSAN_OPTIONS": "halt_on_error=1", "ASAN_OPTIONS": "quarantine_size_mb=4"}
#: An address of the loopback for this process, so that concurrent runs do not meet.
LOOPBACK = f"127.{os.getpid() >> 16 & 63 | 64}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


class Bed(Protocol):
    """What a run needs to know of its surroundings."""

    @property
    def listen_address(self) -> str:
        """Where the host's listener is reached."""

    @property
    def peer_address(self) -> str:
        """Where the TCP peer listens."""

    @property
    def proxy_pid(self) -> int:
        """Of its workers; 0: there is none, nor a law to check."""

    def spawn(self, role: str, command: list[str], extra: Mapping[str, str], **streams: Any) -> subprocess.Popen[str]:
        """Starts a command at the host's or the net's end."""

    def host_status(self) -> list[dict[str, Any]]:
        """Sockets of the host's processes, as `xts status` shows them."""

    def proxy_status(self) -> dict[str, Any]:
        """The proxy's answer to `xts-proxy status --connections`."""


class KernelBed:
    """Plain TCP over loopback: what is tested is the test."""

    listen_address = peer_address = LOOPBACK
    proxy_pid = 0

    def spawn(self, role: str, command: list[str], extra: Mapping[str, str], **streams: Any) -> subprocess.Popen[str]:
        del role
        process: subprocess.Popen[str] = subprocess.Popen(command, text=True, env={**os.environ, **extra}, **streams)
        return process

    def host_status(self) -> list[dict[str, Any]]:
        return []

    def proxy_status(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class LoopbackBed:
    """A proxy of our own that serves shared-memory queues and connects over loopback; no privilege."""

    directory: Path
    proxy_pid: int
    listen_address: str = LOOPBACK
    peer_address: str = LOOPBACK

    def spawn(self, role: str, command: list[str], extra: Mapping[str, str], **streams: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, **extra}
        if role == "host":
            environment["XTS_ENDPOINT"] = str(self.directory / "endpoint.sock")
        process: subprocess.Popen[str] = subprocess.Popen(command, text=True, env=environment, **streams)
        return process

    def host_status(self) -> list[dict[str, Any]]:
        return _host_status(str(self.directory / "endpoint.sock"))

    def proxy_status(self) -> dict[str, Any]:
        return control_socket.ask(
            str(self.directory / "proxy.sock"), control_socket.Question("status", connections=True)
        )


@dataclass(frozen=True, slots=True)
class CheckedBed(LoopbackBed):
    """The proxy's worker alone, with checks at every step: nobody to ask for figures, and sanitizers' memory."""

    def spawn(self, role: str, command: list[str], extra: Mapping[str, str], **streams: Any) -> subprocess.Popen[str]:
        # Explicit: a zero-argument super() does not know the class that dataclass() makes again for its slots.
        return LoopbackBed.spawn(self, role, command, {**extra, **_SANITIZERS}, **streams)

    def host_status(self) -> list[dict[str, Any]]:
        return []

    def proxy_status(self) -> dict[str, Any]:
        return {}


class StressLab(Lab):
    """A lab whose proxy has the run's limits, over veth."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        super().__init__(f"stress{os.getpid()}", **options)
        self.run_settings = settings

    def proxy_configuration(self) -> str:
        return super().proxy_configuration() + _limits(self.run_settings)


class StressCards(StressLab, CardLab):
    """The same on two network cards, with zero copy at both ends. Nothing is repeated: no frame may be lost."""


#: Queue -> its lab, and what that is raised with.
LABS: Mapping[str, tuple[type[StressLab], Mapping[str, Any]]] = {
    "afxdp": (StressLab, {"queue": "afxdp", "queues": 2}),
    "shm": (StressLab, {"queue": "shm", "queues": 2}),
    "cards": (StressCards, {"queue": "afxdp", "steering": "none", "mtu": 1500}),
}


@dataclass(frozen=True, slots=True)
class LabBed:
    """Host and net namespaces of a lab."""

    lab: StressLab
    proxy_pid: int
    listen_address: str = _DEVICE_ADDRESS
    peer_address: str = _PEER_ADDRESS

    def spawn(self, role: str, command: list[str], extra: Mapping[str, str], **streams: Any) -> subprocess.Popen[str]:
        return self.lab.popen(role, command, environment=extra, text=True, **streams)

    def host_status(self) -> list[dict[str, Any]]:
        return _host_status(str(self.lab.endpoint))

    def proxy_status(self) -> dict[str, Any]:
        question = control_socket.Question("status", connections=True)
        return control_socket.ask(str(self.lab.directory / "proxy.sock"), question, _ANSWER_S)


def _host_status(endpoint: str) -> list[dict[str, Any]]:
    return [asdict(entry) for process in host_status.ask(endpoint) for entry in process.entries]


def _limits(settings: Settings) -> str:
    lines = ["", "[limits]", f"spill_mib = {settings.spill_mib}"]
    if settings.proxy_window_kib:
        lines += [f"{key} = {settings.proxy_window_kib}" for key in ("window_kib", "window_max_kib")]
    return "\n".join([*lines, ""])


@contextmanager
def raised(settings: Settings) -> Iterator[Bed]:
    """The bed for these settings; taken down at the end."""
    if settings.queue == "kernel":
        yield KernelBed()
    elif settings.queue == "shm-loopback":
        with tempfile.TemporaryDirectory(prefix="xts-stress-") as directory, _proxy(Path(directory), settings) as pid:
            yield LoopbackBed(Path(directory), pid)
    elif settings.queue in BUILT:
        with tempfile.TemporaryDirectory(prefix="xts-stress-") as directory, _checked_proxy(Path(directory), settings):
            yield CheckedBed(Path(directory), 0)
    else:
        kind, options = LABS[settings.queue]
        if issubclass(kind, CardLab) and (reason := cards_missing()):
            raise RuntimeError(reason)
        mtu = {"mtu": int(os.environ[MTU_VARIABLE])} if MTU_VARIABLE in os.environ else {}
        with kind(settings, relayed_max=0, **(mtu | options)) as lab:
            yield LabBed(lab, control_socket.workers_pid(str(lab.directory / "proxy.sock")))


@contextmanager
def _proxy(directory: Path, settings: Settings) -> Iterator[int]:
    configuration = directory / "proxy.toml"
    configuration.write_text(
        f'[proxy]\nqueue = "shm"\nendpoint = "{directory}/endpoint.sock"\ncontrol = "{directory}/proxy.sock"\n'
        f'log_level = "warning"\ndrain_timeout_s = 0.0\n{_limits(settings)}\n{ALLOW_LOOPBACK}'
    )
    reading, writing = os.pipe()
    command = [str(Path(sys.executable).with_name("xts-proxy")), "--config", str(configuration)]
    process = subprocess.Popen([*command, "--ready-fd", str(writing)], pass_fds=[writing])
    os.close(writing)
    try:
        with os.fdopen(reading, encoding="ascii") as ready:
            if not readable(ready, _START_S) or not ready.readline():
                raise RuntimeError(f"xts-proxy did not get ready; configuration {configuration.read_text()}")
        yield control_socket.workers_pid(f"{directory}/proxy.sock")
    finally:
        process.terminate()  # were it killed, its workers might have the ports for a moment yet
        process.wait()


@contextmanager
def _checked_proxy(directory: Path, settings: Settings) -> Iterator[None]:
    limits = [str(settings.frame_window or 64), str(settings.proxy_window_kib), str(settings.spill_mib)]
    command = [str(build_proxy(settings.queue)), str(directory / "endpoint.sock"), *limits]
    pipes: Mapping[str, Any] = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    process = subprocess.Popen(command, env={**os.environ, **_SANITIZERS}, text=True, **pipes)
    failed = True
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the checked proxy did not get ready")
        yield
        failed = False
    finally:
        errors = process.communicate("")[1]
        if process.returncode != 0 and not failed:
            raise RuntimeError(f"the checked proxy ended with status {process.returncode}:\n{errors}")
        if process.returncode != 0:
            print(errors, file=sys.stderr)
