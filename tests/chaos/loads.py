"""The loads of a run: each a process, on the host or in the network, and a thread that reads what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beds.preload import preloaded
from xts_lab import topology
from xts_lab.lab import Lab

PROGRAM = Path(__file__).with_name("programs") / "loaded.py"
START_S = 20.0
NETWORK, DEVICE = str(topology.NET.addresses[0].ip), str(topology.DPU_NET.addresses[0].ip)


@dataclass(frozen=True)
class Kind:
    """A part of programs/loaded.py, where it runs, and with whom it speaks."""

    part: str
    role: str  # of a namespace of the lab: "host", "net"
    address: str
    port: int
    tls: bool = False

    @property
    def name(self) -> str:
        where = "offloaded" if self.role == "host" else "in the network"
        return f"{self.part} {where}{' with TLS' if self.tls else ''}"

    @property
    def serves(self) -> bool:
        return self.part.startswith("serve")


#: Servers first: the others ask them.
KINDS = (
    Kind("serve", "net", NETWORK, 7001),
    Kind("serve", "net", NETWORK, 7002, tls=True),
    Kind("serve_datagrams", "net", NETWORK, 7003),
    Kind("serve", "host", DEVICE, 7011),
    Kind("serve_forked", "host", DEVICE, 7012),
    Kind("serve_datagrams", "host", DEVICE, 7013),
    Kind("dialogue", "host", NETWORK, 7001),
    Kind("churn", "host", NETWORK, 7001),
    Kind("stream", "host", NETWORK, 7001),
    Kind("many", "host", NETWORK, 7001),
    Kind("family", "host", NETWORK, 7001),
    Kind("datagrams", "host", NETWORK, 7003),
    Kind("datagrams_without_waiting", "host", NETWORK, 7003),
    Kind("tls", "host", NETWORK, 7002, tls=True),
    Kind("dialogue", "net", DEVICE, 7011),
    Kind("churn", "net", DEVICE, 7011),
    Kind("churn", "net", DEVICE, 7012),
    Kind("datagrams", "net", DEVICE, 7013),
)


@dataclass(frozen=True)
class Seen:
    """A line of a load."""

    load: str
    what: str
    at: float  # CLOCK_MONOTONIC
    more: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.load}: {self.what} {' '.join(f'{key}={value}' for key, value in self.more.items())}"


class Load:
    """A running load. It begins again when a disturbance has killed it."""

    def __init__(self, lab: Lab, kind: Kind, folder: Path, seen: list[Seen], pause_s: float) -> None:
        """`pause_s`: between an answer and the next request."""
        self.kind, self._lab, self._folder, self._seen, self._pause_s = kind, lab, folder, seen, pause_s
        self.name = f"{kind.name} ({kind.port})"
        self.got_on_at = 0.0
        self._listens = threading.Event()
        self._killed: set[int] = set()
        self.start()

    def start(self) -> None:
        """A server: returns when it listens."""
        self._listens.clear()
        offloaded = self.kind.role == "host"
        command = [sys.executable, str(PROGRAM), "offloaded" if offloaded else "plain", self.kind.part]
        command += [self.kind.address, str(self.kind.port), *self._certificate()]
        complaints = (self._folder / f"{self.kind.part}-{self.kind.role}-{self.kind.port}.log").open("ab")
        with complaints:
            self.process = self._lab.popen(
                self.kind.role,
                command,
                environment=self._environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()
        if self.kind.serves and not self._listens.wait(START_S):
            raise TimeoutError(f"{self.name} does not listen; what it said is in {complaints.name}")

    def _environment(self) -> dict[str, str]:
        everywhere = {"CHAOS_PAUSE_S": str(self._pause_s)}
        if self.kind.role != "host":
            return everywhere
        if self.kind.tls:
            return everywhere | {"XTS_STRICT": "1"}
        rules = str(self._folder / "rules")
        return everywhere | {"LD_PRELOAD": preloaded(), "XTS_RULES": rules, "XTS_STRICT": "1"}

    def _certificate(self) -> Sequence[str]:
        if not (self.kind.tls and self.kind.serves):
            return ()
        return str(self._folder / "localhost.pem"), str(self._folder / "localhost.key")

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout and process.stdin
        with process.stdout, process.stdin:
            self._take(process)

    def _take(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout
        for line in process.stdout:
            said = json.loads(line)
            what, at = said.pop("what"), said.pop("at")
            if what == "got_on":
                self.got_on_at = at
            elif what == "listens":
                self._listens.set()
            else:
                self._seen.append(Seen(self.name, what, at, said))
        status = process.wait()
        if process.pid not in self._killed:
            self._seen.append(Seen(self.name, "ended", time.monotonic(), {"status": status}))

    def kill(self) -> None:
        self._killed.add(self.process.pid)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(START_S)
