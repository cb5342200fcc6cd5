"""Where programs under the interposer run that give each other sockets: on this machine with a proxy over shared
memory, or on the host of a lab with AF_XDP queues. Their peers are the kernel's."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from xts_lab.lab import Lab

from beds.patience import SLOWER
from beds.preload import ALL, PreloadBed, preload_library
from beds.real_programs import DPU4

PATIENCE_S = 20.0 * SLOWER
UDP = "use xts udp_receiver *:*\nuse xts udp_connect *:*\nuse xts udp_sender *:*\n"
STRICT = {"XTS_STRICT": "1"}
PEERS = Path(__file__).resolve().parents[1] / "system" / "interposer" / "programs" / "peers.py"


class Place(Protocol):
    """`here` is where servers under the interposer listen, and where their clients find them."""

    here: str

    def start(
        self, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """A program that runs until the block ends; its output is piped."""

    def client(self, port: int) -> socket.socket:
        """A client of the kernel's, connected to `here`."""

    def datagrams(self) -> socket.socket:
        """The same of UDP, not connected."""


def refused(place: Place, port: int) -> bool:
    try:
        place.client(port).close()
    except OSError as error:
        assert error.errno == errno.ECONNREFUSED, error
        return True
    return False


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """With the block."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=10 * SLOWER)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


PIPES: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}


class OnTheKernel:
    """On this machine, without the interposer."""

    here = "127.0.0.1"

    def start(
        self, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        environment = {**os.environ, **(env or {}), "LISTEN_AT": self.here}
        return ended(subprocess.Popen(command, env=environment, **PIPES))

    def client(self, port: int) -> socket.socket:
        return socket.create_connection((self.here, port), timeout=PATIENCE_S)

    def datagrams(self) -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@dataclass
class OnThisMachine(OnTheKernel):
    """The same under the interposer."""

    bed: PreloadBed

    def start(
        self, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        return self.bed.start(command, rules=ALL + UDP, env={**STRICT, **(env or {}), "LISTEN_AT": self.here})


@dataclass
class InLab:
    lab: Lab
    rules: Path
    here: str = DPU4

    def start(
        self, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        ours = {"LISTEN_AT": self.here, "LD_PRELOAD": preload_library(), "XTS_RULES": str(self.rules)}
        return ended(self.lab.popen("host", list(command), environment={**STRICT, **(env or {}), **ours}, **PIPES))

    def client(self, port: int) -> socket.socket:
        with self.lab.inside("net"):
            return socket.create_connection((self.here, port), timeout=PATIENCE_S)

    def datagrams(self) -> socket.socket:
        with self.lab.inside("net"):
            return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    @contextmanager
    def peers(self, path: Path) -> Iterator[None]:
        """At the Unix socket `path` is a program outside that makes peers of scripts (interposed.py)."""
        with socket.create_server(str(path), family=socket.AF_UNIX) as at:
            os.set_inheritable(at.fileno(), True)
            command = [sys.executable, str(PEERS), str(at.fileno()), self.here]
            process = self.lab.popen("net", command, pass_fds=[at.fileno()])
        try:
            yield
        finally:
            process.terminate()
            process.wait(10 * SLOWER)
