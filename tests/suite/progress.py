"""A plug-in for pytest: writes how far a run of several processes is and about how long it will take, and leaves what
came of it in a file. Loaded by tests/run (`-p suite.progress`), which reads the file (outcome.py).

Theory of operation. A process of pytest-xdist announces what it has collected; each report then says how long a part of
a test took. What is left is estimated from the last run, where it has the test. A test that is new is expected to take
as long as those of its kind have taken so far; kinds are told by the mark `slow`, and before the first of a kind has
ended, a guess stands for it. Nothing here decides whether a test passes.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from suite.outcome import RULE

#: Seconds of a test of which nothing is known, with the weight of as many tests.
GUESS_S, GUESS_WEIGHT = 0.25, 50
#: Between two lines where nobody overwrites them.
PAUSE_S = 15.0
BETWEEN_UPDATES_S = 0.5


def clock(seconds: float) -> str:
    """As on a stop-watch, such as 6:50."""
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02}"


@dataclass
class Estimate:
    """How long the tests that have not ended will take, all of them one after the other."""

    known: dict[str, float]
    left: set[str] = field(default_factory=set)
    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _new: list[float] = field(default_factory=list)

    def expects(self, names: Iterable[str]) -> None:
        self.left.update(names)

    def took(self, name: str, seconds: float) -> None:
        """A part of it: set-up, the test itself, or what comes after."""
        self.spent[name] += seconds

    def ended(self, name: str) -> None:
        self.left.discard(name)
        if name not in self.known:
            self._new.append(self.spent[name])

    def seconds(self) -> float:
        of_new = (GUESS_S * GUESS_WEIGHT + sum(self._new)) / (GUESS_WEIGHT + len(self._new))
        return sum(max(0.0, self.known.get(name, of_new) - self.spent.get(name, 0.0)) for name in self.left)


class Progress:
    """Of one run, in the process that has the others; where there are none, pytest itself says how far it is."""

    def __init__(self, place: Path, processes: int, output: int) -> None:
        self._place = place
        self._processes = processes
        self._output = output
        self._overwrites = os.isatty(output)
        self._started = self._told = time.monotonic()
        self._estimate = Estimate(_read(place / "seconds.json"))
        self._all = 0
        self._outcomes: dict[str, str] = {}
        self._reasons: dict[str, int] = defaultdict(int)
        self._wrong: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._teller = threading.Thread(target=self._tell_often, daemon=True)

    # --- what pytest and xdist call ---------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        with self._lock:
            if not self._all:
                self._all = len(ids)
                self._estimate.expects(ids)
                self._teller.start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        with self._lock:
            self._estimate.took(name, report.duration)
            outcome = str(report.outcome) if report.when == "call" or report.outcome != "passed" else ""
            if outcome == "failed":
                self._wrong.append((f"{name} ({report.when})", report.longreprtext))
            elif hasattr(report, "wasxfail"):
                outcome = "xfailed"
            elif outcome == "skipped":
                self._reasons[_reason(report)] += 1
            if outcome and self._outcomes.get(name) != "failed":
                self._outcomes[name] = outcome
            if report.when == "teardown":
                self._estimate.ended(name)
        if outcome == "failed" and self._all:
            self._line(f"tests: FAILED {name}" + (f" ({report.when})" if report.when != "call" else ""))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._outcomes[report.nodeid] = "failed"
            self._wrong.append((report.nodeid, report.longreprtext))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """No character for each test: the line says more."""
        if not self._all or (report.when != "call" and report.outcome == "passed"):
            return None
        if hasattr(report, "wasxfail"):
            return "xfailed" if report.skipped else "xpassed", "", ""
        return "error" if report.when != "call" and report.failed else report.outcome, "", ""

    def pytest_sessionfinish(self) -> None:
        self._over.set()
        if self._teller.is_alive():
            self._teller.join()
        if self._overwrites and self._all:
            os.write(self._output, b"\r\033[K")
        counts = {kind: list(self._outcomes.values()).count(kind) for kind in ("passed", "skipped", "xfailed")}
        failed = [name for name, outcome in self._outcomes.items() if outcome == "failed"]
        outcome = {**counts, "names": failed, "reasons": self._reasons}
        (self._place / "outcome.json").write_text(json.dumps(outcome), encoding="utf-8")
        known = self._estimate.known | {name: round(spent, 3) for name, spent in self._estimate.spent.items()}
        (self._place / "seconds.json").write_text(json.dumps(known), encoding="utf-8")
        with (self._place / "failures").open("a", encoding="utf-8") as file:
            file.writelines(f"{RULE}\n{name}\n{text}\n" for name, text in self._wrong)

    # --- what it tells ----------------------------------------------------------------------------------

    def _tell_often(self) -> None:
        while not self._over.wait(BETWEEN_UPDATES_S if self._overwrites else PAUSE_S):
            with self._lock:
                text = self.line(time.monotonic() - self._started)
            os.write(self._output, (f"\r\033[K{text[: _width()]}" if self._overwrites else f"{text}\n").encode())

    def line(self, gone_s: float) -> str:
        ended = self._all - len(self._estimate.left)
        left_s = self._estimate.seconds() / self._processes
        wrong = sum(1 for outcome in self._outcomes.values() if outcome == "failed")
        return f"tests: {ended:,} of {self._all:,}, {wrong} failed, {clock(gone_s)} gone, about {clock(left_s)} left"

    def _line(self, text: str) -> None:
        os.write(self._output, (f"\r\033[K{text}\n" if self._overwrites else f"{text}\n").encode())


def _width() -> int:
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def _reason(report: pytest.TestReport) -> str:
    return str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else "?"


def _read(path: Path) -> dict[str, float]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--progress-place", metavar="FOLDER", help="tests/run: where a run leaves what came of it")
    parser.addoption("--progress-only", metavar="FILE", help="tests/run: of the tests, those that FILE names, as JSON")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """--last-failed does the same, but not where tests are named one by one."""
    file = config.getoption("--progress-only")
    if file:
        wanted = set(json.loads(Path(file).read_text(encoding="utf-8")))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
        items[:] = [item for item in items if item.nodeid in wanted]


def pytest_configure(config: pytest.Config) -> None:
    processes = config.getoption("numprocesses", 0) or 0
    place = config.getoption("--progress-place")
    if place and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(Path(place), processes or 1, os.dup(1)), "xts-progress")
