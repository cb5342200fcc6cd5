"""Where an attack happens: a proxy, its network, and how to start programs at either end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from beds import process_tree
from beds.proxy_process import running_proxy
from stress.beds import LOOPBACK
from xts_lab.demo import everything_on
from xts_lab.lab import Lab
from xts_proxy.status import control_socket

ECHO_PORT = 7007
PRIORITY = 10
OTHER_USER = 61007
#: Processes of this user are another tenant than the attack. Where there are tenants, listening has to be allowed.
_TENANTS = f"""
[[tenant]]
name = "other"
users = ["{OTHER_USER}"]
[[policy.rule]]
action = "allow"
what = "listen"
"""
_LAB_DEVICE, _LAB_PEER = "198.18.0.1", "198.18.0.2"

Start = Callable[..., "subprocess.Popen[str]"]
#: Given a folder for files and the address at the network's end: tables of the proxy's configuration.
Tables = Callable[[Path, str], str]


@dataclass(frozen=True, slots=True)
class Place:
    """What a part of an attack needs to know. `device_address`: where listeners of the host are reached from the
    network; `peer_address`: where the host reaches the network; `folder`: for files of this run; `scale`: how much of
    the attack to make, 1 for all of it."""

    endpoint: str
    device_address: str
    peer_address: str
    folder: str
    scale: float = 1.0

    def as_argument(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_argument(text: str) -> Place:
        return Place(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Scene:
    """A running proxy. `start(role, command)` starts a program at the "host" or the "net" end, with pipes for its
    standard input and output; `processes`: of the proxy, and the agent's."""

    place: Place
    control: str
    processes: tuple[int, ...]
    start: Start

    def status(self) -> dict[str, Any]:
        """What `xts-proxy status --json` prints."""
        return control_socket.ask(self.control, control_socket.Question("status", connections=False))

    def rounds(self) -> dict[str, int]:
        """How many rounds of the worker took how much CPU time: by the bound in seconds that they did not exceed."""
        counts: dict[str, int] = self.status()["workers"][0]["round_cpu"]["counts"]
        return counts

    def kept(self) -> int:
        """How many connections, listeners and orphans there are."""
        return sum(
            row["used"][what]
            for row in self.status()["tenants"]
            for what in ("connections", "listeners", "orphans", "kept", "lookups")
        )

    def worker_waited_ns(self) -> int:
        """For how long the worker could have run, and something else had its core, since it began."""
        waited_ns = 0
        for task in Path(f"/proc/{control_socket.workers_pid(self.control)}/task").iterdir():
            if (task / "comm").read_text().strip() == "xts-worker":
                waited_ns += int((task / "schedstat").read_text().split()[1])
        return waited_ns


def cores() -> tuple[int, int]:
    """The host's core and the device's. RuntimeError with fewer than two."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise RuntimeError("an attack is measured with two cores: one for the proxy, one for everybody else")
    return usable[0], usable[1]


def module(name: str, *arguments: str) -> list[str]:
    """The command of a program of this package."""
    return [sys.executable, "-m", f"attack.{name}", *arguments]


def _environment(endpoint: str) -> dict[str, str]:
    tests = str(Path(__file__).resolve().parents[1])
    return {"PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]), "XTS_ENDPOINT": endpoint}


@contextmanager
def raised(queue: str, folder: Path, makers: Iterable[Tables], scale: float = 1.0) -> Iterator[Scene]:
    """A proxy over "afxdp" or "shm" in a lab, or over "shm-loopback" without privilege; taken down at the end. There
    may be several at the same time, on the same cores. `makers`: what else its configuration has."""
    host_core, device_core = cores()
    peer_address = LOOPBACK if queue == "shm-loopback" else _LAB_PEER
    tables = "".join(make(folder, peer_address) for make in makers) + _TENANTS
    with ExitStack() as stack:
        pipes: Mapping[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        if queue == "shm-loopback":
            with everything_on(device_core):
                proxy = stack.enter_context(running_proxy(folder, f'log_level = "warning"\n{tables}'))
            place = Place(proxy.endpoint, LOOPBACK, LOOPBACK, str(folder), scale)

            def start(role: str, command: list[str]) -> subprocess.Popen[str]:
                del role  # one machine is both
                environment = os.environ | _environment(place.endpoint)
                with everything_on(host_core):
                    return subprocess.Popen(command, env=environment, **pipes)

            yield Scene(place, proxy.control, (proxy.process.pid,), start)
            return
        lab = Lab(
            f"attack{os.getpid()}{folder.name}", queue=queue, queues=8, tables=tables, loopback=False, relayed_max=0
        )
        with everything_on(device_core):
            stack.enter_context(lab)
        _move_agent(lab, host_core)
        place = Place(str(lab.endpoint), _LAB_DEVICE, _LAB_PEER, str(folder), scale)

        def start_in_lab(role: str, command: list[str]) -> subprocess.Popen[str]:
            with everything_on(host_core):
                return lab.popen(role, command, environment=_environment(place.endpoint), **pipes)

        processes = tuple(one.pid for program in ("proxy", "agent") if (one := lab.record(program)))
        yield Scene(place, str(lab.directory / "proxy.sock"), processes, start_in_lab)


def _move_agent(lab: Lab, core: int) -> None:
    """The agent is a program of the host's, with its other processes and all threads."""
    if (record := lab.record("agent")) is None:
        return
    for pid in (record.pid, *(pid for _, pid in process_tree.below(record.pid))):
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {core})


def go_first(priority: int = PRIORITY) -> bool:
    """This process goes before all ordinary ones on its core. False where that is not allowed."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except PermissionError:
        return False
    return True
