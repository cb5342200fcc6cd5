"""Where the tests of real programs run: a lab, programs on its host under `xts run`, their peers outside on the kernel.

The host of a lab has no address but loopback, so whatever a program there exchanges with the outside went through
the proxy: there is no other way.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from xts_lab.lab import Lab

from beds.patience import SLOWER

NET4, NET6 = "198.18.0.2", "fd18::2"  # the peer outside
DPU4, DPU6 = "198.18.0.1", "fd18::1"  # the device: where servers of the host are reached
KERN4, KERN6 = "198.18.1.2", "fd18:1::2"  # the host without us
START_S = 30.0 * SLOWER


def need(*programs: str) -> str:
    """The path of the (first) program, or a skip: all must be there."""
    search = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    found = [shutil.which(program, path=search) for program in programs]
    for program, path in zip(programs, found, strict=True):
        if path is None:
            pytest.skip(f"{program} is not installed")
    assert found[0]
    return found[0]


def wait_until(condition: Callable[[], Any], what: str, seconds: float = START_S) -> Any:
    """The condition's first true value; fails with `what` after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {seconds} s")
        time.sleep(0.02)


@dataclass
class Bed:
    """A lab, its files, and ways to run programs in it. With queue "kernel" the host is the lab's `kern`, without us:
    to see that a test holds there too."""

    lab: Lab
    folder: Path
    queue: str
    _logs: list[Path] = field(default_factory=list)

    @property
    def here4(self) -> str:
        """Where servers of the host are reached, IPv4."""
        return KERN4 if self.queue == "kernel" else DPU4

    @property
    def here6(self) -> str:
        """The same, IPv6."""
        return KERN6 if self.queue == "kernel" else DPU6

    def offloaded(self, *command: str, options: Sequence[str] = ()) -> list[str]:
        """The command under `xts run`."""
        return list(command) if self.queue == "kernel" else ["xts", "run", *options, "--", *command]

    def place(self, role: str) -> str:
        """The namespace of a role."""
        return "kern" if role == "host" and self.queue == "kernel" else role

    def run(self, role: str, *command: str, check: bool = True, timeout: float = 60 * SLOWER, **options: Any) -> str:
        """Runs a command to its end: on `host` under the interposer, elsewhere as it is. Returns its output."""
        line = self.offloaded(*command) if role == "host" else list(command)
        done = self.lab.run(
            self.place(role),
            line,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            **options,
        )
        if check and done.returncode:
            pytest.fail(f"{role}: {' '.join(command)}: exit {done.returncode}\n{done.stdout[-4000:]}\n{self.logs()}")
        return str(done.stdout)

    @contextmanager
    def program(self, role: str, *command: str, name: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
        """A program that runs for the block; its output is in a log that failures show. Ended with its children."""
        log = self.folder / f"{name}.log"
        self._logs.append(log)
        line = self.offloaded(*command) if role == "host" else list(command)
        with log.open("wb") as output:
            process = self.lab.popen(
                self.place(role),
                line,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                **options,
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10 * SLOWER)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def wait_for_port(self, role: str, address: str, port: int, process: subprocess.Popen[bytes] | None = None) -> None:
        """Until somebody answers there, seen from the role's namespace."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET

        def answers() -> bool:
            if process is not None and process.poll() is not None:
                pytest.fail(f"exit {process.returncode} before it listened\n{self.logs()}")
            with self.lab.inside(self.place(role)):
                probe = socket.socket(family, socket.SOCK_STREAM)
            with probe:
                probe.settimeout(1 * SLOWER)
                return probe.connect_ex((address, port)) == 0

        try:
            wait_until(answers, f"port {port} of {address}")
        except pytest.fail.Exception as failure:
            raise pytest.fail.Exception(f"{failure}\n{self.logs()}") from None

    def logs(self) -> str:
        """The ends of all logs."""
        parts = [f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in self._logs if path.exists()]
        return "\n".join([*parts, f"--- proxy\n{self.lab.tail('proxy')}"])

    def number(self, pattern: str, text: str) -> float:
        """The number a pattern's group finds."""
        found = re.search(pattern, text)
        if not found:
            pytest.fail(f"no {pattern!r} in:\n{text[-3000:]}\n{self.logs()}")
        return float(found.group(1))


def ended(pid: int) -> bool:
    """Has a daemon ended? Perhaps nobody has waited for it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@dataclass(frozen=True)
class Site:
    """A web site's files: one large, some small; and a certificate for its addresses."""

    root: Path
    large: Path
    sha256: str
    certificate: Path
    key: Path


Program = AbstractContextManager[subprocess.Popen[bytes]]


def nginx(
    bed: Bed, role: str, site: Site, *, name: str, workers: int = 1, daemon: str = "off"
) -> tuple[list[str], Path]:
    """nginx's command line and pid file: ports 80 and 443 on all addresses."""
    program = need("nginx")
    folder = bed.folder / name
    folder.mkdir(exist_ok=True)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"daemon {daemon}; user root; worker_processes {workers}; pid {folder}/nginx.pid; "
        f"error_log {folder}/error.log info;\n"
        f"events {{ worker_connections 1024; }}\n"
        f"http {{ access_log off; {temporary} server {{\n"
        f"listen 80; listen [::]:80; listen 443 ssl; listen [::]:443 ssl; root {site.root};\n"
        f"keepalive_requests 100000; ssl_certificate {site.certificate}; ssl_certificate_key {site.key};\n"
        f"location /pid {{ return 200 '$pid\\n'; }} }} }}\n"
    )
    return [program, "-p", str(folder), "-c", str(configuration)], folder / "nginx.pid"
