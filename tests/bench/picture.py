"""What README's picture shows, from result files: the drawing, and the same as the first table of the figures.

The rows are the demo's. A bar is the median of what each file found, and its line the range over the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from xts_lab import demo_picture
from xts_lab.demo_measure import ROWS, WAYS, Figure, Found, Plan, found_in

from .resultfile import read

SECTION = "What the picture shows"
HEADS = ("", "kernel TCP", "HAProxy", "XTS afxdp", "XTS shm")
_PLAN = Plan(ROWS, ("afxdp", "shm"), False, 0, 0.0)


def _of_file(path: Path) -> Found:
    recorded, keys, found = read(path), _PLAN.runs(), Found()
    lines: list[dict[str, Any]] = [{"kind": "environment", **recorded.environment[-1]}]
    for run in recorded.runs:
        if (run.workload, run.subject) in keys:
            lines.append({"kind": "run", "workload": run.workload, "subject": run.subject, "result": run.result})
    for _, so_far in found_in(_PLAN, iter(lines)):
        found = so_far
    return found


def found_over(files: Sequence[Path]) -> Found:
    """Over those files that have all of its rows. ValueError: none has, or nothing at all was measured."""
    having = [found for path in files if len((found := _of_file(path)).figures) == len(_PLAN.runs())]
    if not having:
        raise ValueError("no result file has all rows of the picture: tests/bench/run --quick measures them")
    figures = {}
    for key in _PLAN.runs().values():
        each = [found.figures[key] for found in having]
        values = [figure.value for figure in each]
        low, high = (min(values), max(values)) if len(each) > 1 else (each[0].low, each[0].high)
        figures[key] = Figure(median(values), low, high, median(figure.rate for figure in each))
    dates = sorted({found.environment["date"][:10] for found in having})
    facts = having[-1].environment | {"date": " and ".join(dates)}
    busy, rounds = max(found.foreign_share for found in having), max(found.rounds for found in having)
    return Found(figures, facts, busy, rounds, f"{len(having)} days" if len(having) > 1 else "")


def cells(found: Found) -> Iterator[tuple[str, ...]]:
    """Rows of the table: what is measured, and the figure of each path with its range."""
    for row in ROWS:
        texts = []
        for way in WAYS:
            figure = found.figures[row.key, way]
            ends = f"{demo_picture.number(figure.low)}–{demo_picture.number(figure.high)}"
            texts.append(f"{demo_picture.number(figure.value)} ({ends})")
        yield demo_picture.heading(row), *texts


def draw(files: Sequence[Path], path: Path) -> None:
    demo_picture.plot(path, found_over(files), ROWS)
