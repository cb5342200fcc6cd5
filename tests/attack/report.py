"""Results as tables for people and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from .measure import Result

MEDIAN_GOAL, P99_GOAL = 1.5, 2.0


def table(results: list[Result]) -> Table:
    """One row an attack: the bystander's latency without and with it."""
    made = Table(title="A bystander's requests, without → with the attack", title_justify="left")
    for title in ("attack", "queue", "median µs", "ratio", "p99 µs", "ratio", "max µs", "resets", "the attack did"):
        text = title in ("attack", "queue", "the attack did")
        made.add_column(title, justify="left" if text else "right", no_wrap=title != "the attack did")
    for result in results:
        made.add_row(result.attack, result.queue, *cells(result))
    return made


def cells(result: Result) -> list[str]:
    def pair(figure: str) -> str:
        without, with_it = (result.median(figure, attacked=attacked) for attacked in (False, True))
        return f"{without:,.0f} → {with_it:,.0f}"

    did = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in result.done.items())
    return [
        pair("p50_us"),
        f"{result.ratio('p50_us'):.2f}",
        pair("p99_us"),
        f"{result.ratio('p99_us'):.2f}",
        pair("max_us"),
        str(result.resets),
        did,
    ]


def held(result: Result) -> bool:
    """Within the goal: the bystander is never reset, its median at most 1.5 times, its p99 at most twice."""
    return not result.resets and result.ratio("p50_us") <= MEDIAN_GOAL and result.ratio("p99_us") <= P99_GOAL


def show_account(console: Console, result: Result) -> None:
    """What the attacker was charged, as the proxy's status tells it."""
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
    ratios = {name: result.ratio(name) for name in figures}
    # asdict() counts the items of a Counter instead of copying it.
    return asdict(result) | {"done": dict(result.done), "ratios": ratios, "held": held(result)}


def line(result: Result) -> str:
    """One attack in a line, while the others are still to come."""
    verdict = "held" if held(result) else "NOTICED"
    return (
        f"{result.attack} over {result.queue}: {verdict}, median {result.ratio('p50_us'):.2f} times, "
        f"p99 {result.ratio('p99_us'):.2f} times, {result.resets} resets"
    )
