"""Several scripts of one program: a process each, and how each ended (beds/scripts.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

BEDS = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, signal, sys, time
from beds import scripts

@scripts.script("example")
def passes():
    print("not shown")

@scripts.script("example")
def fails():
    assert False, "what was wrong"

@scripts.script("example")
def is_killed():
    os.kill(os.getpid(), signal.SIGKILL)

@scripts.script("example")
def hangs():
    time.sleep(60)

scripts.SCRIPT_S, scripts.START_S = float(sys.argv[2]), 0.5
scripts.scripts("example")[scripts.apart(sys.argv[1])]()
"""


def run(names: str, script_s: float = 20) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(BEDS)}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, names, str(script_s)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_others_run_though_one_fails() -> None:
    done = run("fails,is_killed,passes")
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert list(outcomes) == ["fails", "is_killed", "passes"] and outcomes["passes"] == ""
    assert "exit status 1\n" in outcomes["fails"] and "AssertionError: what was wrong" in outcomes["fails"]
    assert outcomes["is_killed"] == "is_killed: exit status -9\n"


def test_one_that_hangs_says_where_and_the_rest_is_left_for_another_run() -> None:
    outcomes = json.loads(run("hangs,passes", 1).stdout)
    assert list(outcomes) == ["hangs"] and "in hangs" in outcomes["hangs"]


def test_one_alone_is_the_program_itself() -> None:
    done = run("fails")
    assert done.returncode == 1 and "AssertionError: what was wrong" in done.stderr
