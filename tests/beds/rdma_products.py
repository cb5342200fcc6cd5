"""An agent and a proxy over RDMA, as products: processes of their own at the two ends of a wire between software
devices of the virtual machine (rdma_wire.py), and programs under `xts run`.

The proxy connects where the programs say, on this machine's loopback.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xts_lab.loopback import ALLOW_LOOPBACK
from xts_messages.attaching.attach import Listing, list_attachments
from xts_proxy.status import control_socket

from beds.patience import SLOWER
from beds.rdma_wire import Wire
from beds.ready import readable

#: The processor is emulated, and may have half a core: imports take seconds, and a start a minute or two.
PATIENCE_S = 48.0 * SLOWER
XTS = Path(sys.executable).with_name("xts")
PORT = 8600


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> Any:
    """The condition's first true value."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)
    return found


@dataclass
class Service:
    """An agent or a proxy: how it is started, its process, and its log, which goes on over restarts."""

    command: list[str]
    log: Path
    process: subprocess.Popen[str] | None = None

    def start(self, *more: str) -> None:
        """Starts it, with `more` arguments. Returns when it serves."""
        ready, told = os.pipe()
        try:
            with self.log.open("a") as log:
                words = [*self.command, *more, "--ready-fd", str(told)]
                self.process = subprocess.Popen(words, pass_fds=[told], stdout=log, stderr=log, text=True)
            os.close(told)
            assert readable(ready, PATIENCE_S) and os.read(ready, 64), self.said()
        finally:
            os.close(ready)

    def said(self) -> str:
        """Its log so far."""
        return self.log.read_text() if self.log.exists() else ""

    def until_said(self, text: str, after: int = 0) -> str:
        """Waits for this text behind so many characters of the log; returns what is behind them."""
        try:
            until(lambda: text in self.said()[after:], repr(text))
        except AssertionError as late:
            raise AssertionError(f"{late}:\n{self.said()[after:]}") from None
        return self.said()[after:]

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Ends its first process; returns its status."""
        assert self.process
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@dataclass
class Products:
    """Both, in a folder. `start()` first."""

    wire: Wire
    folder: Path
    proxy_extra: str = ""
    rdma: dict[str, Any] = field(default_factory=dict)
    agent_options: tuple[str, ...] = ()
    xts: Path = XTS  # of the installation that programs are run with

    def __post_init__(self) -> None:
        self.endpoint = str(self.folder / "agent.sock")
        self.control = str(self.folder / "proxy.sock")
        host, dpu = self.wire.host, self.wire.dpu
        rdma = {"address": dpu.address, "port": PORT, "hosts": [host.address]} | self.rdma
        lines = ["[proxy]", 'queue = "rdma"', f'interface = "{dpu.interface}"', f'control = "{self.control}"']
        self.connections = self.folder / "connections.jsonl"  # how each has ended
        lines += ['metrics = "off"', "relayed_max = 8", 'log_level = "debug"', "drain_timeout_s = 1"]
        lines += [f'connection_log = "{self.connections}"', self.proxy_extra]
        lines += ["[rdma]", *(f"{key} = {json.dumps(value)}" for key, value in rdma.items()), ALLOW_LOOPBACK]
        config = self.folder / "proxy.toml"
        config.write_text("\n".join(lines))
        self.folder.chmod(0o777)  # both become other users, and make and remove sockets here
        start = [sys.executable, "-m"]
        self.proxy = Service([*start, "xts_proxy", "--config", str(config)], self.folder / "proxy.log")
        agent = ["xts_agent", "--queue", "rdma", "--interface", host.interface, "--rdma-peer", dpu.address]
        agent += ["--rdma-port", str(PORT), "--endpoint", self.endpoint, "--verbose"]
        self.agent = Service([*start, *agent, *self.agent_options], self.folder / "agent.log")

    def start(self) -> None:
        """Both, and the connection between them."""
        self.proxy.start()
        self.agent.start()
        self.until_up()

    def upgrade(self) -> None:
        """Another proxy takes over. Returns when the one before has ended."""
        before = self.proxy.process
        assert before
        self.proxy.start("upgrade")
        assert before.wait(PATIENCE_S) == 0, self.log_of_both()

    def fails_to_upgrade(self) -> None:
        """Another proxy, which has heard what it is granted, cannot open a file. Returns when it has ended."""
        config, key = self.folder / "other.toml", "drain_timeout_s = 1"
        text = (self.folder / "proxy.toml").read_text()
        config.write_text(text.replace(key, f'{key}\nconnection_log = "/nowhere/log"'))
        words = [*self.proxy.command[:-1], str(config)]
        with self.proxy.log.open("a") as log:
            done = subprocess.run([*words, "upgrade"], stderr=log, timeout=PATIENCE_S, check=False)
        assert done.returncode, self.log_of_both()

    def until_up(self, after: int = 0) -> None:
        """The agent's relay has its link to the proxy; `after` so many characters of the agent's log."""
        self.agent.until_said("the relay is up", after)

    def status(self) -> dict[str, Any]:
        """The proxy's."""
        return control_socket.ask(self.control, control_socket.Question("status", True), PATIENCE_S)

    def queue(self, number: int = 0) -> dict[str, Any]:
        """What the proxy says of a queue."""
        found: dict[str, Any] = self.status()["rdma"][number]
        return found

    def attached(self) -> list[Listing]:
        """The processes that the agent serves."""
        found = list(list_attachments(self.endpoint))
        for listing in found:
            os.close(listing.status_fd)
        return found

    def run(self, *command: str, user: int | None = None, **options: Any) -> subprocess.Popen[str]:
        """A program under `xts run`, with loopback offloaded, too. It fails where it is not offloaded."""
        words = [str(self.xts), "run", "--strict", "--", *command]
        who: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        # The device repeats what is lost after a second, several times: other tests of it say when a program gives up.
        patient = {"XTS_DEAD_MS": str(int(PATIENCE_S * 1000))}
        environment = os.environ | {"XTS_ENDPOINT": self.endpoint, "XTS_LOOPBACK": "1"} | patient
        return subprocess.Popen(words, env=environment, **how, **who, **options)

    def log_of_both(self) -> str:
        """For a test that has failed."""
        ended = self.connections.read_text() if self.connections.exists() else ""
        return f"--- agent\n{self.agent.said()}\n--- proxy\n{self.proxy.said()}\n--- connections\n{ended}"

    def stop(self) -> None:
        """Ends both, and relays that have outlived the agent."""
        for service in (self.agent, self.proxy):
            if service.process and service.process.poll() is None:
                service.kill(signal.SIGTERM)


@contextlib.contextmanager
def products(wire: Wire, *, start: bool = True, **how: Any) -> Iterator[Products]:
    """Both, running and connected, unless they are not to `start`. In a folder that others reach, too."""
    with tempfile.TemporaryDirectory(prefix="xts-rdma-") as folder:
        made = Products(wire, Path(folder), **how)
        try:
            if start:
                made.start()
            yield made
        finally:
            made.stop()
