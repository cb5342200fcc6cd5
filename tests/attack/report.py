"""Summaries as tables, for people and for the documentation."""

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
    *(f"{name}{what}" for name in SHARES for what in (" µs", " ratio", " control", " ÷ control")),
    "blank",
    "p99 of all",
    "round's CPU",
    "core waited for",
    "stolen ms",
    "resets",
    "others on the core",
    "the attack did",
)


def table(summaries: list[Summary]) -> Table:
    """One row an attack and bystander: its latency without and with it."""
    title = "A bystander's requests, without → with the attack (control: with the attack on another proxy of the core)"
    made = Table(title=title, title_justify="left")
    for heading in _HEADINGS:
        made.add_column(heading, justify="left" if heading in _TEXT else "right", no_wrap=heading not in _TEXT[4:])
    for summary in summaries:
        for who in summary.figures:
            made.add_row(summary.attack, summary.queue, who, *_cells(summary, who))
    return made


def _ratio(ratio: Ratio | None) -> str:
    return str(ratio) if ratio else ""


def _latency(figure: Figure) -> list[str]:
    pair = f"{figure.quiet_us:,.0f} → {figure.attacked_us:,.0f}"
    return [pair, *map(_ratio, (figure.attack, figure.control, figure.own))]


def _rounds(summary: Summary, kind: str) -> str:
    """The bounds of 99 % of the rounds, and of all of them, in microseconds."""
    bounds = (rounds_within(summary.rounds[kind], share) for share in (0.99, 1.0))
    return " / ".join(f"{float(bound) * 1e6:g}" if bound != "-" else bound for bound in bounds)


def _cells(summary: Summary, who: str) -> list[str]:
    figures = summary.figures[who]
    return [
        summary.verdict(who),
        *(cell for name in SHARES for cell in _latency(figures[name])),
        _ratio(figures["p99"].blank),
        _ratio(figures["p99"].wall),
        " → ".join(_rounds(summary, kind) for kind in ("quiet", "attacked")),
        " → ".join(f"{part:.0%}" for part in summary.waited.values()),
        f"{summary.stolen_ms:,.0f}",
        str(summary.resets[who]),
        ", ".join(f"{name} {ms:.0f} ms" for name, ms in summary.others.items()),
        ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in summary.done.items()),
    ]


def markdown(summaries: list[Summary], who: str) -> str:
    """The table of deploy/docs/attacks.md: a line an attack, of one bystander."""
    lines = [
        "| attack | queue | median | control | p99 | control | p99 ÷ control | blank | rounds | verdict | state |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for summary in summaries:
        p50, p99 = (summary.figures[who][name] for name in SHARES)
        cells = (
            f"`{summary.attack}`",
            summary.queue,
            f"{p50.attack.value:.2f}",
            f"{p50.control.value:.2f}" if p50.control else "-",
            _range(p99.attack),
            _range(p99.control),
            _range(p99.own),
            _range(p99.blank),
            _rounds(summary, "attacked"),
            summary.verdict(who),
            summary.commit,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _range(ratio: Ratio | None) -> str:
    return f"{ratio.value:.1f} ({ratio.low:.1f}-{ratio.high:.1f})" if ratio else "-"


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
    each = [
        f"{who} tenant's {summary.verdict(who)}: median {figures['p50'].attack}, p99 {figures['p99'].attack}"
        for who, figures in summary.figures.items()
    ]
    return f"{summary.attack} over {summary.queue}: {'; '.join(each)}; rounds {_rounds(summary, 'attacked')} µs"
