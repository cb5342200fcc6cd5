"""What `python -m bench.lossy` makes of what it has measured."""

from __future__ import annotations

import io
import re

from bench.lossy import DIRECTIONS, NO_LOSS, WAYS, Figures, table, turned
from rich.console import Console


def test_every_repetition_begins_with_another_wire() -> None:
    names = list(WAYS)
    orders = [turned(names, number) for number in range(len(names))]
    assert {order[0] for order in orders} == set(names)
    assert all(sorted(order) == sorted(names) for order in orders)


def test_a_share_is_of_the_same_repetition() -> None:
    figures = Figures()
    there = next(iter(DIRECTIONS))
    figures.rates[there, 1.0, NO_LOSS] += [1e9, 4e9, 2e9]
    figures.rates[there, 1.0, "1 %"] += [0.9e9, 2e9, 1.6e9]
    assert figures.ratios((there, 1.0, "1 %")) == [0.9, 0.5, 0.8]
    out = io.StringIO()
    Console(file=out, width=120).print(table(figures, there, [1.0]))
    rows = {name: line for line in out.getvalue().splitlines() for name in WAYS if re.search(rf"│ {name} +│", line)}
    assert "2,000 (1,000-4,000)" in rows[NO_LOSS]
    assert "0.8" in rows["1 %"] and "0.80 (0.50-0.90)" in rows["1 %"]
