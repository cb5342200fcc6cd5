"""How tests have ended: what several runs come to, and the sentence for people at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

#: Reasons for which tests were skipped that are shown, the most frequent first.
REASONS_SHOWN = 6
#: Between two failures in the file that progress.py writes.
RULE = "=" * 100
#: How much of a failure is said at the end: what was expected stands in its last lines.
LINES_SHOWN = 20


@dataclass(frozen=True)
class Outcome:
    passed: int = 0
    skipped: int = 0
    xfailed: int = 0
    failed: tuple[str, ...] = ()
    reasons: Counter[str] = field(default_factory=Counter)
    #: Whether the run came to its end.
    complete: bool = True

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """What progress.py has left; a run that left nothing has not come to its end."""
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return cls(complete=False)
        return cls(
            found["passed"], found["skipped"], found["xfailed"], tuple(found["names"]), Counter(found["reasons"])
        )

    def after(self, again: Outcome) -> Outcome:
        """What the failed ones came to when they were run once more."""
        return replace(self, passed=self.passed + again.passed, failed=again.failed, complete=again.complete)

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.passed + other.passed,
            self.skipped + other.skipped,
            self.xfailed + other.xfailed,
            self.failed + other.failed,
            self.reasons + other.reasons,
            self.complete and other.complete,
        )


def duration(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def skips(outcome: Outcome) -> list[str]:
    """Why tests were skipped, a line for each of the most frequent reasons."""
    if not outcome.reasons:
        return []
    shown = outcome.reasons.most_common(REASONS_SHOWN)
    lines = [f"tests: skipped {count:4}: {reason}" for reason, count in shown]
    others = sum(outcome.reasons.values()) - sum(count for _, count in shown)
    return lines + ([f"tests: skipped {others:4}: for other reasons"] if others else [])


def ends_of_failures(names: Iterable[str], failures: str) -> str:
    """For each of the tests its name and the last lines of its last failure: a long log may be cut at its end only."""
    last = {}
    for record in failures.split(f"{RULE}\n"):
        title, _, text = record.partition("\n")
        last[title.rsplit(" (", 1)[0]] = text
    lines = []
    for name in names:
        lines += [f"tests: FAILED {name}", *last.get(name, "").splitlines()[-LINES_SHOWN:]]
    return "".join(f"{line}\n" for line in lines)


def last_line(outcome: Outcome, seconds: float, place: str) -> str:
    """The sentence at the end."""
    known = f", {outcome.xfailed} known to fail" if outcome.xfailed else ""
    counts = f"{outcome.passed} passed, {outcome.skipped} skipped{known}, {len(outcome.failed)} failed"
    counts += f" in {duration(seconds)}"
    if not outcome.complete:
        return f"{counts}, and then the run was ended before its end: what is above says why"
    if outcome.failed:
        return f"{counts}; why is in {place}/failures; once more: tests/run --failed"
    return counts


def pytest_line(outcome: Outcome, seconds: float) -> str:
    """The same as pytest writes it, for programs that read it."""
    counts = {"skipped": outcome.skipped, "xfailed": outcome.xfailed}
    parts = [f"{len(outcome.failed)} failed"] if outcome.failed else []
    parts += [f"{outcome.passed} passed", *(f"{count} {kind}" for kind, count in counts.items() if count)]
    whole = round(seconds)
    clock = f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
    return f" {', '.join(parts)} in {seconds:.2f}s ({clock}) ".center(80, "=")
