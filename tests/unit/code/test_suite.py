"""tests/run: what it chooses, what it estimates, what it runs once more and how it ends."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from suite.outcome import Outcome, duration, last_line, pytest_line, skips
from suite.progress import GUESS_S, Estimate
from suite.selection import LONGER, NOT_IN_SMOKE, SMOKE, Longer

TESTS = Path(__file__).resolve().parents[2]
FEW = """
import pathlib, pytest

def test_passes():
    pass

def test_passes_alone(tmp_path_factory):
    marker = pathlib.Path(__file__).with_name("been-here")
    been = marker.exists()
    marker.touch()
    assert been, "the machine was busy"

@pytest.mark.skip(reason="the moon is full")
def test_is_skipped():
    pass

@pytest.mark.xfail(reason="known")
def test_is_expected_to_fail():
    assert False
"""


def test_what_is_in_smoke_is_there() -> None:
    for name in SMOKE:
        file, _, test = name.partition("::")
        tree = ast.parse((TESTS.parent / file).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not test or test.partition("[")[0] in functions, name


def test_each_wing_is_in_smoke() -> None:
    folders = {path.parent for path in TESTS.rglob("test_*.py") if "programs" not in path.relative_to(TESTS).parts[1:]}
    wings = {str(folder.relative_to(TESTS)) for folder in folders} - {"."}
    chosen = {str(Path(name.partition("::")[0]).parent.relative_to("tests")) for name in SMOKE}
    assert wings - chosen == NOT_IN_SMOKE


@pytest.mark.parametrize("step", [step for step in LONGER if step.command[0] != "pytest"], ids=lambda step: step.name)
def test_what_takes_hours_can_be_called(step: Longer) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command, *options = step.command
    told = subprocess.run(
        [TESTS.parent / command, "--help"],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    ).stdout
    assert [option for option in options if option.startswith("--") and option not in told] == []


def test_the_estimate_learns() -> None:
    estimate = Estimate({"known": 10.0})
    estimate.expects(["known", "new 1", "new 2"])
    assert estimate.seconds() == 10.0 + 2 * GUESS_S
    estimate.took("known", 4.0)
    assert estimate.seconds() == 6.0 + 2 * GUESS_S
    estimate.took("new 1", 5.0)
    estimate.ended("new 1")
    assert 6.0 + GUESS_S < estimate.seconds() < 6.0 + 5.0, "new ones seem to take longer than was guessed"
    estimate.took("known", 40.0)
    estimate.ended("new 2")
    assert estimate.seconds() == 0.0


def test_sentences_at_the_end() -> None:
    good = Outcome(passed=8121, skipped=156, reasons=Counter({"needs root": 150, "no kTLS": 6}))
    assert last_line(good, 410, "build/tests") == "8121 passed, 156 skipped, 0 failed in 6 min 50 s"
    assert pytest_line(good, 410).strip("= ") == "8121 passed, 156 skipped in 410.00s (0:06:50)"
    assert skips(good) == ["tests: skipped  150: needs root", "tests: skipped    6: no kTLS"]
    bad = good.after(Outcome(failed=("a::b",)))
    assert "1 failed in 2 h 1 min; why is in build/tests/failures; once more: tests/run --failed" in last_line(
        bad, 7260, "build/tests"
    )
    assert "before its end" in last_line(Outcome(complete=False), 1, "x") and duration(59.4) == "59 s"


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    place = ["--place", str(folder / "place")]
    return subprocess.run(
        [sys.executable, "-m", "suite", *place, *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_what_fails_is_run_once_more_alone(tmp_path: Path) -> None:
    (tmp_path / "test_few.py").write_text(FEW)
    done = run(tmp_path, "--jobs", "2", str(tmp_path))
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(line.startswith("tests: FAILED") and "test_passes_alone" in line for line in lines)
    assert "tests: once more, alone: 1 of the tests above" in lines
    assert lines[-2] == "tests: skipped    1: the moon is full"
    assert lines[-1].startswith("2 passed, 1 skipped, 1 known to fail, 0 failed in ")
    assert "2 passed, 1 skipped, 1 xfailed in" in (tmp_path / "place" / "pytest-line").read_text()
    assert "the machine was busy" in (tmp_path / "place" / "failures").read_text()
    assert (tmp_path / "place" / "failed-in-the-end").read_text() == ""


def test_what_fails_twice_is_said_and_found_again() -> None:
    (TESTS.parent / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TESTS.parent / "build") as name:  # names of tests are relative to the checkout
        folder = Path(name)
        (folder / "test_wrong.py").write_text("def test_wrong(): assert 1 == 2\ndef test_right(): pass\n")
        done = run(folder, "--jobs", "2", str(folder))
        assert done.returncode == 1
        assert done.stdout.splitlines()[-1].startswith("1 passed, 0 skipped, 1 failed in ")
        ends = (folder / "place" / "failed-in-the-end").read_text()
        assert re.fullmatch(r"tests: FAILED \S+::test_wrong\n(.*\n)*E +assert 1 == 2\n(.*\n)*", ends)
        again = run(folder, "--failed")
    assert again.returncode == 1 and again.stdout.splitlines()[-1].startswith("0 passed, 0 skipped, 1 failed in ")


def test_more_than_one_in_a_thousand_is_a_failure_at_once(tmp_path: Path) -> None:
    (tmp_path / "test_wrong.py").write_text("".join(f"def test_{i}(): assert 0\n" for i in range(12)))
    done = run(tmp_path, "--jobs", "2", str(tmp_path))
    assert done.returncode == 1 and "once more, alone" not in done.stdout
    assert done.stdout.splitlines()[-1].startswith("0 passed, 0 skipped, 12 failed in ")


def test_a_run_that_takes_too_long_says_so(tmp_path: Path) -> None:
    (tmp_path / "test_long.py").write_text("import time\ndef test_long(): time.sleep(90)\n")
    done = run(tmp_path, "--jobs", "2", "--timeout-s", "3", str(tmp_path))
    assert done.returncode == 124
    assert "the time is over" in done.stdout and "before its end" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("broken", ["import nothing_of_that_name", "def test_x(:"])
def test_a_file_that_cannot_be_read(tmp_path: Path, broken: str) -> None:
    (tmp_path / "test_broken.py").write_text(broken)
    done = run(tmp_path, "--jobs", "2", str(tmp_path))
    assert done.returncode != 0 and "0 passed" in done.stdout.splitlines()[-1]
