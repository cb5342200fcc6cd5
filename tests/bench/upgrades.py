"""Measures what programs notice of `xts-proxy upgrade`: the slowest request that was outstanding or began while the
running proxy handed over, next to the slowest of equally long pieces without an upgrade; the time that handing over
takes with idle connections; and transfers with upgrades in the middle, of which each byte is checked.

Requests go out at a fixed rate, whatever the answers do (native/workloads_rate.c): a share of what the same connections
reach when each answer is followed by the next request, or of the worker's core (--of-worker). The columns "worker" and
"machine" say what that is of the worker's core, and of all cores. The hand-over is the time from the running proxy's
line that the new one is ready, before which nothing moves, to its line that all is the new one's. The new proxy starts
before that, and takes processor time from the same cores: "whole upgrade" is from the command to the end of the old
process.
Behind the table is what proxy and program had at the beginning and at the end: a soak shows whether that grows.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from beds.dialogues import peer_address
from beds.upgrades import Upgrading, upgrading
from rich.console import Console
from rich.table import Table
from xts_lab.free_ports import free_ports
from xts_messages.terminal import terminal
from xts_messages.terminal.command_line import CommandLine
from xts_messages.terminal.standard_output import ends_with_reader
from xts_proxy.status import control_socket

from . import certificates, footprint
from .certificates import TRUST_NAME, Certificates
from .footprint import Footprint
from .native_programs import TOP, Programs, build

KINDS = ("shm", "afxdp", "switch", "relay")
GOAL_MS, GOAL_RATIO = 50.0, 2.0
_PORTS = 3  # the peer's services that are used
_ECHO, _CHECK = 2, 4
_TLS_SHIFT = 300
_WARM_S = 1.0
_CLOSED_LOOP_S = 2.0
_PAUSE_S = 0.5
_LOGGED = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) xts-proxy INFO upgrade: (.*)$", re.MULTILINE)
_READY, _GIVEN = "the new proxy is", "are the new proxy's"
_EXAMPLE = """\
example, the goals of an upgrade:
  PYTHONPATH=tests .venv/bin/python -m bench.upgrades --upgrades 50 --connections 1000 --idle 10000 --transfer-mib 1024
a soak:
  PYTHONPATH=tests .venv/bin/python -m bench.upgrades --kind shm --upgrades 1000 --idle 0 --transfer-mib 0
Needs root for all but shm, and two cores that nothing else uses.
"""


@dataclass(frozen=True, slots=True)
class Span:
    """A time, in seconds of the monotonic clock."""

    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s

    def earlier(self, by_s: float) -> Span:
        return Span(self.begin_s - by_s, self.end_s - by_s)


@dataclass(frozen=True, slots=True)
class Handed:
    """One upgrade."""

    whole: Span
    hand_over: Span


class Requests:
    """The slowest of each millisecond, by when they began."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self._rows = [(begin_ms / 1e3, slowest_us / 1e6, count) for begin_ms, slowest_us, count in rows]

    @property
    def count(self) -> int:
        return sum(count for _, _, count in self._rows)

    def slowest_s(self, span: Span) -> float:
        """Of those that were outstanding, or began, in this time; 0: none was."""
        took = (
            slowest_s
            for begin_s, slowest_s, _ in self._rows
            if begin_s <= span.end_s and begin_s + 0.001 + slowest_s >= span.begin_s
        )
        return max(took, default=0.0)


@dataclass
class Figures:
    """Of one kind of queue. Times are in ms."""

    rate: float = 0.0
    worker_load: float = 0.0  # what the worker's thread took of a core without an upgrade, without polling
    machine_load: float = 0.0  # what all cores had to do then, of all cores
    requests: int = 0
    slowest: list[float] = field(default_factory=list)
    without: list[float] = field(default_factory=list)
    whole_slowest: list[float] = field(default_factory=list)
    hand_over: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    idle_hand_over: list[float] = field(default_factory=list)
    transfer_upgrades: int = 0
    transferred_mib: int = 0
    proxies: list[Footprint] = field(default_factory=list)  # after each upgrade under requests
    programs: list[Footprint] = field(default_factory=list)

    def met(self) -> int:
        """How many upgrades reached the goal."""
        limits = [max(GOAL_MS, GOAL_RATIO * without) for without in self.without]
        return sum(took <= limit for took, limit in zip(self.slowest, limits, strict=True))


class Bench:
    """A place of this kind, with the peer in its network."""

    def __init__(self, kind: str, programs: Programs, tls: Certificates | None, stack: ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-upgrades-")))
        folder.chmod(0o755)
        tables = tls.tables() if tls else ""
        self.where: Upgrading = stack.enter_context(upgrading(kind, folder, tables))
        self._client = programs.client_xts_tls if tls else programs.client_xts
        self._address = peer_address(self.where.place)
        with self.where.place.network():
            self._port = _port_with_room(self._address)
            command = [str(programs.peer), self._address, str(self._port), *([str(tls.ecdsa)] if tls else [])]
            peer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        stack.callback(peer.wait)
        stack.callback(peer.kill)
        assert peer.stdout
        if peer.stdout.readline() != "ready\n":
            raise RuntimeError("the peer did not start")
        if tls:
            self._port += _TLS_SHIFT

    @contextmanager
    def client(self, workload: str, service: int, **options: object) -> Iterator[subprocess.Popen[str]]:
        given = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        command = [str(self._client), workload, "--address", self._address, "--port", str(self._port + service), *given]
        with self.where.place.program(
            ["-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])", *command],
            {"BENCH_TRUST": TRUST_NAME},
            interposed=False,
        ) as process:
            yield process

    def worker_s(self) -> float:
        """What its threads have taken of a core, without polling."""
        status = control_socket.ask(self.where.control(), control_socket.Question("status"))
        return sum(float(worker["cpu_ns"] - worker["poll_ns"]) for worker in status["workers"]) / 1e9

    def upgrade(self) -> Handed:
        log = self.where.log_path()
        written = log.stat().st_size
        begin = time.monotonic()
        self.where.upgrade()
        end = time.monotonic()
        with log.open() as lines:
            lines.seek(written)
            return Handed(Span(begin, end), hand_over(lines.read()))


def _port_with_room(address: str) -> int:
    """The first of ports that follow each other; those of TLS are further up, and nobody's."""
    while True:
        (first,) = free_ports(1, address)
        if first + _TLS_SHIFT + 16 < 65536:
            return first


def machine_s() -> tuple[float, float]:
    """What all cores together have worked, and what they could have."""
    numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = numbers[3] + numbers[4]
    return sum(numbers) - idle, sum(numbers)


def hand_over(log: str) -> Span:
    """What the running proxy has written in this upgrade. RuntimeError: it is not all there."""
    clocks_s = time.time() - time.monotonic()
    times = {_READY: 0.0, _GIVEN: 0.0}
    for when, text in _LOGGED.findall(log):
        for what in times:
            if what in text:
                times[what] = datetime.datetime.strptime(when, "%Y-%m-%d %H:%M:%S,%f").timestamp() - clocks_s
    if not all(times.values()):
        raise RuntimeError(f"the running proxy has not handed over:\n{log}")
    return Span(times[_READY], times[_GIVEN])


def said(process: subprocess.Popen[str], what: str) -> dict[str, Any]:
    """The next line of a client. RuntimeError: it has failed."""
    assert process.stdout and process.stderr
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{what}: {process.stderr.read().strip()}")
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def _warm(bench: Bench, figures: Figures) -> None:
    time.sleep(_WARM_S / 2)
    worker_s, (busy, could), since = bench.worker_s(), machine_s(), time.monotonic()
    time.sleep(_WARM_S)
    figures.worker_load = (bench.worker_s() - worker_s) / (time.monotonic() - since)
    now_busy, now_could = machine_s()
    figures.machine_load = (now_busy - busy) / (now_could - could)


def measure_requests(bench: Bench, arguments: argparse.Namespace, figures: Figures, say: Console) -> None:
    with bench.client("requests", _ECHO, connections=arguments.connections, seconds=_CLOSED_LOOP_S) as process:
        operations = said(process, "requests")["operations"]
    figures.rate = arguments.load * operations / _CLOSED_LOOP_S
    if arguments.of_worker:
        figures.rate = arguments.load * operations / bench.worker_s()
    handed: list[Handed] = []
    with bench.client("requests-at-rate", _ECHO, connections=arguments.connections, rate=int(figures.rate)) as process:
        said(process, "connections")
        _warm(bench, figures)
        for number in range(arguments.upgrades):
            handed.append(bench.upgrade())
            whole, part = handed[-1].whole, handed[-1].hand_over
            say.print(f"upgrade {number + 1}: {part.length_s * 1e3:,.0f} of {whole.length_s * 1e3:,.0f} ms")
            figures.proxies.append(footprint.of_tree(bench.where.pid()))
            figures.programs.append(footprint.of_tree(process.pid))
            time.sleep(max(_PAUSE_S, 3 * part.length_s))  # there is a piece without one to compare with
        process.terminate()
        requests = Requests(said(process, "requests at a rate")["requests"])
    figures.requests = requests.count
    for one in handed:
        later = one.hand_over.earlier(-(one.whole.end_s - one.hand_over.begin_s) - one.hand_over.length_s)
        figures.slowest.append(requests.slowest_s(one.hand_over) * 1e3)
        figures.without.append(requests.slowest_s(later) * 1e3)
        figures.whole_slowest.append(requests.slowest_s(one.whole) * 1e3)
        figures.hand_over.append(one.hand_over.length_s * 1e3)
        figures.whole.append(one.whole.length_s * 1e3)


def measure_idle(bench: Bench, arguments: argparse.Namespace, figures: Figures, say: Console) -> None:
    with bench.client("idle", _ECHO, connections=arguments.idle) as process:
        assert process.stdin
        for state in ("attached", "ready"):
            if said(process, "idle connections")["state"] != state:
                raise RuntimeError(f"idle connections: not {state}")
            if state == "attached":
                process.stdin.write("\n")
                process.stdin.flush()
        for number in range(arguments.idle_upgrades):
            figures.idle_hand_over.append(bench.upgrade().hand_over.length_s * 1e3)
            say.print(f"{arguments.idle} idle connections, upgrade {number + 1}: {figures.idle_hand_over[-1]:,.0f} ms")
        process.stdin.write("\n")
        process.stdin.flush()
        if said(process, "idle connections")["operations"] != arguments.idle:
            raise RuntimeError("idle connections: not all have answered")


def measure_transfer(bench: Bench, arguments: argparse.Namespace, figures: Figures, say: Console) -> None:
    with bench.client("check", _CHECK, check_bytes=arguments.transfer_mib << 20) as process:
        while process.poll() is None:
            bench.upgrade()
            figures.transfer_upgrades += 1
            say.print(f"transfer: upgrade {figures.transfer_upgrades}")
        out, complaint = process.communicate()
        if process.returncode:
            raise RuntimeError(f"transfer: {complaint.strip()}")
        json.loads(out)
    figures.transferred_mib = arguments.transfer_mib


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f}–{max(values):,.0f})" if values else "–"


def show(found: dict[str, Figures], console: Console) -> None:
    table = Table(title="ms: median (range)", title_justify="left")
    columns = (
        "kind",
        "requests/s",
        "worker",
        "machine",
        "slowest in a hand-over",
        "as long without",
        f"≤ {GOAL_MS:g} ms or twice that",
    )
    for title in (*columns, "in the whole upgrade", "hand-over", "whole upgrade", "idle: hand-over", "transferred"):
        table.add_column(title, justify="left" if title == "kind" else "right")
    for kind, one in found.items():
        table.add_row(
            kind,
            f"{one.rate:,.0f}",
            f"{one.worker_load:.0%}",
            f"{one.machine_load:.0%}",
            _median(one.slowest),
            _median(one.without),
            f"{one.met()} of {len(one.slowest)}",
            _median(one.whole_slowest),
            _median(one.hand_over),
            _median(one.whole),
            _median(one.idle_hand_over),
            f"{one.transferred_mib:,} MiB, {one.transfer_upgrades} upgrades" if one.transferred_mib else "–",
        )
    console.print(table)
    for kind, one in found.items():
        for what, had in (("proxy", one.proxies), ("program", one.programs)):
            if grown := footprint.growth(had):
                console.print(f"{kind}, {what}: {grown}")


def _parser() -> argparse.ArgumentParser:
    found = CommandLine(
        prog="python -m bench.upgrades",
        description=__doc__,
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    add("--kind", choices=KINDS, nargs="+", default=list(KINDS), help="of queue (default: all)")
    add("--tls", action="store_true", help="all connections have TLS in the proxy")
    add("--upgrades", type=int, default=50, metavar="N", help="under requests (default: %(default)s)")
    add("--connections", type=int, default=1000, metavar="N", help="of the requests (default: %(default)s)")
    add("--load", type=float, default=0.7, metavar="SHARE", help="of the rate that they reach (default: %(default)s)")
    add("--of-worker", action="store_true", help="the load is a share of what the worker's own core can do")
    add("--idle", type=int, default=10000, metavar="N", help="idle connections; 0: none (default: %(default)s)")
    add("--idle-upgrades", type=int, default=5, metavar="N", help="of these (default: %(default)s)")
    add("--transfer-mib", type=int, default=1024, metavar="MIB", help="0: none (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write the figures of all upgrades there")
    return found


def measure(kind: str, arguments: argparse.Namespace, programs: Programs, say: Console) -> Figures:
    figures = Figures()
    with ExitStack() as stack:
        tls = None
        if arguments.tls:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-upgrades-tls-"))
            tls = certificates.make(Path(folder))
        bench = Bench(kind, programs, tls, stack)
        if arguments.upgrades:
            measure_requests(bench, arguments, figures, say)
        if arguments.idle:
            measure_idle(bench, arguments, figures, say)
        if arguments.transfer_mib:
            measure_transfer(bench, arguments, figures, say)
    return figures


@ends_with_reader
def main() -> int:
    arguments = _parser().parse_args()
    if os.geteuid() != 0 and set(arguments.kind) != {"shm"}:
        print("bench.upgrades: needs root: it makes network namespaces (--kind shm does not)", file=sys.stderr)
        return 2
    console, progress = Console(width=terminal.piped_columns(180)), Console(stderr=True)
    programs = build(TOP / "build" / "bench")
    before = os.getloadavg()
    found: dict[str, Figures] = {}
    for kind in arguments.kind:
        progress.print(f"{kind}:")
        found[kind] = measure(kind, arguments, programs, progress)
    show(found, console)
    load = {"before": before[0], "after": os.getloadavg()[0], "cores": os.cpu_count()}
    console.print(f"load: {load['before']:.1f} before, {load['after']:.1f} after, on {load['cores']} cores")
    if arguments.json:
        figures = {kind: asdict(one) for kind, one in found.items()}
        arguments.json.write_text(json.dumps({"kinds": figures, "load": load}) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, RuntimeError, ValueError, AssertionError) as error:
        sys.exit(f"bench.upgrades: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
