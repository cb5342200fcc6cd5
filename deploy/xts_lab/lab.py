"""A lab: the network of topology.py with the agent and the proxy running in it.

    with Lab("mine", queue="shm") as lab:
        lab.spawn("net", ["python3", "-m", "http.server"], name="web")
        lab.run("host", ["xts", "status"])

Everything that a lab has is in known places, so that any process can take it down, also after a crash: its namespaces
under /run/netns, and, under /run/xts/NAME, its settings (lab.json) and a record and a log for each program.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from xts_messages.services.signal_handlers import handlers_later
from xts_messages.terminal.printable import printable

from xts_lab.loopback import ALLOW_LOOPBACK

from . import netns, placement, topology
from .lab_lock import exclusively
from .launch import more_files, raise_file_limit
from .placement import KernelPlacement, QueuePlacement
from .privilege import RUN_DIRECTORY, LabError, require_privilege
from .running_programs import Record, stop, wait_ready
from .wire import BRIDGE, PORTS, Wire, raise_network

START_TIMEOUT_S = 20.0
LEAVE_S = 3.0
QUEUE_KINDS = ("afxdp", "shm")
QUEUES_MAX = 64


@dataclass(frozen=True)
class Settings:
    """The settings with which a lab is raised."""

    queue: str = "afxdp"
    queues: int = 4
    placement: QueuePlacement = QueuePlacement.SOFT
    kern_placement: KernelPlacement = KernelPlacement.R0
    #: More tables for the proxy's configuration file, as TOML: identities and trust roots, parsers, limits.
    tables: str = ""
    #: Do agent and proxy share a key? Without one a proxy answers any process that sends HELLO.
    tokens: bool = True
    #: May hosts connect to the device's own loopback? By default, as in a proxy, they may not.
    loopback: bool = True
    #: How many processes the agent's relay serves when no queue is free; 0: there is none; None: the agent's default.
    relayed_max: int | None = None
    #: Do agent and proxy serve metrics, at `Lab.metrics_path()`?
    metrics: bool = False
    #: What is between the queues of host and device.
    wire: Wire = Wire.CABLE
    #: How frames find their queue (xts_bpf/steering.py); "": as the wire needs it.
    steering: str = ""
    #: Do agent and proxy repeat frames that the wire loses?
    reliable: bool = False
    #: Of the wire between the queues of host and device.
    mtu: int = topology.XTS_MTU
    #: The CPUs of the proxy's workers; empty: one worker, wherever the kernel has it.
    cpus: tuple[int, ...] = ()
    #: Busy polling of both ends: SO_BUSY_POLL of the queues, and how long interrupts stay away.
    busy_poll_us: int = 0
    napi_defer_us: int = 0

    def __post_init__(self) -> None:
        if self.queue not in QUEUE_KINDS:
            raise ValueError(f"queue {self.queue!r}: expected {' or '.join(QUEUE_KINDS)}")
        if not 1 <= self.queues <= QUEUES_MAX:
            raise ValueError(f"queues {self.queues}: expected 1 to {QUEUES_MAX}")
        if self.queue == "shm" and self.placement is not QueuePlacement.SOFT:
            raise ValueError(f"placement {self.placement}: only an afxdp queue has one")
        if self.queue == "shm" and self.wire is not Wire.CABLE:
            raise ValueError(f"wire {self.wire}: only afxdp queues have one")
        if not topology.MTU_LEAST <= self.mtu <= topology.XTS_MTU:
            raise ValueError(f"MTU {self.mtu}: expected {topology.MTU_LEAST} to {topology.XTS_MTU}")


@dataclass(frozen=True)
class Left:
    """A process that still runs when its lab is down: one of the lab's own programs, or another one that was in its
    `namespace`."""

    pid: int
    program: str
    namespace: str | None = None

    def __str__(self) -> str:
        if self.namespace is None:
            return f"{self.program} (process {self.pid}) does not end"
        gone = f"{self.namespace} has no network any more"
        return f"{self.program} (process {self.pid}) still runs, and {gone}: end it with `kill {self.pid}`"


def _those_that_stay(namespace: str) -> list[int]:
    """Processes in the namespace that do not leave it. A process that was using the lab, such as the check of an `up`
    that was killed, notices its end and exits; it gets a moment for that."""
    deadline = time.monotonic() + LEAVE_S
    while (processes := netns.processes_in(namespace)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return processes


def _program_of(pid: int) -> str:
    try:
        return printable(Path(f"/proc/{pid}/comm").read_text().strip())
    except OSError:  # it has just ended
        return "a program"


def labs() -> list[str]:
    """The names of the labs that are up."""
    return sorted(path.parent.name for path in RUN_DIRECTORY.glob("*/lab.json"))


class Lab(AbstractContextManager["Lab"]):
    """One lab, up or down. As a context manager: raised at entry, taken down at exit. Needs root."""

    def __init__(self, name: str = "xts", **settings: Any) -> None:
        """settings: the fields of Settings. ValueError: one is wrong."""
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,31}", name):
            raise ValueError(f"name {name!r}: expected a letter, then letters, digits, - or _, at most 32, lower case")
        self.name = name
        self.settings = Settings(**settings)
        self.directory = RUN_DIRECTORY / name
        self.endpoint = self.directory / "endpoint.sock"
        #: The proxy's control socket, for `xts-proxy status`.
        self.control = self.directory / "proxy.sock"
        #: Where the cards of a switch are asked for rules.
        self.card = self.directory / "card.sock"
        #: The key that agent and proxy share.
        self.token_key = self.directory / "token.key"
        #: The directory of this installation's commands.
        self.commands = Path(sys.executable).parent

    def __enter__(self) -> Lab:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    # --- up and down ----------------------------------------------------------------

    def up(self, say: Callable[[str], None] = lambda text: None) -> None:
        """Raises the lab and returns when a message has crossed. A lab that is up with the same settings stays as it is
        (placements are set again); one with other settings is replaced. LabError or OSError: nothing is left behind."""
        require_privilege()
        with exclusively():
            if not self._is_as_asked():
                if self.exists():
                    say(f"replacing lab {self.name}")
                for left in self._tear_down():
                    say(str(left))
                try:
                    self._raise(say)
                except BaseException:
                    self._tear_down()
                    raise
            self.place(self.settings.placement, self.settings.kern_placement)

    def down(self) -> list[Left]:
        """Ends the lab's programs and removes everything it has. Other programs in its namespaces go on. Returns these,
        and programs of the lab that do not end."""
        require_privilege()
        with exclusively():
            return self._tear_down()

    def exists(self) -> bool:
        """Does anything of the lab exist?"""
        return self.directory.exists() or bool(topology.remains(self.name))

    def _is_as_asked(self) -> bool:
        found = self.stored_settings()
        return (
            found is not None
            and replace(found, placement=self.settings.placement, kern_placement=self.settings.kern_placement)
            == self.settings
            and all(netns.exists(topology.namespace_of(self.name, role)) for role in self.settings.wire.roles())
            and all((record := self.record(program)) is not None and record.alive for program in self._programs())
        )

    def _programs(self) -> tuple[str, ...]:
        programs = ("proxy", "agent") if self.settings.queue == "afxdp" else ("proxy",)
        return (*programs, "card") if self.settings.wire is Wire.SWITCH else programs

    def stored_settings(self) -> Settings | None:
        """The settings with which the lab of this name was raised; None: it is not up."""
        try:
            stored = json.loads((self.directory / "lab.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return Settings(
            stored["queue"],
            stored["queues"],
            QueuePlacement(stored["placement"]),
            KernelPlacement(stored["kern_placement"]),
            stored.get("tables", ""),
            stored.get("tokens", True),
            stored.get("loopback", True),
            stored.get("relayed_max"),
            stored.get("metrics", False),
            Wire(stored.get("wire", Wire.CABLE)),
            stored.get("steering", ""),
            stored.get("reliable", False),
            stored.get("mtu", topology.XTS_MTU),
            tuple(stored.get("cpus", ())),
            stored.get("busy_poll_us", 0),
            stored.get("napi_defer_us", 0),
        )

    def _store_settings(self) -> None:
        temporary = self.directory / "lab.new"
        temporary.write_text(json.dumps(asdict(self.settings)))
        temporary.rename(self.directory / "lab.json")

    def _raise(self, say: Callable[[str], None]) -> None:
        self.directory.mkdir(parents=True)
        say("network: namespaces and cables")
        self._raise_network()
        if self.settings.wire is Wire.SWITCH:
            say("cards of the switch")
            self.start_cards()
        say("proxy on the device")
        self.token_key.touch(0o600)
        self.token_key.write_bytes(os.urandom(32))
        (self.directory / "proxy.toml").write_text(self.proxy_configuration())
        self.start_proxy()
        if self.settings.queue == "afxdp":
            say("agent on the host")
            self.start_agent()
        say("first message")
        self._cross()
        self._store_settings()

    def _raise_network(self) -> None:
        raise_network(self.name, self.settings.queues, self.settings.wire, self.settings.mtu)

    def start_cards(self) -> Record:
        """Starts the program that stands for the cards at the ends of the switch (card.py)."""
        ends = [f"{port.interface}={end.interface}" for end, port in PORTS.items()]
        command = [sys.executable, "-m", "xts_lab.card", str(self.card), "--bridge", BRIDGE, *ends]
        return self.spawn(topology.SWITCH_ROLE, command, name="card", ready=True)

    def start_proxy(self, environment: Mapping[str, str] | None = None) -> Record:
        """Starts the proxy: at the beginning, and when it was stopped or killed."""
        command = [sys.executable, "-m", "xts_proxy", "--config", str(self.directory / "proxy.toml")]
        return self.spawn("dpu", command, name="proxy", ready=True, environment=environment)

    def start_agent(self, environment: Mapping[str, str] | None = None, python: str = sys.executable) -> Record:
        """Starts the agent of an afxdp lab: at the beginning, and when it was stopped or killed. `python`: that of the
        installation that it is of."""
        mac = topology.mac_address(self.name, topology.DPU_XTS)
        command = [python, "-m", "xts_agent", "--interface", topology.HOST_XTS.interface]
        command += ["--endpoint", str(self.endpoint), "--peer-mac", mac]
        for key, value in self._steering().items():
            command += [f"--{key.replace('_', '-')}", value]
        if self.settings.wire is not Wire.CABLE:
            command += ["--prove-every-s", "1"]
        if self.settings.reliable:
            command += ["--reliable", "on"]
        if self.settings.busy_poll_us:
            command += ["--busy-poll-us", str(self.settings.busy_poll_us)]
        if self.settings.napi_defer_us:
            command += ["--napi-defer-us", str(self.settings.napi_defer_us)]
        if self.settings.tokens:
            command += ["--token-key", str(self.token_key)]
        if self.settings.relayed_max is not None:
            command += ["--relayed-max", str(self.settings.relayed_max)]
        if self.settings.metrics:
            command += ["--metrics", f"unix:{self.metrics_path('agent')}"]
        return self.spawn("host", command, name="agent", ready=True, environment=environment)

    def proxy_configuration(self) -> str:
        """The text of proxy.toml. In a lab every process may connect and listen everywhere."""
        values: dict[str, Any] = {
            "queue": self.settings.queue,
            "control": str(self.control),
            "metrics": f"unix:{self.metrics_path('proxy')}" if self.settings.metrics else "off",
        }
        if self.settings.cpus:
            values |= {"workers": len(self.settings.cpus), "cpus": list(self.settings.cpus)}
        if self.settings.queue == "afxdp":
            values |= {
                "interface": topology.DPU_XTS.interface,
                "peer_mac": topology.mac_address(self.name, topology.HOST_XTS),
                "queues": f"0-{self.settings.queues - 1}",
                "token_key": str(self.token_key) if self.settings.tokens else "",
                "reliable": "on" if self.settings.reliable else "off",
                "busy_poll_us": self.settings.busy_poll_us,
                "napi_defer_us": self.settings.napi_defer_us,
                **self._steering(),
            }
        else:
            values |= {"endpoint": str(self.endpoint)}
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        last = ALLOW_LOOPBACK if self.settings.loopback else ""
        return "\n".join(["[proxy]", *lines, "", "[policy]", 'default = "allow"', "", self.settings.tables, last])

    def _steering(self) -> dict[str, str]:
        """The keys of agent and proxy that say how frames find their queue. On a plain bridge nobody has rules."""
        how = self.settings.steering or ("auto" if self.settings.wire is Wire.CABLE else "address")
        rules = {"flow_rules": f"unix:{self.card}"} if self.settings.wire is Wire.SWITCH else {}
        return {"steering": how} | rules

    def _cross(self) -> None:
        """Attaches as an application would, and waits for the proxy's answer."""
        result = self.run(
            "host",
            [sys.executable, "-m", "xts_lab.crossing"],
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
        )
        if result.returncode != 0:
            raise LabError(f"no message crosses: {result.stderr.strip()}\n{self.tail('proxy')}{self.tail('agent')}")

    def _stop_programs(self) -> list[Left]:
        """Those of the lab. Returns what does not end."""
        left = []
        for name, record in self.records().items():
            stop(record)
            if record.alive:
                left.append(Left(record.pid, name))
        return left

    def _tear_down(self) -> list[Left]:
        left = self._stop_programs()
        for namespace in topology.remains(self.name):
            if netns.exists(namespace):
                left += [Left(pid, _program_of(pid), namespace) for pid in _those_that_stay(namespace)]
        topology.remove_network(self.name)
        shutil.rmtree(self.directory, ignore_errors=True)
        with suppress(OSError):  # other labs, or an installed service, may have files in it
            RUN_DIRECTORY.rmdir()
        return left

    # --- placement ----------------------------------------------------------------

    def place(self, queues: QueuePlacement, kernel: KernelPlacement) -> None:
        """Sets where the device's work runs (placement.py) and verifies it; after a restart of the proxy, set
        it again."""
        self.settings = replace(self.settings, placement=queues, kern_placement=kernel)
        if self.settings.queue == "afxdp":
            placement.set_queue_placement(self.name, queues)
        placement.set_kernel_placement(self.name, kernel)
        self._store_settings()

    def verify_placement(self) -> None:
        """RuntimeError: the placement set with `place()` is no longer in force."""
        if self.settings.queue == "afxdp":
            placement.verify_queue_placement(self.name, self.settings.placement)
        placement.verify_kernel_placement(self.name, self.settings.kern_placement)

    # --- programs ----------------------------------------------------------------

    def environment(self, role: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Our environment, with this installation's commands first, and the proxy's control socket; on the host also
        the endpoint at which a program attaches."""
        found = dict(os.environ)
        found["PATH"] = f"{self.commands}:{found.get('PATH', os.defpath)}"
        found.pop("XTS_ENDPOINT", None)
        found["XTS_CONTROL"] = str(self.control)
        if role == "host":
            found["XTS_ENDPOINT"] = str(self.endpoint)
        return found | dict(extra or {})

    def spawn(
        self,
        role: str,
        command: Sequence[str],
        *,
        name: str,
        ready: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Record:
        """Starts a program that runs until `stop_program()` or `down()`; its output goes to its log. With
        ready the program gets `--ready-fd N` at the end and the call returns when it wrote there."""
        namespace = topology.namespace_of(self.name, role)
        path = self._record_path(name)
        if (old := Record.read(path)) is not None and old.alive:
            raise LabError(f"{name} already runs in lab {self.name} (process {old.pid})")
        path.unlink(missing_ok=True)
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb"), os.fdopen(writing, "wb") as ready_pipe:
            arguments = [sys.executable, "-m", "xts_lab.launch", namespace, str(path), "--", *command]
            log = str(self.log_path(name))
            actions: list[Any] = [
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ]
            if ready:
                arguments += ["--ready-fd", str(writing)]
                os.set_inheritable(writing, True)
            everything = self.environment(role, environment)
            with handlers_later():  # until there is a record, nothing could end it
                pid = os.posix_spawn(sys.executable, arguments, everything, file_actions=actions, setsid=True)
                record = self._await_record(name, pid)
            ready_pipe.close()
            if ready and not wait_ready(reading, START_TIMEOUT_S):
                stop(record)
                raise LabError(f"{name} did not get ready\n{self.tail(name)}")
        return record

    def _await_record(self, name: str, pid: int) -> Record:
        deadline = time.monotonic() + START_TIMEOUT_S
        while (record := Record.read(self._record_path(name))) is None:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended or time.monotonic() > deadline:
                raise LabError(f"{name} did not start (status {status})\n{self.tail(name)}")
            time.sleep(0.002)
        return record

    def stop_program(self, name: str) -> None:
        """Ends a program of this lab; nothing to do when it does not run."""
        if (record := self.record(name)) is not None:
            stop(record)
            self._record_path(name).unlink(missing_ok=True)

    def run(
        self,
        role: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[Any]:
        """Runs a command in a namespace to its end; options as for subprocess.run. OSError: there is no such
        program."""
        with self._inheriting(role):
            return subprocess.run(command, env=self.environment(role, environment), check=False, **options)

    def popen(
        self,
        role: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Starts a command in a namespace as our child; options as for subprocess.Popen. OSError: there is no such
        program."""
        with self._inheriting(role):
            return subprocess.Popen(command, env=self.environment(role, environment), **options)

    @contextmanager
    def _inheriting(self, role: str) -> Iterator[None]:
        """What this thread starts in the block has the namespace, and may have as many descriptors as we may allow
        it. A program that enters the namespace and becomes the other one takes 40 ms of a core each time."""
        with self.inside(role), more_files():
            yield

    def execute(self, role: str, command: Sequence[str]) -> None:
        """Replaces this process by the command, in the namespace. Returns only by an exception."""
        if not netns.exists(topology.namespace_of(self.name, role)):
            raise LabError(f"lab {self.name} is not up; raise it with `xts-lab up`")
        environment = self.environment(role)
        netns.enter(topology.namespace_of(self.name, role))
        raise_file_limit()
        program = shutil.which(command[0], path=environment["PATH"])
        if program is None:
            raise FileNotFoundError(errno.ENOENT, f"{command[0]}: not found")
        os.execve(program, list(command), environment)

    @contextmanager
    def inside(self, role: str) -> Iterator[None]:
        """The calling thread is in the namespace: sockets made in the block belong to it."""
        with netns.inside(topology.namespace_of(self.name, role)):
            yield

    # --- looking ----------------------------------------------------------------

    def log_path(self, program: str) -> Path:
        """Where a program's output goes."""
        return self.directory / f"{program}.log"

    def metrics_path(self, program: str) -> Path:
        """The Unix socket where the agent or the proxy serves metrics."""
        return self.directory / f"{program}-metrics.sock"

    def _record_path(self, program: str) -> Path:
        return self.directory / f"{program}.process"

    def record(self, program: str) -> Record | None:
        """The record of a program of this lab; None: it was not started."""
        return Record.read(self._record_path(program))

    def records(self) -> dict[str, Record]:
        """All programs that were started and not stopped, newest first, so that programs that serve others end last."""
        paths = sorted(self.directory.glob("*.process"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return {path.stem: record for path in paths if (record := Record.read(path)) is not None}

    def tail(self, program: str, lines: int = 12) -> str:
        """The last lines of a program's log, each with its name; for messages about a failure."""
        path = self.log_path(program)
        if not path.exists():
            return ""
        text = path.read_text(errors="replace").splitlines()[-lines:]
        return "".join(f"  {program}: {line}\n" for line in text)

    def status(self) -> dict[str, Any]:
        """The state of the lab, as `xts-lab status --json` prints it."""
        settings = self.stored_settings()
        programs: dict[str, dict[str, Any]] = {
            "agent": {"pid": None, "alive": False},
            "proxy": {"pid": None, "alive": False},
        }
        for name, record in self.records().items():
            programs[name] = {"pid": record.pid, "alive": record.alive, "log": str(self.log_path(name))}
        up = settings is not None and all(
            programs[name]["alive"] for name in (("agent", "proxy") if settings.queue == "afxdp" else ("proxy",))
        )
        return {
            "name": self.name,
            "up": up,
            **(asdict(settings) if settings else {"queue": None}),
            "endpoint": str(self.endpoint),
            "agent": programs.pop("agent"),
            "proxy": programs.pop("proxy"),
            "programs": programs,
            "namespaces": {
                role: topology.describe(self.name, role)
                for role in topology.EVERY_ROLE
                if netns.exists(topology.namespace_of(self.name, role))
            },
        }
