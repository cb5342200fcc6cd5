"""What the demo measures: a few rows of tests/bench, with its programs and its way of counting, but shorter.

Each row is measured on each path, one after the other, and all of that is repeated for some rounds. The result is the
median of the runs that other programs did not disturb. Host CPU is the busy time of the host's whole core, including
the kernel's work in interrupts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from .places import started
from .privilege import LabError

#: The host's core and the core of everything else, in the bench.
MEASURED_CORES = {0, 1}

_TOP = Path(__file__).resolve().parents[2]
#: Time for the bench's labs and all rounds, in seconds. With the job, and taking everything down, the demo stays below
#: a minute.
MEASURE_S = 44.0
WARMUP_S = 0.1
#: A run in which other programs used more of a core than this does not count, if there is an undisturbed one.
DISTURBED = 0.1
#: How long a run that other programs disturb is repeated.
PATIENCE_S = 0.7
#: It takes its labs down first.
BENCH_ENDS_S = 20


@dataclass(frozen=True)
class Row:
    """One group of bars. `ways`: the paths of the bench for kernel TCP, HAProxy and an afxdp queue."""

    key: str
    label: str
    workload: str
    unit: str  # "µs" per operation, "s/GB", or "µs latency"
    ways: tuple[str, str, str] = ("direct-r1", "haproxy-r1", "afxdp-thr")
    tls: bool = False
    #: Its name in the verdict; empty: it is not in the verdict.
    short: str = ""

    def path(self, way: str, loopback: bool) -> str:
        """The bench's key for the path. On loopback it is not known where the kernel does its work (r0)."""
        if way == "shm":
            return "shm"
        path = self.ways[("kernel", "haproxy", "afxdp").index(way)]
        return {"direct-r1": "direct-r0", "haproxy-r1": "haproxy"}.get(path, path) if loopback else path


#: For latency each path has the placement that suits it: what runs on the waiting core needs no wake-up.
ROWS = (
    Row("handshake", "TLS handshake, ECDSA P-256", "tls-connect-ecdsa", "µs", tls=True, short="a TLS handshake"),
    Row(
        "tls-request",
        "TLS request, 32 connections",
        "tls-requests-64",
        "µs",
        tls=True,
        short="a TLS request",
    ),
    Row("tls-bulk", "TLS bulk, sent", "tls-send", "s/GB", tls=True, short="TLS bulk"),
    Row("request", "plain request, 32 connections", "requests-32", "µs", short="a plain request"),
    Row("bulk", "plain bulk, sent", "send", "s/GB"),
    Row("latency", "latency of a single request", "request-spin", "µs latency", ("direct-r0", "haproxy", "afxdp-soft")),
)
WAYS = ("kernel", "haproxy", "afxdp", "shm")


@dataclass(frozen=True)
class Figure:
    """One bar: the median over the rounds and their range, and the throughput per second."""

    value: float
    low: float
    high: float
    rate: float


@dataclass
class Found:
    """Figures by row and path, and the machine they were measured on."""

    figures: dict[tuple[str, str], Figure] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    #: Share of a core that other programs used, median over the runs that count.
    foreign_share: float = 0.0
    rounds: int = 0
    #: What `low` and `high` of the figures are the range of, where it is not the rounds.
    ranges_over: str = ""


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    rows: tuple[Row, ...]
    queues: tuple[str, ...]
    loopback: bool
    rounds: int
    seconds: float

    def runs(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Workload and path of the bench -> row and path of the demo."""
        return {
            (row.workload, row.path(way, self.loopback)): (row.key, way)
            for row in self.rows
            for way in WAYS
            if way in ("kernel", "haproxy", *self.queues)
        }

    def command(self) -> list[str]:
        """The command line of the bench."""
        command = [sys.executable, "-m", "bench", "--json", "-", "--check-mb", "0", "--warmup", f"{WARMUP_S}"]
        command += ["--patience", f"{PATIENCE_S}", "--minutes", f"{MEASURE_S / 60}"]
        command += ["--repetitions", str(self.rounds), "--seconds", f"{self.seconds}"]
        command += ["--loopback"] if self.loopback else [f"--queue={queue}" for queue in self.queues]
        return command + [f"--run={workload}:{path}" for workload, path in self.runs()]


def measured(unit: str, result: dict[str, Any]) -> tuple[float, float]:
    """The result of one run: the figure, and operations or gigabits per second."""
    seconds = result["seconds"]
    # The time of other programs is subtracted, and may be measured as more than the whole.
    host_core_s = max(0.0, result["host_core_s"])
    if unit == "s/GB":
        gigabytes = result["bytes"] / 1e9
        return host_core_s / gigabytes, 8 * gigabytes / seconds
    value = result["p50_us"] if unit == "µs latency" else 1e6 * host_core_s / result["operations"]
    return value, result["operations"] / seconds


@dataclass(frozen=True)
class _Run:
    """One run: the figure, the throughput, and the share of a core that other programs used."""

    value: float
    rate: float
    foreign_share: float


def _counting(runs: list[_Run]) -> list[_Run]:
    """The undisturbed runs; all runs if there are none."""
    return [run for run in runs if run.foreign_share <= DISTURBED] or runs


def found_in(plan: Plan, lines: Iterator[dict[str, Any]]) -> Iterator[tuple[str, Found]]:
    """Reads the lines of the bench's result file. Yields, after each run, its title and all results so far."""
    keys, found = plan.runs(), Found()
    units = {row.key: row.unit for row in plan.rows}
    runs: dict[tuple[str, str], list[_Run]] = {}
    for line in lines:
        if line["kind"] == "environment":
            found.environment = {key: line[key] for key in ("date", "cpu", "kernel", "commit", "haproxy")}
        if line["kind"] != "run":
            continue
        key = keys[line["workload"], line["subject"]]
        share = line["result"].get("foreign_share", 0.0)
        runs.setdefault(key, []).append(_Run(*measured(units[key[0]], line["result"]), share))
        counting = _counting(runs[key])
        values = [run.value for run in counting]
        rate = median(run.rate for run in counting)
        found.figures[key] = Figure(median(values), min(values), max(values), rate)
        found.foreign_share = median(run.foreign_share for of_key in runs.values() for run in _counting(of_key))
        found.rounds = max(map(len, runs.values()))
        yield f"{key[0]}, {key[1]}", found


def check_bench() -> None:
    """LabError if there is no bench, as in an installed wheel."""
    if not (_TOP / "tests" / "bench" / "__main__.py").exists():
        raise LabError("the demo measures with tests/bench, which only a checkout has")


@contextmanager
def bench(plan: Plan) -> Iterator[Iterator[dict[str, Any]]]:
    """Runs the bench and gives the lines it writes, as they come. LabError, with its error output, when it fails."""
    environment = os.environ | {"PYTHONPATH": f"{_TOP / 'tests'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")}
    with tempfile.TemporaryFile("w+") as complaints:

        def start() -> subprocess.Popen[str]:
            return subprocess.Popen(
                plan.command(),
                env=environment,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                start_new_session=True,  # Ctrl-C is for this process, which then asks the bench to take its labs down
            )

        with started(start, BENCH_ENDS_S) as process:
            yield _lines(process)
        if process.returncode != 0:
            complaints.seek(0)
            raise LabError("\n".join(complaints.read().strip().splitlines()[-8:]))


def _lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)
    process.wait()


def rows_named(names: Sequence[str] | None) -> tuple[Row, ...]:
    """The rows with these keys; all rows if there are no keys."""
    return tuple(row for row in ROWS if not names or row.key in names)
