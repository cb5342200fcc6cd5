"""A proxy that ends and comes back, with programs on its host under the interposer, and clients in the network."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from pyroute2 import netns
from xts_lab import topology
from xts_lab.free_ports import free_ports
from xts_lab.lab import Lab
from xts_lab.wire import Wire

from beds import process_tree
from beds.lab import raise_or_skip
from beds.operated_proxy import NO_METRICS, Proxy, running, wait
from beds.patience import SLOWER
from beds.preload import preloaded

ROLES = ("tcp_client", "tcp_server", "udp_sender", "udp_receiver", "udp_connect")
RULES = "".join(f"use xts {role} *:*\n" for role in ROLES)


class Place(ABC):
    """Where the proxy is, and its host's programs. `address`: what listeners of these have in the network;
    `interface`: what a member of a group names; `server`: the address of servers that are in the network."""

    address: str
    interface: str
    server: str

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "rules").write_text(RULES)

    @abstractmethod
    def start(self) -> None:
        """Starts the proxy, if it does not run; when this returns, it serves."""

    @abstractmethod
    def end(self, how: str) -> None:
        """Ends it: by "kill", by "stop" (SIGTERM), or because its "workers" are killed. Returns when it has ended."""

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """Where the host's programs attach."""

    @property
    @abstractmethod
    def files(self) -> Path:
        """The folder with the proxy's configuration (proxy.toml) and its control socket (proxy.sock)."""

    @property
    @abstractmethod
    def proxy_pid(self) -> int: ...

    @abstractmethod
    def network(self) -> contextlib.AbstractContextManager[None]:
        """Sockets that are made within it are in the network."""

    @abstractmethod
    def device(self) -> contextlib.AbstractContextManager[None]:
        """Files of /proc that are read within it are the device's."""

    @abstractmethod
    def _environment(self) -> dict[str, str]: ...

    def _enter(self) -> list[str]:
        return []

    @contextlib.contextmanager
    def program(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, *, interposed: bool = True
    ) -> Iterator[subprocess.Popen[str]]:
        """A Python program on the host, killed at the end with its children; its output is piped."""
        env = self._environment() | dict(environment or {})
        if interposed:
            env |= {"LD_PRELOAD": preloaded(), "XTS_RULES": str(self.directory / "rules"), "XTS_STRICT": "1"}
        process = subprocess.Popen(
            [*self._enter(), sys.executable, *command],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def connect(self, port: int, timeout_s: float = 1.0 * SLOWER) -> socket.socket:
        with self.network():
            made = socket.socket()
        made.settimeout(timeout_s)
        try:
            made.connect((self.address, port))
        except OSError:
            made.close()
            raise
        return made

    def datagram(self, port: int, data: bytes = b"question", timeout_s: float = 0.3 * SLOWER) -> bytes:
        """What a UDP server answers."""
        with self.network():
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with made:
            made.settimeout(timeout_s)
            made.connect((self.address, port))
            made.send(data)
            return made.recv(65536)

    def free_ports(self, count: int) -> list[int]:
        with self.device():
            return free_ports(count, self.address)


class SharedMemory(Place):
    """One machine for all of them. No privilege is needed."""

    address = interface = server = "127.0.0.1"

    def __init__(self, directory: Path, tables: str = "") -> None:
        super().__init__(directory)
        self._tables = tables
        self._stack = contextlib.ExitStack()
        self._proxy: Proxy | None = None

    def start(self) -> None:
        if self._proxy:
            return
        settings = {"drain_timeout_s": 0.2} | NO_METRICS
        self._proxy = self._stack.enter_context(running(self.directory, self._tables, **settings))

    def end(self, how: str) -> None:
        assert self._proxy
        if how == "workers":
            os.kill(self._proxy.pid_of("xts-understudy"), signal.SIGKILL)  # else another one would go on
            os.kill(self._proxy.pid_of("xts-workers"), signal.SIGKILL)
        else:
            self._proxy.process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        self._proxy.ended(20)
        self._proxy = None

    @property
    def endpoint(self) -> str:
        return str(self.directory / "endpoint.sock")

    @property
    def files(self) -> Path:
        return self.directory

    @property
    def proxy_pid(self) -> int:
        assert self._proxy
        return self._proxy.process.pid

    def network(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def device(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def _environment(self) -> dict[str, str]:
        return os.environ | {"XTS_ENDPOINT": self.endpoint}

    def close(self) -> None:
        self._stack.close()


class Ethernet(Place):
    """A lab: the queues are AF_XDP."""

    address = interface = str(topology.DPU_NET.addresses[0].ip)
    server = str(topology.NET.addresses[0].ip)

    def __init__(
        self,
        directory: Path,
        tables: str = "",
        queues: int = 12,
        *,
        wire: Wire | None = None,
        reliable: bool = False,
        relayed_max: int = 0,
        mtu: int | None = None,
    ) -> None:
        super().__init__(directory)
        more: dict[str, Any] = {"wire": wire, "reliable": reliable, "relayed_max": relayed_max, "mtu": mtu}
        self.lab: Lab = raise_or_skip("afxdp", "r", queues, tables, **more)
        self._up = True

    def start(self) -> None:
        if self._up:
            return
        command = [sys.executable, "-m", "xts_proxy", "--config", str(self.lab.directory / "proxy.toml")]
        self.lab.spawn("dpu", command, name="proxy", ready=True)
        self._up = True

    def end(self, how: str) -> None:
        record = self.lab.records()["proxy"]
        if how == "workers":
            for name in ("xts-understudy", "xts-workers"):  # else another one would go on
                process_tree.kill(process_tree.one(record.pid, name))
        else:
            os.kill(record.pid, signal.SIGTERM if how == "stop" else signal.SIGKILL)
        wait(lambda: not record.alive, "end of the proxy", 20 * SLOWER)
        self._up = False

    def end_agent(self) -> None:
        self.lab.stop_program("agent")

    def start_agent(self) -> None:
        self.lab.start_agent()

    @property
    def endpoint(self) -> str:
        return str(self.lab.endpoint)

    @property
    def files(self) -> Path:
        return self.lab.directory

    @property
    def proxy_pid(self) -> int:
        return self.lab.records()["proxy"].pid

    def network(self) -> contextlib.AbstractContextManager[None]:
        return _inside(self.lab.name, "net")

    def device(self) -> contextlib.AbstractContextManager[None]:
        return _inside(self.lab.name, "dpu")

    def _environment(self) -> dict[str, str]:
        return self.lab.environment("host")

    def _enter(self) -> list[str]:
        return ["ip", "netns", "exec", topology.namespace_of(self.lab.name, "host")]

    def close(self) -> None:
        self.lab.down()


@contextlib.contextmanager
def _inside(lab: str, role: str) -> Iterator[None]:
    """This thread is in a namespace of the lab."""
    netns.pushns(topology.namespace_of(lab, role))
    try:
        yield
    finally:
        netns.popns()


@contextlib.contextmanager
def place(kind: str, directory: Path, tables: str = "") -> Iterator[Place]:
    """A place of this kind, "shm" or "afxdp", whose proxy runs."""
    made: SharedMemory | Ethernet = SharedMemory(directory, tables) if kind == "shm" else Ethernet(directory, tables)
    try:
        made.start()
        yield made
    finally:
        made.close()


def cases(all_of_them: Iterable[str], by_ethernet: Container[str]) -> list[ParameterSet]:
    """Parameters (kind of place, case): all over shared memory, and over Ethernet those that may differ there."""
    marks = [pytest.mark.root, pytest.mark.afxdp]
    found = sorted(all_of_them)
    over = [pytest.param("afxdp", case, marks=marks) for case in found if case in by_ethernet]
    return [pytest.param("shm", case) for case in found] + over


def processor_time_s(pid: int) -> float:
    """That a process has used, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
