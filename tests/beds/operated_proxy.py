"""A running xts-proxy as a process of its own, for tests of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xts_lab.loopback import ALLOW_LOOPBACK
from xts_messages.attaching.attach import Attachment, attach
from xts_proxy.status import control_socket
from xts_proxy.supervisor import sandbox

from beds.metrics import scrape
from beds.patience import SLOWER
from beds.ready import readable
from beds.scripted_host import ScriptedHost

PROXY = [sys.executable, "-m", "xts_proxy"]
START_S = 10.0 * SLOWER
#: For running(), where nobody asks for metrics: no process for them, and nothing of what only that imports.
NO_METRICS: dict[str, Any] = {"metrics": "off"}


@dataclass
class Proxy:
    """A running xts-proxy, its files in a directory of its own."""

    process: subprocess.Popen[str]
    directory: Path
    log: Path

    @property
    def endpoint(self) -> str:
        return str(self.directory / "endpoint.sock")

    def status(self, *, connections: bool = False) -> dict[str, Any]:
        return control_socket.ask(str(self.directory / "proxy.sock"), control_socket.Question("status", connections))

    def pid_of(self, name: str) -> int:
        """Of one of its other processes: "xts-workers", "xts-keys"."""
        return int(self.status()["proxy"]["processes"][name])

    def metrics(self) -> str:
        """What it answers at its metrics socket, with the head of HTTP."""
        return scrape(self.directory / "metrics.sock")

    def write_config(self, text: str = "", **proxy: Any) -> Path:
        return write_config(self.directory, text, **proxy)

    def hang_up(self, counted: str) -> str:
        """SIGHUP, and waits until it is carried out: "taken" or "refused". What was logged for it."""
        before = self.status()["proxy"]["reloads"][counted]
        logged = len(self.log.read_text())
        self.process.send_signal(signal.SIGHUP)
        wait(lambda: self.status()["proxy"]["reloads"][counted] == before + 1, f"a reload that is {counted}")
        return self.log.read_text()[logged:]

    @contextlib.contextmanager
    def host(self) -> Iterator[tuple[Attachment, ScriptedHost]]:
        """An attached process with its link up."""
        attachment = attach(self.endpoint, program="test")
        try:
            yield attachment, ScriptedHost(attachment.queue, attachment.epoch).open()
        finally:
            attachment.close()

    def ended(self, timeout_s: float = 30 * SLOWER) -> int:
        return self.process.wait(timeout_s)


def user_to_become() -> str:
    """Whom the proxy becomes when root starts it."""
    account = sandbox.user_to_become("")
    assert account
    return account.pw_name


def wait(reached: Callable[[], Any], what: str, timeout_s: float = 30.0 * SLOWER) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline, f"no {what} in {timeout_s} s"
        time.sleep(0.005)


def write_config(directory: Path, text: str = "", **proxy: Any) -> Path:
    values = {
        "endpoint": str(directory / "endpoint.sock"),
        "control": str(directory / "proxy.sock"),
        "metrics": f"unix:{directory / 'metrics.sock'}",
        "log_level": "debug",
        "drain_timeout_s": 5,
    } | proxy
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    path = directory / "proxy.toml"
    path.write_text("\n".join(["[proxy]", *lines, text, ALLOW_LOOPBACK]))
    return path


@contextlib.contextmanager
def running(
    directory: Path,
    text: str = "",
    environment: dict[str, str] | None = None,
    under: Sequence[str] = (),
    **proxy: Any,
) -> Iterator[Proxy]:
    """under: a program that runs it, with its arguments."""
    config = write_config(directory, text, **proxy)
    log = directory / "log"
    if os.geteuid() == 0 and "user" not in proxy:
        shutil.chown(directory, user_to_become())  # as an operator does with /run/xts: its sockets go when it does
    ready, told = os.pipe()
    with log.open("a") as stderr:
        process = subprocess.Popen(
            [*under, *PROXY, "--config", str(config), "--ready-fd", str(told)],
            stderr=stderr,
            pass_fds=[told],
            text=True,
            env=os.environ | (environment or {}),
        )
    os.close(told)
    try:
        assert readable(ready, START_S), log.read_text()
        assert os.read(ready, 64) == b"ready\n", log.read_text()
        yield Proxy(process, directory, log)
    finally:
        os.close(ready)
        if process.poll() is None:
            process.kill()
        process.wait()
