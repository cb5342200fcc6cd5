"""What the bench compares besides paths: profiles of one build, and two builds."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench import analysis, compare, profiles, served
from bench.analysis import Run
from rich.console import Console
from rich.table import Table
from xts_messages.settings.profiles import NAMES

PGBENCH = """\
transaction type: <builtin: select only>
number of transactions actually processed: 4
latency average = 0.250 ms
tps = 4000.000000 (without initial connection time)
"""


@dataclass
class Logging:
    """A target whose pgbench writes a log, as it is told where."""

    connections: int = 8
    address: str = "198.18.0.1"
    port: int = 9404
    load: tuple[str, ...] = ()

    def run(self, *command: str) -> str:
        (prefix,) = (word.partition("=")[2] for word in command if word.startswith("--log-prefix="))
        for process, times_us in enumerate(((100, 400), (200, 300))):
            lines = (f"{process} {i} {time_us} 0 1700000000 5\n" for i, time_us in enumerate(times_us))
            Path(f"{prefix}.{process}").write_text("".join(lines))
        return PGBENCH


def run(workload: str, subject: str, repetition: int, operations: float, host_s: float = 0.5) -> Run:
    result = {"seconds": 1.0, "operations": operations, "host_core_s": host_s, "device_core_s": 0.5}
    return Run(workload, subject, repetition, result, {})


def text_of(table: Table) -> str:
    console = Console(width=200, file=io.StringIO())
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_pgbench() -> None:
    result = served._postgres_load(Logging(), 1.0, 0)  # type: ignore[arg-type]
    assert (result["operations"], result["seconds"]) == (4, pytest.approx(0.001))
    assert (result["p50_us"], result["p99_us"]) == (200, 300)


def test_each_variant_is_first_now_and_then() -> None:
    names = ("a", "b", "c")
    steps = profiles.plan(profiles.CASES[:2], names, 6)
    assert len(steps) == 12 and {tuple(sorted(order)) for _, _, order in steps} == {names}
    assert Counter(order[0] for _, _, order in steps) == dict.fromkeys(names, 4)


def test_variants() -> None:
    found = profiles.variants(["XTS_SPIN_US=0,XTS_WINDOW_BYTES=9"])
    assert list(found) == [profiles.DEFAULT, *NAMES, "XTS_SPIN_US=0,XTS_WINDOW_BYTES=9"]
    assert found["XTS_SPIN_US=0,XTS_WINDOW_BYTES=9"] == (("XTS_SPIN_US", "0"), ("XTS_WINDOW_BYTES", "9"))
    for wrong in ("spin=0", "XTS_SPIN_US", ""):
        with pytest.raises(ValueError, match="expected XTS_NAME=VALUE"):
            profiles.variants([wrong])


def test_ratios_of_profiles_are_within_a_repetition() -> None:
    """The machine is twice as fast in the second one."""
    runs = [run("nginx-1", "default", i, 100 * (i + 1)) for i in range(2)]
    runs += [run("nginx-1", "low-cpu", i, 110 * (i + 1)) for i in range(2)]
    shown = text_of(profiles.table(analysis.figures(runs)))
    assert "150" in shown and "1.10 (1.10–1.10)" in shown


def test_builds_take_turns() -> None:
    order = list(compare.rounds((Path("a"), Path("b")), 3))
    assert order == [(0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (2, 1)]


def test_ratios_of_builds() -> None:
    runs = [
        compare.named(run("requests-32", "shm", 0, 100, host_s), which, number)
        for number in range(3)
        for which, host_s in ((0, 0.5), (1, 0.4))
    ]
    shown = text_of(compare.table(analysis.figures(runs)))
    assert "requests-32" in shown and "0.800 (0.800–0.800)" in shown and "1.000 (1.000–1.000)" in shown


def test_a_folder_that_is_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"is .* a checkout"):
        compare.measure(tmp_path, ("requests-32:shm",), 1.0, 0.0, {})


def bench_that(tmp_path: Path, script: str) -> None:
    """A checkout whose bench does this."""
    program = tmp_path / "tests/bench/run"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_a_bench_that_fails_is_heard(tmp_path: Path) -> None:
    bench_that(tmp_path, "echo no cores here >&2\nexit 2")
    with pytest.raises(RuntimeError, match=r"exit status 2: .*\nno cores here"):
        compare.measure(tmp_path, ("requests-32:shm",), 1.0, 0.0, {})


def test_variables_reach_the_bench(tmp_path: Path) -> None:
    bench_that(tmp_path, 'echo "steering: $BENCH_STEERING" >&2\nexit 3')
    with pytest.raises(RuntimeError, match=r"exit status 3: .*\nsteering: address"):
        compare.measure(tmp_path, ("requests-32:afxdp-soft",), 1.0, 0.0, {"BENCH_STEERING": "address"})
