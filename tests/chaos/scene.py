"""A lab with agent, proxy and loads, and its processes by their names, over upgrades and restarts."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from beds import process_tree
from beds.authority import Authority, tls_tables
from beds.metrics import scrape
from beds.operated_proxy import wait
from beds.restarts import RULES
from beds.versions import TODAY, Version
from xts_lab import netns, topology
from xts_lab.lab import Lab, LabError
from xts_lab.running_programs import Record
from xts_proxy.status import control_socket

from chaos.loads import KINDS, Load, Seen
from chaos.ways import Way

WAIT_S = 20.0
#: So that a restart does not wait for connections that stay.
SETTINGS = "[proxy]\ndrain_timeout_s = 1\n"
#: So that no crash is one too many. Older versions do not know this.
MANY_CRASHES = "crashes_max = 1000\n"


class Scene:
    def __init__(self, lab: Lab, folder: Path, versions: Sequence[Version] = (TODAY,)) -> None:
        """`versions`: of proxy and agent; this one, and the other that they may be of."""
        self.lab, self.folder = lab, folder
        self._versions = versions
        self.proxy_version = self.agent_version = versions[0]
        self.seen: list[Seen] = []
        self.loads: list[Load] = []
        self._proxy = "proxy"  # the name of the running one's record
        self._count = 0

    # --- the proxy --------------------------------------------------------------------------------------------

    def proxy(self) -> Record:
        record = self.lab.record(self._proxy)
        assert record, "the proxy was not started"
        return record

    def _spawn(self, *verb: str) -> None:
        self._count += 1
        name = f"proxy-{self._count}"
        command = self.proxy_version.program("xts_proxy", "--config", str(self.lab.directory / "proxy.toml"), *verb)
        self.lab.spawn("dpu", command, name=name, ready=True)
        self._proxy = name

    def other(self, version: Version) -> Version:
        return next((one for one in self._versions if one is not version), version)

    def start_proxy(self) -> None:
        self._spawn()

    def restart(self) -> None:
        self.end_proxy(signal.SIGTERM)
        self.start_proxy()

    def upgrade(self) -> None:
        before = self.proxy()
        self._spawn("upgrade")
        wait(lambda: not before.alive, "end of the proxy before", WAIT_S)

    def try_upgrade(self) -> bool:
        """False: it has failed, and the running proxy goes on."""
        before = self.proxy()
        try:
            self.upgrade()
        except LabError:
            assert before.alive, "an upgrade has failed, and neither proxy runs"
            return False
        return True

    def end_proxy(self, number: signal.Signals) -> None:
        os.kill(self.proxy().pid, number)
        self.proxy_ended()

    def proxy_ended(self) -> None:
        wait(lambda: not self.proxy().alive and not self.proxy().members(), "end of the proxy", WAIT_S)

    def reload(self) -> None:
        def taken() -> int:
            status = control_socket.ask(str(self.lab.control), control_socket.Question("status"))
            return int(status["proxy"]["reloads"]["taken"])

        before = taken()
        os.kill(self.proxy().pid, signal.SIGHUP)
        wait(lambda: taken() > before, "reload", WAIT_S)

    def ask(self) -> None:
        """What people ask of a proxy when something is wrong. It may refuse each."""
        status = control_socket.Question("status", connections=True)
        for ask in (
            lambda: control_socket.ask(str(self.lab.control), status, 2.0),
            lambda: control_socket.reload(str(self.lab.control)),
            lambda: scrape(self.lab.metrics_path("proxy")),
            lambda: os.kill(self.proxy().pid, signal.SIGHUP),
        ):
            with suppress(OSError):
                ask()

    # --- the agent --------------------------------------------------------------------------------------------

    def agent(self) -> Record:
        record = self.lab.record("agent")
        assert record, "the agent was not started"
        return record

    def end_agent(self, number: signal.Signals) -> None:
        record = self.agent()
        os.kill(record.pid, number)
        wait(lambda: not record.alive, "end of the agent", WAIT_S)

    def start_agent(self) -> None:
        self.lab.start_agent(python=self.agent_version.python)

    def restart_agent(self) -> None:
        self.end_agent(signal.SIGTERM)  # the lab's own way to end it would end the relay, too, which is to stay
        self.start_agent()

    def agents_child(self, name: str) -> int:
        """Of this agent, or the relay of one before it, which outlives that."""
        found: list[int] = []

        def is_there() -> bool:
            here = netns.processes_in(topology.namespace_of(self.lab.name, "host"))
            found[:] = process_tree.named(self.agent().pid, name) or process_tree.of(here, name)
            return len(found) == 1

        wait(is_there, name, WAIT_S)
        return found[0]

    # --- processes --------------------------------------------------------------------------------------------

    def pids_of(self, name: str) -> list[int]:
        if name == "agent":
            return [self.agent().pid]
        return [self.proxy().pid] if name == "supervisor" else [self.pid_of(name)]

    def pid_of(self, name: str, other_than: int = 0) -> int:
        return process_tree.one(self.proxy().pid, name, WAIT_S, other_than)

    def highest_descriptor(self, pid: int) -> int:
        return max(int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir())

    def descriptors(self) -> dict[str, int]:
        """How many each process of the product has, that has run since the lab was raised or the proxy started."""
        found = {}
        records = [self.proxy()] + ([self.agent()] if self.lab.settings.queue == "afxdp" else [])
        for record in records:
            for pid in record.members():
                try:
                    comm = Path(f"/proc/{pid}/comm").read_text().strip()
                    found[f"{comm} ({pid})"] = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
                except OSError:
                    continue  # it has just ended
        return found


@contextmanager
def scene(way: Way, folder: Path, pause_s: float, versions: Sequence[Version] = (TODAY,)) -> Iterator[Scene]:
    """Loads are running when it begins. `folder`: for what programs say, and certificates. `pause_s`: of loads, between
    an answer and the next request."""
    (folder / "rules").write_text(RULES)
    tables = tls_tables(folder, Authority())
    lab = Lab(f"c{os.getpid()}{way.name}", queue=way.queue, tables=tables, metrics=True, **way.settings)
    lab.up()
    made = Scene(lab, folder, versions)
    try:
        path, more = lab.directory / "proxy.toml", MANY_CRASHES if len(versions) == 1 else ""
        path.write_text(path.read_text().replace("[proxy]\n", SETTINGS + more, 1))
        made.restart()  # which crashes_max needs
        for kind in KINDS:
            made.loads.append(Load(lab, kind, folder, made.seen, pause_s))
        yield made
    finally:
        for load in made.loads:
            try:
                load.kill()
            except (ProcessLookupError, subprocess.SubprocessError):
                continue
        for log in lab.directory.glob("*.log"):
            (folder / log.name).write_bytes(log.read_bytes())
        lab.down()
