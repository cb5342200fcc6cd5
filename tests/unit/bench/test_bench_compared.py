"""What the bench compares besides paths: profiles of one build, and two builds."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, cast

import pytest
from bench import analysis, compare, in_turn, options, profiles, served
from bench.analysis import Run
from bench.resultfile import Writer
from bench.session import Session
from hypothesis import given
from hypothesis import strategies as st
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
    assert "requests-32" in shown and "0.800" in shown and "needs 6 rounds" in shown
    assert "1.000–1.000" in shown


def test_an_interval_needs_six_values() -> None:
    assert analysis.interval(range(5)) is None
    assert analysis.interval(range(6)) == (0, 5)
    assert analysis.interval(reversed(range(9))) == (1, 7)


@given(st.lists(st.integers(0, 99), min_size=6, max_size=40))
def test_an_interval_has_the_median_in_it(values: list[int]) -> None:
    interval = analysis.interval(values)
    assert interval and min(values) <= interval[0] <= median(values) <= interval[1] <= max(values)


def test_an_interval_leaves_the_median_out_once_in_twenty() -> None:
    """Of 21 values six at each end may be left out: 2 x 1.3 %. With seven it would be 2 x 3.9 %."""
    assert analysis.interval(range(21)) == (5, 15)


def bench_that(tmp_path: Path, script: str, **how: Any) -> in_turn.Bench:
    """A checkout whose bench does this."""
    program = tmp_path / "tests/bench/run"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return in_turn.Bench(tmp_path, "xts1", ("requests-32:shm",), seconds=0.1, **how)


def test_a_folder_that_is_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"is .* a checkout"):
        in_turn.Bench(tmp_path, "xts1", ("requests-32:shm",), seconds=1.0)


def test_a_bench_that_fails_is_heard(tmp_path: Path) -> None:
    with (
        bench_that(tmp_path, "read line; echo no cores here >&2; exit 2") as bench,
        pytest.raises(RuntimeError, match=r"exit status 2: .*\nno cores here"),
    ):
        bench.run(0, "requests-32:shm")


def test_a_bench_that_does_not_answer(tmp_path: Path) -> None:
    with (
        bench_that(tmp_path, "echo thinking >&2; cat >/dev/null", patience_s=0.0, limit_s=0.1) as bench,
        pytest.raises(RuntimeError, match=r"no answer after 2 s: .*\nthinking"),
    ):
        bench.run(0, "requests-32:shm")


def test_variables_reach_the_bench(tmp_path: Path) -> None:
    script = 'echo "steering: $BENCH_STEERING of $BENCH_NAME" >&2; exit 3'
    with (
        bench_that(tmp_path, script, environment={"BENCH_STEERING": "address"}) as bench,
        pytest.raises(RuntimeError, match=r"exit status 3: .*\nsteering: address of xts1"),
    ):
        bench.run(0, "requests-32:shm")


def test_a_bench_makes_the_run_that_it_is_told(tmp_path: Path) -> None:
    """What it says besides is passed over."""
    value = json.dumps({"kind": "run", **asdict(run("requests-32", "shm", 7, 100))})
    script = f"""echo '{{"kind": "environment"}}'; read number pair; [ "$number $pair" = "7 requests-32:shm" ] || exit 1
echo '{value}'; read number pair"""
    with bench_that(tmp_path, script) as bench:
        assert bench.run(7, "requests-32:shm").result["operations"] == 100


def test_what_no_run_is_called_is_refused() -> None:
    asked = options.asked(options.parser("").parse_args(["--run", "requests-32:shm"]))
    session = cast(Session, SimpleNamespace(has=lambda subject: True))
    for line in ("requests-32:shm", "0 requests-32", "x requests-32:shm", "0 send:shm", ""):
        with pytest.raises(ValueError, match="expected REPETITION WORKLOAD:PATH, of requests-32:shm"):
            in_turn.measure(session, asked, Writer(None), [line])


def test_an_unknown_run_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """And not with all that there are, which are hundreds."""
    for name, advice in (("requests:shm", "did you mean requests-32:shm?"), ("?", "it can be one of ")):
        with pytest.raises(SystemExit):
            options.parser("").parse_args(["--run", name])
        said = capsys.readouterr().err
        assert f"--run: unknown value {name!r}; {advice}" in said and len(said.splitlines()) == 1 and len(said) < 200
