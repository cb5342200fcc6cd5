"""Summaries as tables, for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from .samples import Ratio
from .summary import SHARES, Figure, Summary, rounds_within

_TEXT = ("attack", "queue", "tenant", "verdict", "the attack did", "others on the core")
_HEADINGS = (
    "attack",
    "queue",
    "tenant",
    "verdict",
    "slots",
    *(f"{name}{what}" for name in SHARES for what in (" µs", " ratio", " control", " ÷ control")),
    "blank",
    "p99, nothing taken off",
    "round's CPU",
    "core waited for",
    "stolen ms",
    "resets",
    "others on the core",
    "the attack did",
)


def table(summaries: list[Summary]) -> Table:
    """One row an attack and bystander: its latency without and with it."""
    title = (
        "A bystander's requests, without → with the attack (control: with the attack on another proxy of the core); "
        "p50 and p99 are of the requests of a slot"
    )
    made = Table(title=title, title_justify="left")
    for heading in _HEADINGS:
        made.add_column(heading, justify="left" if heading in _TEXT else "right", no_wrap=heading not in _TEXT[4:])
    for summary in summaries:
        for who in summary.bystanders:
            made.add_row(summary.attack, summary.queue, who, *_cells(summary, who))
    return made


def _ratio(ratio: Ratio | None) -> str:
    return str(ratio) if ratio else ""


def _latency(figure: Figure) -> list[str]:
    pair = f"{figure.quiet_us:,.0f} → {figure.attacked_us:,.0f}"
    return [pair, *map(_ratio, (figure.attack, figure.control, figure.own))]


def rounds(summary: Summary, kind: str) -> str:
    """The bounds of 99 % of the rounds, and of all of them, in microseconds."""
    bounds = (rounds_within(summary.rounds[kind], share) for share in (0.99, 1.0))
    return " / ".join(f"{float(bound) * 1e6:g}" if bound != "-" else bound for bound in bounds)


def _cells(summary: Summary, who: str) -> list[str]:
    figures = summary.figures(who)
    latencies = [cell for figure in figures.values() for cell in _latency(figure)] or [""] * 4 * len(SHARES)
    p99 = figures.get("p99")
    return [
        summary.verdict(who),
        f"{len(summary.counted)} of {summary.measured}",
        *latencies,
        _ratio(p99.blank if p99 else None),
        _ratio(p99.wall if p99 else None),
        " → ".join(rounds(summary, kind) for kind in ("quiet", "attacked")),
        " → ".join(f"{part:.0%}" for part in summary.waited.values()),
        f"{summary.stolen_ms:,.0f}",
        str(summary.resets[who]),
        ", ".join(f"{name} {ms:.0f} ms" for name, ms in summary.others.items()),
        ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in summary.done.items()),
    ]


def show_account(console: Console, summary: Summary) -> None:
    """What the attacker was charged, as the proxy's status shows it."""
    if not summary.account:
        return
    title = f"{summary.attack} over {summary.queue}: accounts in the proxy"
    made = Table(title=title, title_justify="left")
    used = [name for name in summary.account[0]["used"] if any(row["used"][name] for row in summary.account)]
    for name in ("tenant", *used, "refused"):
        made.add_column(name.replace("_", " "), justify="left" if name in ("tenant", "refused") else "right")
    for row in summary.account:
        refused = ", ".join(f"{count:,} {name}" for name, count in row["refused"].items() if count)
        made.add_row(row["tenant"], *(f"{row['used'][name]:,}" for name in used), refused)
    console.print(made)


def line(summary: Summary) -> str:
    """One attack in a line, while the others are still to come."""
    each = []
    for who in summary.bystanders:
        figures = ", ".join(f"{name} {figure.attack}" for name, figure in summary.figures(who).items())
        open_by = f"; to close it: {summary.closed_by(who)}" if summary.verdict(who) == "open" else ""
        each.append(f"{who} tenant's {summary.verdict(who)}: {figures or 'no figures'}{open_by}")
    slots = f"{len(summary.counted)} of {summary.measured} slots count"
    return f"{summary.attack} over {summary.queue}: {'; '.join(each)}; {slots}; rounds {rounds(summary, 'attacked')} µs"
