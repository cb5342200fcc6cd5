"""The figures over several result files, of several machines and days: the median of what each found, and the range.

With one file the range is that over its repetitions; with more, that over the files' medians.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from beds.page import put_between
from rich.console import Console
from rich.table import Table

from . import analysis, limits, picture
from .analysis import Figures, Spread
from .resultfile import Recorded, read
from .rows import ROWS, Row, needed
from .subjects import LABELS, WORKLOADS

SUFFIX = ".jsonl"
#: Where the figures are in a page.
BEGIN = "<!-- figures: begin (tests/bench/run --results --into) -->"
END = "<!-- figures: end -->"


@dataclass(frozen=True, slots=True)
class Measured:
    """One result file."""

    name: str
    environment: dict[str, Any]
    figures: Figures
    idle: dict[str, dict[str, float]]
    memory: dict[str, dict[str, float]]

    @classmethod
    def of(cls, name: str, recorded: Recorded) -> Measured:
        return cls(name, recorded.environment[-1], analysis.figures(recorded.runs), recorded.idle, recorded.memory)


@dataclass(frozen=True, slots=True)
class Line:
    """A row for one path, over all files that have it."""

    row: Row
    path: str
    values: Spread
    haproxy: Spread | None
    direct: Spread | None
    files: int


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Result files, and those of folders. FileNotFoundError when there is none."""
    found: list[Path] = []
    for given in paths:
        found += sorted(given.glob(f"*{SUFFIX}")) if given.is_dir() else [given] if given.exists() else []
    if not found:
        raise FileNotFoundError(
            2, f"no result file (*{SUFFIX}) in {', '.join(map(str, paths))}: --json FILE writes one"
        )
    return found


def _over(spreads: Sequence[Spread | None]) -> Spread | None:
    there = [found for found in spreads if found is not None]
    if len(there) == 1:
        return there[0]
    medians = [found.median for found in there]
    return Spread(median(medians), min(medians), max(medians)) if medians else None


def lines(measured: Sequence[Measured]) -> Iterator[Line]:
    """Every row and path that at least one file has."""
    for row in ROWS:
        for path in row.paths:
            having = [(one, value) for one in measured if (value := row.value(one.figures, path)) is not None]
            if not having:
                continue
            haproxy = _over([row.ratio(one.figures, path, row.haproxy) for one, _ in having])
            direct = _over([row.ratio(one.figures, path, row.direct) for one, _ in having])
            values = [value for _, value in having]
            yield Line(row, path, Spread(median(values), min(values), max(values)), haproxy, direct, len(having))


def _number(value: float) -> str:
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def _value(found: Spread) -> str:
    text = _number(found.median)
    return text if found.low == found.high else f"{text} ({_number(found.low)}–{_number(found.high)})"


def _ratio(found: Spread | None, over: str | None) -> str:
    if found is None:
        return ""
    spread = "" if found.low == found.high else f" ({found.low:.2f}–{found.high:.2f})"
    return f"{found.median:.2f}{spread}" + ("" if over is None else f", {over}")


def _cells(line: Line) -> tuple[str, str, str, str]:
    """The path, its figure and both ratios; which placement of direct TCP is in the last."""
    placement = None if line.row.direct is None else line.row.direct.removeprefix("direct-")
    return LABELS[line.path], _value(line.values), _ratio(line.haproxy, None), _ratio(line.direct, placement)


def _heads(of_section: Sequence[Line]) -> tuple[str, ...]:
    """Of its table: what it is compared with."""
    proxies = {line.row.haproxy for line in of_section}
    return "", "path", "measured", "÷ nginx" if "udp-proxy" in proxies else "÷ HAProxy", "÷ direct"


def _sections(measured: Sequence[Measured]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines(measured):
        found.setdefault(line.row.section, []).append(line)
    return found


def print_rows(console: Console, measured: Sequence[Measured]) -> None:
    """One table a section."""
    for section, of_section in _sections(measured).items():
        table = Table(title=section, title_justify="left")
        for number, head in enumerate(_heads(of_section)):
            table.add_column(head, justify="left" if number < 2 else "right")
        last = None
        for line in of_section:
            table.add_row("" if line.row is last else line.row.label, *_cells(line))
            last = line.row
        console.print(table)


def _limits(measured: Sequence[Measured]) -> Iterator[tuple[str, ...]]:
    """Of the newest file that has the workload: workload, path, busy shares of both cores, and what limits it."""
    wanted = needed()
    found: dict[str, list[limits.Limit]] = {}
    for one in sorted(measured, key=_date):
        of_file: dict[str, list[limits.Limit]] = {}
        for limit in limits.of(one.figures):
            if (limit.workload, limit.path) in wanted:
                of_file.setdefault(limit.workload, []).append(limit)
        found |= of_file
    for workload in WORKLOADS:
        for limit in found.get(workload.key, ()):
            peer = "" if limit.peer_share is None else f"{limit.peer_share:.0%}"
            busy = (f"{limit.host_share:.0%}", f"{limit.device_share:.0%}")
            yield limit.workload, LABELS[limit.path], *busy, peer, limit.reason


def _table(heads: Sequence[str], left: int, cells: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table; the first columns are text, the others numbers."""
    rule = "---|" * left + "---:|" * (len(heads) - left)
    return [f"| {' | '.join(heads)} |", f"|{rule}", *(f"| {' | '.join(row)} |" for row in cells), ""]


def _idle(measured: Sequence[Measured]) -> Iterator[tuple[str, ...]]:
    """Idle connections of the newest file that has them: bytes of each in application and proxy, CPU of both cores."""
    having = [one for one in measured if one.idle]
    for path, row in max(having, key=_date).idle.items() if having else ():
        proxy = _number(row["proxy_bytes_each"]) if "proxy_bytes_each" in row else ""
        busy = (f"{row['host_cpu']:.1%}", f"{row['device_cpu']:.1%}")
        yield path, f"{row['connections']:,.0f}", _number(row["host_bytes_each"]), proxy, *busy


def markdown(measured: Sequence[Measured], shown: Sequence[Sequence[str]] = ()) -> str:
    """The same as Markdown, with what limits each path, idle connections, and what it was measured on. Before all of it
    `shown`: the rows of the picture (picture.py)."""
    out = [f"## {picture.SECTION}", "", *_table(picture.HEADS, 1, shown)] if shown else []
    for section, of_section in _sections(measured).items():
        cells = [(line.row.label, *_cells(line)) for line in of_section]
        out += [f"## {section}", "", *_table(_heads(of_section), 2, cells)]
    busy = ("host core", "device core")
    limiting = [(workload, path, reason, *shares) for workload, path, *shares, reason in _limits(measured)]
    out += ["## What limits it", "", *_table(("workload", "path", "limit", *busy, "of that the peer"), 3, limiting)]
    if idle := list(_idle(measured)):
        sizes = ("connections", "bytes each in the application", "in the proxy")
        out += ["## Idle connections", "", *_table(("path", *sizes, *busy), 1, idle)]
    heads = ("file", "date", "CPU", "cores", "Linux", "HAProxy", "commit", "repetitions")
    return "\n".join([*out, "## Measured on", "", *_table(heads, 3, map(_facts, measured))])


def _date(one: Measured) -> str:
    return str(one.environment["date"])


def _facts(one: Measured) -> tuple[str, ...]:
    """File, date, CPU, cores, kernel, HAProxy, commit, repetitions."""
    facts = one.environment
    counts = [len(v) for paths in one.figures.values() for metrics in paths.values() for v in metrics.values()]
    haproxy = facts["haproxy"].removeprefix("HAProxy version ").partition(" ")[0]
    where = (facts["cpu"], str(facts["cores"]), facts["kernel"], haproxy, facts["commit"])
    return one.name, _date(one)[:10], *where, str(max(counts, default=0))


def _where(one: Measured) -> str:
    name, date, cpu, cores, kernel, haproxy, commit, repetitions = _facts(one)
    return (
        f"{name}: {date}, {cpu}, {cores} cores, Linux {kernel}, HAProxy {haproxy}, commit {commit}, "
        f"{repetitions} repetitions"
    )


def load(paths: Sequence[Path]) -> list[Measured]:
    """What these files have, or those in these folders."""
    return [Measured.of(path.name, read(path)) for path in files_of(paths)]


def put_into(page: Path, text: str) -> None:
    """Replaces what is between the markers of a page. ValueError when it has none."""
    put_between(page, BEGIN, END, text)


def show(console: Console, paths: Sequence[Path], as_markdown: bool) -> None:
    """Prints the range over these files, or those in these folders."""
    measured = load(paths)
    if as_markdown:
        print(markdown(measured), end="")
        return
    print_rows(console, measured)
    for one in measured:
        console.print(_where(one), highlight=False)
    if len(measured) > 1:
        console.print("Medians over the files; in brackets the range of the files' medians.", highlight=False)
    else:
        console.print("In brackets the range over the repetitions.", highlight=False)
