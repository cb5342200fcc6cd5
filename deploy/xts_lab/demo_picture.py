"""The demo's picture: bars in the terminal, the verdict in a sentence, where it loses, and the same as a drawing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.text import Text

from .demo_measure import WAYS, Figure, Found, Row
from .privilege import LabError

_BAR = 34
_EIGHTHS = " ▏▎▍▌▋▊▉"
_COLOURS = {"kernel": "bright_black", "haproxy": "yellow", "afxdp": "green", "shm": "bright_green"}
_DRAWN = {"kernel": "#8c8c8c", "haproxy": "#d9a441", "afxdp": "#2f7d4f", "shm": "#58b47c"}
#: A smaller ratio is within the variation of rounds.
_WORSE = 1.1
#: If other programs used more of a core, the figures include theirs.
BUSY_MAX = 0.05
#: From here on the figures decide nothing.
NO_VERDICT = 0.25


def title_of(row: Row, way: str) -> str:
    """The title of a bar."""
    if way == "kernel":
        return "kernel TCP + OpenSSL" if row.tls else "kernel TCP"
    if way == "haproxy":
        return "HAProxy doing TLS" if row.tls else "HAProxy"
    return f"XTS {way}"


def heading(row: Row) -> str:
    """The heading of a group of bars."""
    if row.unit == "µs latency":
        return f"{row.label}, median, µs"
    return f"{row.label}: host CPU, {'s per GB' if row.unit == 's/GB' else 'µs'}"


def number(value: float) -> str:
    """About three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _rate(row: Row, figure: Figure) -> str:
    return f"{figure.rate:.1f} Gbit/s" if row.unit == "s/GB" else f"{figure.rate:,.0f}/s"


def bar(share: float, width: int = _BAR) -> str:
    """A bar of this share of the width, 0 to 1, in eighths of a column; at least one eighth."""
    eighths = max(1, round(share * width * 8))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + _EIGHTHS[rest].strip()


def _of_row(found: Found, row: Row) -> dict[str, Figure]:
    return {way: found.figures[row.key, way] for way in WAYS if (row.key, way) in found.figures}


def picture(found: Found, rows: Sequence[Row]) -> Iterator[Text]:
    """Lines for a terminal. Bars of one group have the same scale."""
    for row in rows:
        figures = _of_row(found, row)
        if not figures:
            continue
        longest = max(figure.value for figure in figures.values()) or 1.0
        yield Text(heading(row), style="bold")
        for way, figure in figures.items():
            line = Text(f"  {title_of(row, way):<21}")
            line.append(f"{bar(figure.value / longest):<{_BAR}}", style=_COLOURS[way])
            line.append(f" {number(figure.value):>7}")
            line.append(f"  {_rate(row, figure):>12}", style="dim")
            yield line


# --- what it says ---------------------------------------------------------------------------------------------


def _ratios(found: Found, rows: Iterable[Row], baseline: str, ways: Sequence[str] = ("afxdp", "shm")) -> list[float]:
    ratios = []
    for row in rows:
        figures = _of_row(found, row)
        if baseline in figures and figures[baseline].value:
            ratios += [figures[way].value / figures[baseline].value for way in ways if way in figures]
    return ratios


def _percent(ratios: Sequence[float]) -> str:
    low, high = round(100 * min(ratios)), round(100 * max(ratios))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _list(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def verdict(found: Found, rows: Sequence[Row]) -> str:
    """One sentence; empty without figures to compare. Plain bulk is not in it, because losses have a sentence of their
    own."""
    gaining = [row for row in rows if row.short and _ratios(found, [row], "kernel")]
    if not gaining:
        return ""
    parts = [f"{row.short} {_percent(_ratios(found, [row], 'kernel'))}" for row in gaining]
    parts[0] = parts[0].replace(gaining[0].short, f"{gaining[0].short} costs the host", 1)
    parts[0] += " of the CPU that kernel TCP takes"
    sentence = _list(parts)
    if others := [_percent(ratios) for row in gaining if (ratios := _ratios(found, [row], "haproxy"))]:
        sentence += f"; of what HAProxy leaves it to do {_list(others)}"
    return f"{sentence[0].upper()}{sentence[1:]}."


def throughput(found: Found, rows: Sequence[Row]) -> str:
    """The throughput compared with the other paths, in a sentence."""
    rates: dict[str, list[float]] = {}
    for row in rows:
        figures = _of_row(found, row)
        for baseline in ("haproxy", "kernel"):
            if row.unit != "µs latency" and baseline in figures and figures[baseline].rate:
                of_row = [figures[way].rate / figures[baseline].rate for way in ("afxdp", "shm") if way in figures]
                rates.setdefault(baseline, []).extend(of_row)
    parts = [f"{_percent(rates['haproxy'])} of HAProxy's"] if rates.get("haproxy") else []
    if rates.get("kernel"):
        parts.append(f"{_percent(rates['kernel'])} of direct TCP's, for here one core is device and peer at once")
    return f"Throughput: {'; '.join(parts)}." if parts else ""


def _why(row: Row, way: str, loopback: bool) -> str:
    if row.unit == "s/GB" and way == "afxdp":
        return "on veth AF_XDP copies each byte twice more, where kernel TCP hands pages over"
    if row.key == "latency":
        return "the device is one hop more"
    if row.key == "bulk" and loopback:
        return "loopback TCP has no network to work for"
    return ""


def losses(found: Found, rows: Sequence[Row], loopback: bool) -> Iterator[str]:
    """The cases where XTS costs more than one of the two others, and why, if that is known."""
    for row in rows:
        for way in ("afxdp", "shm"):
            ratios = [(name, ratio) for name in WAYS[:2] for ratio in _ratios(found, [row], name, (way,))]
            worse = [f"{ratio:.1f} times {title_of(row, name)}" for name, ratio in ratios if ratio >= _WORSE]
            if worse:
                why = _why(row, way, loopback)
                yield f"{row.label}, {way}: {', '.join(worse)}{': ' if why else ''}{why}."


def print_all(console: Console, found: Found, rows: Sequence[Row], loopback: bool) -> None:
    """Prints picture, verdict and losses. If the machine was busy, a warning comes first, and again last."""
    busy = found.foreign_share
    warning = f"Other programs had {busy:.0%} of a core meanwhile: do not rely on the figures."
    if busy > BUSY_MAX:
        console.print(warning, style="yellow", highlight=False)
    console.print("[dim]Bars: what it costs, less is better. On the right: what went through.[/]", highlight=False)
    for line in picture(found, rows):
        console.print(line)
    if busy > NO_VERDICT:
        console.print(f"No verdict. {warning}", style="yellow", highlight=False)
        return
    rough = "Roughly, with what else ran: " if busy > BUSY_MAX else ""
    if sentence := verdict(found, rows):
        console.print(f"{rough}[bold green]{sentence}[/]", highlight=False)
    if sentence := throughput(found, rows):
        console.print(f"{rough}{sentence}", highlight=False)
    for loss in losses(found, rows, loopback):
        console.print(f"{rough}[yellow]Costs more:[/] {loss}", highlight=False)
    if busy > BUSY_MAX:
        console.print(warning, style="yellow", highlight=False)


# --- the drawing ----------------------------------------------------------------------------------------------

#: One column, as wide as a telephone, where it is shown nearly at this size: letters of 11 points are readable there.
_WIDTH_IN, _GROUP_IN, _FRAME_IN = 5.2, 1.28, 0.95
_LETTERS_PT, _HEADING_PT = 11, 11.5
#: A reader who prefers dark pages gets a dark picture, as far as the page leaves that to the reader's system.
_DARK = (
    "@media (prefers-color-scheme: dark) { text { fill: #e6e6e6 !important } "
    '[style*="#ffffff"] { fill: #0d1117 !important } [style*="#444444"] { stroke: #ffffff !important } '
    '[style*="stroke: #000000"] { stroke: #8c8c8c !important } }'
)


def _draw_group(axis: object, found: Found, row: Row) -> None:
    figures = _of_row(found, row)
    ways = list(figures)
    values = [figures[way].value for way in ways]
    ranges = [
        [figures[way].value - figures[way].low for way in ways],
        [figures[way].high - figures[way].value for way in ways],
    ]
    axis.barh(  # type: ignore[attr-defined]
        [title_of(row, way) for way in ways],
        values,
        xerr=ranges,
        color=[_DRAWN[way] for way in ways],
        ecolor="#444444",
        capsize=2,
    )
    axis.invert_yaxis()  # type: ignore[attr-defined]
    axis.set_title(heading(row), fontsize=_HEADING_PT, loc="left", fontweight="bold", x=-0.53)  # type: ignore[attr-defined]
    axis.tick_params(labelsize=_LETTERS_PT, length=0)  # type: ignore[attr-defined]
    axis.set_xticks([])  # type: ignore[attr-defined]
    for side in ("top", "right", "bottom"):
        axis.spines[side].set_visible(False)  # type: ignore[attr-defined]
    reach = max(figure.high for figure in figures.values())
    axis.set_xlim(0, reach * 1.3)  # type: ignore[attr-defined]
    for place, way in enumerate(ways):
        at = figures[way].high + reach * 0.03
        axis.text(at, place, number(figures[way].value), va="center", fontsize=_LETTERS_PT)  # type: ignore[attr-defined]


def check_drawing(path: Path) -> None:
    """LabError when nothing can be drawn here."""
    if find_spec("matplotlib") is None:
        raise LabError(f"{path}: drawing needs matplotlib: .venv/bin/pip install matplotlib")


def _where(found: Found) -> str:
    facts = found.environment
    ranges = found.ranges_over or f"{found.rounds} rounds"
    return (
        f"{facts['cpu']}: one core is the host, one all else. Linux {facts['kernel']},\n"
        f"{facts['date'].partition('T')[0]}. Thin lines: the range over {ranges}."
    )


def plot(path: Path, found: Found, rows: Sequence[Row]) -> None:
    """Draws it (.svg or .png). LabError when that cannot be done here."""
    check_drawing(path)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [row for row in rows if _of_row(found, row)]
    height = _GROUP_IN * len(shown) + _FRAME_IN
    with pyplot.rc_context({"svg.fonttype": "none", "svg.hashsalt": "xts", "font.family": "sans-serif"}):
        figure, axes = pyplot.subplots(len(shown), 1, figsize=(_WIDTH_IN, height), squeeze=False)
        for axis, row in zip(axes.flat, shown, strict=True):
            _draw_group(axis, found, row)
        title = "CPU of the host's core, and latency: less is better"
        at = 1 - 0.06 / height
        figure.text(0.01, at, title, va="top", fontsize=_HEADING_PT + 0.5, fontweight="bold")
        figure.text(0.01, 0.06 / height, _where(found), fontsize=_LETTERS_PT, color="#767676", linespacing=1.4)
        figure.subplots_adjust(left=0.36, right=0.99, top=1 - 0.6 / height, bottom=0.58 / height, hspace=0.42)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(figure)
    if path.suffix == ".svg":
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("</style>", f"{_DARK}</style>", 1), encoding="utf-8")
