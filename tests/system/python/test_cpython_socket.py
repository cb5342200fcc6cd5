"""CPython's own test_socket has the same outcome on the standard class and on ours, case by case; see
cpython_socket.py for what is left out, and why."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from beds.proxy_process import ProxyProcess

PROGRAM = Path(__file__).with_name("programs") / "cpython_socket.py"
MODES = ("plain", "swapped", "installed")
SHARDS = 4  # most cases that take long sleep
DEADLINE_S = 100.0
CASES_MIN = 250  # that apply; fewer would mean that they were not found

Outcomes = dict[str, tuple[str, str]]


def start(mode: str, endpoint: str) -> list[subprocess.Popen[str]]:
    environment = {**os.environ, "XTS_ENDPOINT": endpoint}
    return [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(PROGRAM), mode, str(shard), str(SHARDS)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for shard in range(SHARDS)
    ]  # fmt: skip


def finish(processes: list[subprocess.Popen[str]]) -> Outcomes:
    outcomes: Outcomes = {}
    for process in processes:
        output, complaints = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, complaints
        outcomes.update(json.loads(output))
    return outcomes


@pytest.fixture(scope="module")
def outcomes(xts_endpoint: ProxyProcess) -> dict[str, Outcomes]:
    """Of all modes, which run at the same time."""
    if importlib.util.find_spec("test.test_socket") is None:
        version = "{}.{}".format(*sys.version_info)
        pytest.skip(f"CPython's test suite is not installed (Debian: libpython{version}-testsuite)")
    started = {mode: start(mode, xts_endpoint.endpoint) for mode in MODES}
    return {mode: finish(processes) for mode, processes in started.items()}


@pytest.mark.parametrize("mode", MODES[1:])
def test_every_case_has_the_outcome_it_has_on_the_standard_class(mode: str, outcomes: dict[str, Outcomes]) -> None:
    plain, ours = outcomes["plain"], outcomes[mode]
    different = {
        case: f"{plain[case][0]} there, here {outcome}: {detail}"
        for case, (outcome, detail) in ours.items()
        if outcome != plain[case][0]
    }
    assert not different, "\n".join(f"{case}: {text}" for case, text in different.items())
    passed = [case for case, (outcome, _) in ours.items() if outcome == "ok"]
    assert len(passed) >= CASES_MIN, f"only {len(passed)} cases passed"
