"""Results as tables for people and as JSON."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from .measure import Result

MEDIAN_GOAL, P99_GOAL = 1.5, 2.0


_TITLES = (
    "attack",
    "queue",
    "tenant",
    "median µs",
    "ratio",
    "control",
    "p99 µs",
    "ratio",
    "control",
    "max µs",
    "core waited for",
)
_TEXT = ("attack", "queue", "tenant", "the attack did")


def table(results: list[Result]) -> Table:
    """One row an attack and bystander: its latency without and with it."""
    title = "A bystander's requests, without → with the attack (control: with the attack on another proxy of the core)"
    made = Table(title=title, title_justify="left")
    for title in (*_TITLES, "resets", "the attack did"):
        made.add_column(title, justify="left" if title in _TEXT else "right", no_wrap=title != "the attack did")
    for result in results:
        for who in result.bystanders:
            made.add_row(result.attack, result.queue, who, *cells(result, who))
    return made


def cells(result: Result, who: str) -> list[str]:
    def pair(figure: str) -> str:
        without, with_it = (result.median(who, figure, attacked=attacked) for attacked in (False, True))
        return f"{without:,.0f} → {with_it:,.0f}"

    def ratios(figure: str) -> list[str]:
        control = result.control_ratio(who, figure)
        return [f"{result.ratio(who, figure):.2f}", "" if control is None else f"{control:.2f}"]

    did = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in result.done.items())
    resets = str(result.resets(who))
    waited = " → ".join(f"{statistics.median(parts):.0%}" for parts in result.waited.values() if parts)
    return [pair("p50_us"), *ratios("p50_us"), pair("p99_us"), *ratios("p99_us"), pair("max_us"), waited, resets, did]


def noticed_by(result: Result) -> list[str]:
    """Whom the attack harmed more than the goal allows: a reset, a median above 1.5 times, a p99 above twice."""
    return [
        who
        for who in result.bystanders
        if result.resets(who) or result.ratio(who, "p50_us") > MEDIAN_GOAL or result.ratio(who, "p99_us") > P99_GOAL
    ]


def show_account(console: Console, result: Result) -> None:
    """What the attacker was charged, as the proxy's status shows it."""
    if not result.account:
        return
    made = Table(title=f"{result.attack} over {result.queue}: accounts in the proxy", title_justify="left")
    used = [name for name in result.account[0]["used"] if any(row["used"][name] for row in result.account)]
    for name in ("tenant", *used, "refused"):
        made.add_column(name.replace("_", " "), justify="left" if name in ("tenant", "refused") else "right")
    for row in result.account:
        refused = ", ".join(f"{count:,} {name}" for name, count in row["refused"].items() if count)
        made.add_row(row["tenant"], *(f"{row['used'][name]:,}" for name in used), refused)
    console.print(made)


def as_json(result: Result) -> dict[str, Any]:
    figures = ("p50_us", "p99_us", "max_us")
    ratios = {
        who: {
            name: {"attacked": result.ratio(who, name), "control": result.control_ratio(who, name)} for name in figures
        }
        for who in result.bystanders
    }
    # asdict() counts the items of a Counter instead of copying it.
    return asdict(result) | {"done": dict(result.done), "ratios": ratios, "noticed_by": noticed_by(result)}


def line(result: Result) -> str:
    """One attack in a line, while the others are still to come."""
    verdict = "NOTICED" if noticed_by(result) else "held"
    each = [
        f"{who} tenant's median {result.ratio(who, 'p50_us'):.2f} times, p99 {result.ratio(who, 'p99_us'):.2f} times, "
        f"{result.resets(who)} resets"
        for who in result.bystanders
    ]
    return f"{result.attack} over {result.queue}: {verdict}; {'; '.join(each)}"
