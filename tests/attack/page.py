"""deploy/docs/attacks.md: what was shown, in a few lines, and the tables. Made from result files."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from beds.page import put_between

from .attacks import ATTACKS
from .report import rounds
from .samples import Ratio
from .summary import SHARES, Figure, Summary, rounds_within

RESULTS = Path(__file__).with_name("results")
PAGE = Path(__file__).resolve().parents[2] / "deploy" / "docs" / "attacks.md"
SUFFIX = ".jsonl"
#: The lines of the page between which the two parts are.
SHOWN = ("<!-- shown: begin (tests/attack/run --into) -->", "<!-- shown: end -->")
TABLES = ("<!-- tables: begin (tests/attack/run --into) -->", "<!-- tables: end -->")
_QUEUES = {"afxdp": "AF_XDP", "shm": "shared memory", "shm-loopback": "shared memory, on loopback"}
_WHO = {"own": "the attacker's own tenant", "other": "another tenant"}
_COLUMNS = 100
_MEDIAN, _P99 = SHARES


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Result files, and those in folders. FileNotFoundError when there is none."""
    paths = list(paths)
    found = [file for path in paths for file in (sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path])]
    if not found or (missing := [str(file) for file in found if not file.is_file()]):
        raise FileNotFoundError(2, f"no result file: {', '.join(missing if found else map(str, paths))}")
    return found


def read(paths: Iterable[Path]) -> list[Summary]:
    """The summaries in these files, in the order of the attacks; of an attack over a queue, the last one. ValueError
    names the line that is wrong."""
    kept: dict[tuple[str, str], Summary] = {}
    for path in files_of(paths):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                summary = Summary.read(line)
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: not a line of a result file: {error}") from None
            kept[summary.queue, summary.attack] = summary
    order = {attack.name: number for number, attack in enumerate(ATTACKS)}
    return sorted(kept.values(), key=lambda one: (list(_QUEUES).index(one.queue), order.get(one.attack, len(order))))


def put_into(page: Path, summaries: Sequence[Summary]) -> None:
    """Makes both parts of the page again. ValueError when there is nothing to show, or no place for it."""
    if not summaries:
        raise ValueError("no attack was measured")
    if untraced := [_name(one) for one in summaries if not one.traced]:
        raise ValueError(f"measured without a trace of the scheduler, which takes root: {', '.join(untraced)}")
    put_between(page, *SHOWN, shown(summaries))
    put_between(page, *TABLES, tables(summaries))


# --- what was shown ---------------------------------------------------------------------------------------------


def shown(summaries: Sequence[Summary]) -> str:
    """In a few lines."""
    verdicts = Counter(summary.verdict(who) for summary in summaries for who in summary.bystanders)
    resets = sum(sum(summary.resets.values()) for summary in summaries)
    shown_always = ("held", "bounded", "core", "missed", "open")
    counts = ", ".join(
        f"{verdicts[name]} *{name}*" for name in (*shown_always, "reset") if verdicts[name] or name in shown_always
    )
    items = [
        f"{'No connection' if not resets else f'{resets} connections'} of a bystander "
        f"{'was' if resets <= 1 else 'were'} reset.",
        f"Verdicts: {counts}.",
        *(_middle(summaries, who) for who in summaries[0].bystanders),
        _longest(summaries),
    ]
    if noticed := _named(summaries, "missed", "reset"):
        items.append(f"Noticed, and not by the core alone: {noticed}.")
    if cores := _named(summaries, "core"):
        items.append(f"Noticed as much when another proxy of the core was attacked: {cores}.")
    return "\n".join([_where(summaries), "", *(_wrapped(item, "- ") for item in items), ""])


def _wrapped(text: str, head: str = "") -> str:
    return textwrap.fill(
        text, _COLUMNS, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip


def _where(summaries: Sequence[Summary]) -> str:
    places = {tuple(one.measured_on.items()): one for one in summaries}
    found = [
        f"on {one.measured_on['date']}, {one.measured_on['cores']} cores of {one.measured_on['cpu']}, "
        f"Linux {one.measured_on['kernel']}, commit {one.commit}"
        for one in places.values()
    ]
    names = len({one.attack for one in summaries})
    return _wrapped(f"{names} attacks, {len(summaries)} rows: {'; '.join(dict.fromkeys(found))}.")


def _middle(summaries: Sequence[Summary], who: str) -> str:
    found = [(one, figures[_MEDIAN]) for one in summaries if (figures := one.figures(who))]
    if not found:
        return f"Too few slots counted for a bystander of {_WHO[who]}."
    ratios = sorted(median.attack.value for _, median in found)
    beyond = [_name(one) for one, median in found if median.attack.value > median.goal]
    text = (
        f"With the attack, the median of a bystander of {_WHO[who]} was {ratios[0]:.2f} to {ratios[-1]:.2f} times what "
        f"it is without; in the middle row {ratios[len(ratios) // 2]:.2f}."
    )
    return f"{text} Beyond the goal: {', '.join(beyond)}." if beyond else text


def _longest(summaries: Sequence[Summary]) -> str:
    bounds = {
        share: max((float(bound), _name(one)) for one in summaries if (bound := _bound(one, share)) != "-")
        for share in (0.99, 1.0)
    }
    (usual, _), (longest, name) = bounds[0.99], bounds[1.0]
    return (
        f"In each row 99 % of the worker's rounds took at most {usual * 1000:g} ms of CPU time. The longest took "
        f"{longest * 1000:g} ms, with {name}."
    )


def _bound(summary: Summary, share: float) -> str:
    return rounds_within(summary.rounds["attacked"], share)


def _named(summaries: Sequence[Summary], *verdicts: str) -> str:
    names = [_name(one) for one in summaries if any(one.verdict(who) in verdicts for who in one.bystanders)]
    return ", ".join(names)


def _name(summary: Summary) -> str:
    return f"`{summary.attack}` over {_QUEUES[summary.queue]}"


# --- tables -----------------------------------------------------------------------------------------------------


def tables(summaries: Sequence[Summary]) -> str:
    """One for each kind of queue, and what is open."""
    lines: list[str] = []
    for queue, title in _QUEUES.items():
        if of_queue := [one for one in summaries if one.queue == queue]:
            lines += [f"### Over {title}", "", *_table(of_queue), ""]
    lines += ["### What is open", "", *_open(summaries), ""]
    return "\n".join(lines)


def _table(summaries: Sequence[Summary]) -> list[str]:
    lines = [
        "| attack | median | control | p99 | control | p99 ÷ control | µs | slots | rounds | verdict | other tenant |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for summary in summaries:
        figures = summary.figures("own")
        cells = (
            f"`{summary.attack}`",
            *(_latencies(figures) if figures else ["-"] * 6),
            str(len(summary.counted)),
            rounds(summary, "attacked"),
            summary.verdict("own"),
            summary.verdict("other") if "other" in summary.bystanders else "-",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _latencies(figures: dict[str, Figure]) -> list[str]:
    median, p99 = figures[_MEDIAN], figures[_P99]
    control = f"{median.control.value:.2f}" if median.control else "-"
    quiet = f"{median.quiet_us:,.0f}, {p99.quiet_us:,.0f}"
    return [_range(median.attack, 2), control, *(_range(one, 1) for one in (p99.attack, p99.control, p99.own)), quiet]


def _range(ratio: Ratio | None, digits: int) -> str:
    return f"{ratio.value:.{digits}f} ({ratio.low:.{digits}f}-{ratio.high:.{digits}f})" if ratio else "-"


def _open(summaries: Sequence[Summary]) -> list[str]:
    rows = [
        f"| `{one.attack}` | {_QUEUES[one.queue]} | {_WHO[who]} | {one.closed_by(who)} |"
        for one in summaries
        for who in one.bystanders
        if one.verdict(who) == "open"
    ]
    if not rows:
        return ["Nothing."]
    return ["| attack | queue | bystander of | what would close it |", "|---|---|---|---|", *rows]
