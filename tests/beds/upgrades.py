"""A proxy that hands over to a new one, again and again, in a place of its kind (restarts.py)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from xts_lab import card, topology
from xts_lab.lab import Lab
from xts_lab.wire import Wire
from xts_proxy.status import control_socket

from beds.operated_proxy import NO_METRICS, PROXY, Proxy, running, wait
from beds.patience import SLOWER
from beds.ready import readable
from beds.restarts import Ethernet, Place, SharedMemory

UPGRADE_S = 20.0 * SLOWER


class Upgrading(ABC):
    """A place, and the proxy that runs there. `generation`: how many there were before it. `keeps_queues`: those
    of a proxy are always the same ones."""

    keeps_queues = False

    def __init__(self, place: Place) -> None:
        self.place = place
        self.generation = 0

    @abstractmethod
    def upgrade(self) -> None:
        """Returns when the new proxy has everything, and the one before has ended."""

    @abstractmethod
    def start_new(self) -> int:
        """A new proxy begins to take over: the number of its process."""

    @abstractmethod
    def pid(self) -> int:
        """Of the proxy that runs."""

    @abstractmethod
    def runs_now(self) -> None:
        """It is the one that start_new() has started."""

    @abstractmethod
    def control(self) -> str: ...

    @abstractmethod
    def log_path(self) -> Path:
        """Where the proxy that runs writes its log."""

    def proxy_state(self) -> str:
        return str(control_socket.ask(self.control(), control_socket.Question("status"))["proxy"]["state"])

    def status(self) -> dict[str, object]:
        """What the proxy says of the last upgrade."""
        answer = control_socket.ask(self.control(), control_socket.Question("status"))["proxy"]["upgrade"]
        assert isinstance(answer, dict)
        return answer


class OverSharedMemory(Upgrading):
    def __init__(self, place: Place, proxy: Proxy) -> None:
        super().__init__(place)
        self.directory = proxy.directory
        self.process: subprocess.Popen[str] = proxy.process
        self._new: subprocess.Popen[str] | None = None

    def control(self) -> str:
        return str(self.directory / "proxy.sock")

    def log_path(self) -> Path:
        return self.directory / "log"

    def begin(self, program: Sequence[str] = PROXY) -> tuple[subprocess.Popen[str], int]:
        """A new proxy starts: its process, and where it says that it is ready."""
        ready, told = os.pipe()
        command = [*program, "--config", str(self.directory / "proxy.toml"), "upgrade", "--ready-fd", str(told)]
        with (self.directory / "log").open("a") as log:
            new = subprocess.Popen(command, stderr=log, pass_fds=[told], text=True)
        os.close(told)
        return new, ready

    def upgrade(self, program: Sequence[str] = PROXY) -> None:
        new, ready = self.begin(program)
        said = readable(ready, UPGRADE_S) and os.read(ready, 64)
        os.close(ready)
        assert said == b"ready\n", (self.directory / "log").read_text()[-3000:]
        assert self.process.wait(UPGRADE_S) == 0
        self.process = new
        self.generation += 1

    def start_new(self) -> int:
        if self._new:
            self._new.wait(UPGRADE_S)  # somebody has killed it
        self._new, ready = self.begin()
        os.close(ready)
        return self._new.pid

    def pid(self) -> int:
        return self.process.pid

    def runs_now(self) -> None:
        self.process.wait(UPGRADE_S)
        assert self._new
        self.process, self._new = self._new, None

    def close(self) -> None:
        if self._new:
            self._new.kill()
            self._new.wait()
        self.process.kill()
        self.process.wait()


class OverEthernet(Upgrading):
    keeps_queues = True

    def __init__(self, place: Place, lab: Lab) -> None:
        super().__init__(place)
        self.lab = lab

    def control(self) -> str:
        return str(self.lab.directory / "proxy.sock")

    def log_path(self) -> Path:
        return self.lab.log_path(self._name())

    def rules(self) -> list[dict[str, Any]]:
        """The rules of the device's card, without how many frames each has met."""
        found = card.ask(self.lab.card, topology.DPU_XTS.interface, "rules")
        found = [{name: value for name, value in rule.items() if name != "frames"} for rule in found]
        return sorted(found, key=lambda rule: int(rule["queue"]))

    def stop(self) -> None:
        self.lab.stop_program(self._name())

    def upgrade(self) -> None:
        old = self.lab.records()[self._name()]
        self.generation += 1
        self.lab.spawn("dpu", self._command(), name=self._name(), ready=True)
        wait(lambda: not old.alive, "end of the proxy before", UPGRADE_S)

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "xts_proxy", "--config", str(self.lab.directory / "proxy.toml"), "upgrade"]

    def start_new(self) -> int:
        return self.lab.spawn("dpu", self._command(), name=f"proxy-{self.generation + 1}").pid

    def pid(self) -> int:
        return self.lab.records()[self._name()].pid

    def runs_now(self) -> None:
        self.generation += 1

    def _name(self) -> str:
        return f"proxy-{self.generation}" if self.generation else "proxy"


@contextlib.contextmanager
def upgrading(kind: str, directory: Path, tables: str = "") -> Iterator[Upgrading]:
    """A running proxy of this kind, with more tables in its configuration: "shm", "afxdp", "switch" (AF_XDP, and frames
    have heads), "repeated" (so, and lost frames are repeated), or "relay" (one queue, which is the relay's)."""
    if kind == "shm":
        with running(directory, tables, **NO_METRICS) as made:
            shm = OverSharedMemory(SharedMemory(directory), made)
            try:
                yield shm
            finally:
                shm.close()
        return
    if kind == "relay":
        place = Ethernet(directory, tables, 1, relayed_max=64)
    else:
        wire = None if kind == "afxdp" else Wire.SWITCH
        place = Ethernet(directory, tables, wire=wire, reliable=kind == "repeated")
    try:
        yield OverEthernet(place, place.lab)
    finally:
        place.close()
