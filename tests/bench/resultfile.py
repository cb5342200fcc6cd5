"""A result file: one JSON object a line, written as the figures come, so that what is interrupted keeps what it has.

Each line has a `kind`: `environment` (what it was measured on; another for each time it was resumed), `asked` (what was
to be measured), `check`, `run`, `idle` and `memory`. Figures derived from them are not kept: they are quick to make.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from .analysis import Run

FORMAT = 2
_DIGITS = 6

Row = dict[str, float]


@dataclass(slots=True)
class Recorded:
    """What a file has."""

    environment: list[dict[str, Any]] = field(default_factory=list)
    asked: dict[str, Any] = field(default_factory=dict)
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    idle: dict[str, Row] = field(default_factory=dict)
    memory: dict[str, Row] = field(default_factory=dict)

    def done(self) -> set[tuple[str, str, int]]:
        """Workload, path and repetition of the runs that are there."""
        return {(run.workload, run.subject, run.repetition) for run in self.runs}

    def take(self, kind: str, value: dict[str, Any]) -> None:
        """What one line says. ValueError for a kind that is not of this format."""
        if kind == "environment":
            if value.get("format") != FORMAT:
                raise ValueError(f"format {value.get('format')}: this version reads {FORMAT}")
            self.environment.append(value)
        elif kind == "asked":
            self.asked = value
        elif kind == "run":
            self.runs.append(Run(**value))
        elif kind == "check":
            self.checks[value.pop("path")] = value
        elif kind in ("idle", "memory"):
            (self.idle if kind == "idle" else self.memory)[value.pop("path")] = value
        else:
            raise ValueError(f"kind {kind!r}")


def read(path: Path) -> Recorded:
    """What is in a file. A last line without an end was being written when the bench was killed: it does not count.
    ValueError names the line that is wrong."""
    found = Recorded()
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
            found.take(value.pop("kind"), value)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}, line {number}: not a line of a result file: {error}") from None
    if not found.environment:
        raise ValueError(f"{path}: no result file: it does not say what it was measured on")
    return found


class Writer:
    """Adds to what is recorded, in memory and in the file. `path` of None: no file; "-": standard output."""

    def __init__(self, path: Path | None, resume: bool = False) -> None:
        """FileExistsError when there is such a file and it is not to be resumed."""
        self.recorded = Recorded()
        self._file: TextIO | None = None
        if path is None:
            return
        if str(path) == "-":
            self._file = sys.stdout
        elif resume:
            self.recorded = read(path)
            whole = path.read_bytes()
            self._file = path.open("r+", encoding="utf-8")
            self._file.truncate(whole.rfind(b"\n") + 1)
            self._file.seek(0, 2)
        elif path.exists() and path.stat().st_size:
            raise FileExistsError(17, f"{path} is there: --resume {path} goes on with it; else take another name")
        else:
            self._file = path.open("w", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None and self._file is not sys.stdout:
            self._file.close()

    def add(self, kind: str, value: Mapping[str, Any]) -> None:
        """One line."""
        line = {"kind": kind, **_rounded(dict(value))}
        if self._file is not None:
            print(json.dumps(line, ensure_ascii=False, separators=(",", ":")), file=self._file, flush=True)
        line.pop("kind")
        self.recorded.take(kind, line)

    def run(self, run: Run) -> None:
        self.add("run", asdict(run))


def _rounded(value: Any) -> Any:
    """The same with as many digits as mean something."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value
