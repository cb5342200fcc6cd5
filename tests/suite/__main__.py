"""The command that tests/run ends in, and `suite` of .ci/steps."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from suite.outcome import Outcome, ends_of_failures, last_line, pytest_line, skips
from suite.selection import LONGER, NOT_LONG, SMOKE

TOP = Path(__file__).resolve().parents[2]
#: A machine shared with others stops for seconds, which some of thousands of tests notice. As CPython's CI does
#: (regrtest --rerun), what fails is run once more, alone, and named; only what fails again, or more than one in a
#: thousand, is a failure.
UNSTEADY_MAX = 11
#: Most tests wait more than they compute: several files at a time, each in one process from its first test to its last.
#: In the order of their names, which has those that take longest before those that are many.
SIDE_BY_SIDE = ("--dist", "loadfile", "--no-loadscope-reorder")
#: With a process a core and one more, the cores were busy for two thirds of the time.
PROCESSES = len(os.sched_getaffinity(0)) + 2
QUIET = ("-q", "--no-header", "-r", "N", "-o", "console_output_style=classic")
SOME_FAILED, NONE_FOUND, TIME_OVER = 1, 5, 124


class Runs:
    """Runs of pytest that have a cache and a place in common."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._place: Path = arguments.place
        self._jobs: int = arguments.jobs
        self._timeout_s: float | None = arguments.timeout_s
        try:
            shutil.rmtree(self._place / "cache", ignore_errors=True)
            self._place.mkdir(parents=True, exist_ok=True)
            (self._place / "failures").unlink(missing_ok=True)
            (self._place / "outcome.json").unlink(missing_ok=True)
        except PermissionError as error:
            sys.exit(f"tests/run: {error.filename} is not yours to change: run it as its owner, or with --place FOLDER")
        self.status = 0

    def __call__(self, selected: Sequence[str]) -> Outcome:
        """All of them; and what fails, if it is little, once more."""
        side_by_side = ("-n", str(self._jobs), *SIDE_BY_SIDE, *QUIET) if self._jobs > 1 else ()
        status, outcome = self._pytest((*side_by_side, *selected), self._timeout_s)
        if status == SOME_FAILED and side_by_side and 0 < len(outcome.failed) <= UNSTEADY_MAX:
            print(f"\ntests: once more, alone: {len(outcome.failed)} of the tests above", flush=True)
            only = self._place / "again.json"
            only.write_text(json.dumps(outcome.failed), encoding="utf-8")
            status, found = self._pytest((*QUIET, *selected, "--progress-only", str(only)), self._timeout_s)
            if found.complete:
                outcome = outcome.after(found)
        self.status = self.status or status
        return outcome

    def _pytest(self, arguments: Sequence[str], timeout_s: float | None) -> tuple[int, Outcome]:
        left = self._place / "outcome.json"
        left.unlink(missing_ok=True)
        places = ("-o", f"cache_dir={self._place / 'cache'}", "--progress-place", str(self._place))
        command = [sys.executable, "-m", "pytest", "-p", "suite.progress", *places]
        # Where a machine sets it, each start of Python compiles what it imports, and each process of pytest all test
        # files: to collect the tests took 19 s of a core instead of 6, eight times in a run.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with subprocess.Popen([*command, *arguments], cwd=TOP, env=environment) as process:
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                print(f"\ntests: the time is over ({timeout_s:.0f} s)", flush=True)
                status = _ended(process)
            except KeyboardInterrupt:
                status = process.wait()  # the terminal has told it, too
        outcome = Outcome.read(left)
        return status, replace(outcome, complete=outcome.complete and status in (0, SOME_FAILED, NONE_FOUND))


def _ended(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
        return TIME_OVER
    process.kill()
    return TIME_OVER


def _longer(runs: Runs) -> Outcome:
    """Each command counts as one test."""
    outcome = Outcome()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for step in LONGER:
        print(f"tests: {step.name}", flush=True)
        if step.command[0] == "pytest":
            outcome += runs(step.command[1:])
            continue
        command = [str(TOP / step.command[0]), *step.command[1:]]
        right = subprocess.run(command, cwd=TOP, env=os.environ | {"PATH": path}, check=False).returncode == 0
        outcome += Outcome(passed=1) if right else Outcome(failed=(step.name,))
    return outcome


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="tests/run",
        usage="tests/run [--smoke | --all | --failed] [--jobs N] [arguments of pytest]",
        description="Sets up (deploy/setup --dev), then runs the tests that are not marked long, several files at a "
        "time. Some need root, and are skipped without it. What fails is run once more, alone: a machine that has "
        "much else to do fails a few of thousands. The last line says how it ended, and so does the exit status.",
        epilog="With arguments of pytest, its own output is shown, and the tests run one after the other: "
        "tests/run tests/unit -k rules; tests/run -m long. Which tests are in --smoke and in --all is listed in "
        "tests/suite/selection.py.",
        allow_abbrev=False,
    )
    which = made.add_mutually_exclusive_group()
    which.add_argument("--smoke", action="store_true", help="a few of each part only, in less than two minutes")
    which.add_argument("--all", action="store_true", help="then also what takes hours: long tests, fuzzing, stress")
    which.add_argument("--failed", action="store_true", help="only those that failed in the last run")
    made.add_argument(
        "--jobs", type=int, metavar="N", help=f"processes (default: {PROCESSES}, and 1 with arguments of pytest)"
    )
    made.add_argument("--timeout-s", type=float, metavar="S", help="end the run after that time (default: never)")
    made.add_argument(
        "--place",
        type=Path,
        default=TOP / "build" / "tests",
        metavar="FOLDER",
        help="where what failed and what each test took is kept (default: build/tests)",
    )
    return made


def failed_before(place: Path) -> list[str]:
    names = Outcome.read(place / "outcome.json").failed
    if not names:
        sys.exit("tests/run: no test failed in the last run")
    return list(names)


def main() -> int:
    arguments, of_pytest = parser().parse_known_args()
    arguments.place = arguments.place.resolve()
    few = arguments.failed or (of_pytest and not (arguments.smoke or arguments.all))
    arguments.jobs = arguments.jobs or (1 if few else PROCESSES)
    started = time.monotonic()
    if arguments.smoke:
        selected = [*SMOKE, *of_pytest]
    elif arguments.failed:
        selected = [*failed_before(arguments.place), *of_pytest]
    else:
        selected = [*NOT_LONG, *of_pytest] if arguments.all else of_pytest or list(NOT_LONG)
    runs = Runs(arguments)
    outcome = runs(selected)
    if arguments.all:
        outcome += _longer(runs)
    print(*skips(outcome), sep="\n")
    seconds = time.monotonic() - started
    (arguments.place / "pytest-line").write_text(pytest_line(outcome, seconds) + "\n", encoding="utf-8")
    failures = arguments.place / "failures"
    ends = ends_of_failures(outcome.failed, failures.read_text(encoding="utf-8")) if failures.exists() else ""
    (arguments.place / "failed-in-the-end").write_text(ends, encoding="utf-8")
    try:
        place = arguments.place.relative_to(TOP)
    except ValueError:
        place = arguments.place
    print(last_line(outcome, seconds, str(place)), flush=True)
    return runs.status or (1 if outcome.failed or not outcome.complete else 0)


if __name__ == "__main__":
    sys.exit(main())
