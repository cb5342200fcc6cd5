"""The table of dpu_proxy/SECURITY.md, "When a process ends": each process of agent and proxy is killed under traffic.
What is lost, and who comes back, is compared with its row."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from beds import process_tree
from beds.echo_server import ECHO
from beds.lab import raise_or_skip
from beds.metrics import scrape
from beds.ready import readable
from xts_lab.lab import Lab
from xts_lab.wire import Wire

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

PAGE = Path(__file__).parents[3] / "dpu_proxy/SECURITY.md"
LINE_S = 20.0
#: For each line: one request on its connection, of which it says how it went; when it was lost, the next line makes
#: another one.
CLIENT = """
import sys
import xts_socket as socket
s = None
for _ in sys.stdin:
    try:
        if s is None:
            s = socket.create_connection(("198.18.0.2", int(sys.argv[1])), 15)
        s.sendall(b"echo")
        assert s.recv(4, socket.MSG_WAITALL) == b"echo"
        print("kept", flush=True)
    except OSError as error:
        s = None
        print("lost", error, flush=True)
"""


@dataclass(frozen=True)
class Row:
    process: str
    noticed_by: str
    started_by: str
    own: str
    relayed: str
    back: str

    @property
    def program(self) -> str:
        """The program of the lab to which the process belongs."""
        own = "xts-proxy", "xts-workers", "xts-understudy", "xts-keys"
        proxys = (*own, "xts-opener of the proxy", "xts-metrics of the proxy")
        return "proxy" if self.process in proxys else "agent"

    @property
    def name(self) -> str:
        return self.process.split()[0]


def rows() -> list[Row]:
    text = PAGE.read_text()
    section = text[text.index("### When a process ends") :].split("\n## ")[0]
    cells = [re.split(r" *\| *", line.strip("| ")) for line in section.splitlines() if line.startswith("| `")]
    return [Row(*(cell.replace("`", "") for cell in row)) for row in cells]


ROWS = rows()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """One queue for a process, one for the relay."""
    raised = raise_or_skip("afxdp", "ends", queues=2, relayed_max=8, metrics=True)
    try:
        yield raised
    finally:
        assert not raised.down()


@dataclass
class Client:
    process: subprocess.Popen[str]

    def ask(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def told(self) -> str:
        assert self.process.stdout
        assert readable(self.process.stdout, LINE_S), f"nothing in {LINE_S:g} s"
        line = self.process.stdout.readline()
        print(line, end="")  # shown if the test fails, as is the proxy's log: why it was lost
        return line.split(" ")[0].strip()

    def request(self) -> str:
        self.ask()
        return self.told()

    def works_again(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.request() != "kept":
            assert time.monotonic() < deadline, f"no connection in {seconds:g} s"


@dataclass
class Bed:
    lab: Lab
    port: str
    own: Client
    relayed: Client
    relay: int = 0  # the last one that was seen: without its keeper, or its agent, it is nobody's child

    def root(self, row: Row) -> int:
        record = self.lab.record(row.program)
        assert record
        return record.pid

    def pid(self, row: Row) -> int:
        """The process of a row."""
        record = self.lab.record("agent")
        assert record
        self.relay = next(iter(process_tree.named(record.pid, "xts-relay")), self.relay)
        if row.name == f"xts-{row.program}":
            return self.root(row)
        assert self.relay
        return self.relay if row.name == "xts-relay" else process_tree.one(self.root(row), row.name)


@pytest.fixture(scope="module")
def bed(lab: Lab) -> Iterator[Bed]:
    def started(role: str, *command: str) -> subprocess.Popen[str]:
        python = ["python", "-c", *command]
        made = stack.enter_context(lab.popen(role, python, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        stack.callback(made.kill)
        return made

    with ExitStack() as stack:
        server = started("net", ECHO)
        assert server.stdout
        port = server.stdout.readline().strip()
        clients = []
        for _ in range(2):  # one after the other: the first has the queue
            clients.append(Client(started("host", CLIENT, port)))
            clients[-1].works_again(20)
        yield Bed(lab, port, *clients)


def has_ended(pid: int) -> bool:
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # ProcessLookupError: it was there when the file was opened
        return True


def wait_end(pid: int) -> None:
    deadline = time.monotonic() + 10
    while not has_ended(pid):
        assert time.monotonic() < deadline, f"process {pid} has not ended"
        time.sleep(0.01)


def test_every_process_has_a_row(bed: Bed) -> None:
    """Also those that are added later."""
    named = {(row.program, row.name) for row in ROWS}
    for program in ("agent", "proxy"):
        record = bed.lab.record(program)
        assert record
        running = {f"xts-{program}", *(name for name, _ in process_tree.below(record.pid))}
        assert {name for of, name in named if of == program} == running


@pytest.mark.parametrize("row", ROWS, ids=[row.process for row in ROWS])
def test_a_process_ends(bed: Bed, row: Row) -> None:
    lab = bed.lab
    if row.name == "xts-workers" and lab.settings.wire is Wire.SWITCH:
        pytest.skip("where frames have heads, the proxy ends with its workers (PROTOCOL.md, Crash)")
    for client in (bed.own, bed.relayed):
        client.works_again(20)
    parent, killed = bed.root(row), bed.pid(row)
    time_s = time.monotonic()
    os.kill(killed, signal.SIGKILL)
    if row.started_by == "the service manager":
        wait_end(killed)
        wait_end(parent)  # also where another one has noticed it
        (lab.start_agent if row.program == "agent" else lab.start_proxy)()
    elif row.started_by.endswith("when it is needed"):
        wait_end(killed)
        assert bed.root(row) == parent, "the program goes on"
        assert not set(process_tree.named(parent, row.name)) - {killed}  # which may not be collected yet
    else:
        process_tree.one(bed.root(row), row.name, other_than=killed)
        assert bed.root(row) == parent, "the program goes on"
        print(f"{row.process} is back after {time.monotonic() - time_s:.2f} s")
    seen = {"own": bed.own.request(), "relayed": bed.relayed.request()}
    print(lab.log_path("proxy").read_text()[-4000:])
    assert seen == {"own": row.own, "relayed": row.relayed}
    for client in (bed.own, bed.relayed):
        client.works_again(20)
    assert f"xts_{row.program}" in scrape(lab.metrics_path(row.program))
    if row.started_by.endswith("when it is needed"):  # for the rows after it
        lab.stop_program(row.program)
        lab.start_proxy()


def test_after_the_keeper_a_relay_comes_again(bed: Bed) -> None:
    """Neither of them is needed for the other to come back."""
    record = bed.lab.record("agent")
    assert record
    for _ in range(2):
        bed.relay = next(iter(process_tree.named(record.pid, "xts-relay")), bed.relay)
        ended = {"xts-keeper": process_tree.one(record.pid, "xts-keeper"), "xts-relay": bed.relay}
        for name, pid in ended.items():
            assert pid
            process_tree.kill(pid)
            process_tree.one(record.pid, name, other_than=pid)
        bed.relayed.works_again(20)


@contextmanager
def standing_still(pids: Iterable[int]) -> Iterator[None]:
    stopped = list(pids)
    for pid in stopped:
        process_tree.stop(pid)
    try:
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("seconds", [0.2, pytest.param(60, marks=[pytest.mark.long, pytest.mark.timeout(300)])])
def test_what_stands_still_ends_nothing(bed: Bed, seconds: float) -> None:
    """All that carry no data at once: they are not needed meanwhile. Then those that do, for less than XTS_DEAD_MS; and
    the programs, for however long."""
    clients = (bed.own, bed.relayed)
    for client in clients:
        client.works_again(20)
    carry = {bed.pid(row) for row in ROWS if row.name in ("xts-workers", "xts-relay")}
    others = {bed.pid(row) for row in ROWS if row.name not in ("xts-workers", "xts-relay")}
    with standing_still(others):
        time.sleep(seconds)
        assert [client.request() for client in clients] == ["kept", "kept"]
    for stopped in (carry, {client.process.pid for client in clients}):
        with standing_still(stopped):
            for client in clients:
                client.ask()
            time.sleep(min(seconds, 2.0) if stopped is carry else seconds)
        assert [client.told() for client in clients] == ["kept", "kept"]
