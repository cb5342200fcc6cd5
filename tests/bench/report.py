"""Tables and plot of one run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from . import limits
from .analysis import Figures, Spread, ratio, spread
from .subjects import HAPROXY, LABELS, UDP_PROXY, WORKLOADS, Workload
from .targets import Verdict

BULK = (("gbit_s", "Gbit/s", 1), ("host_s_per_gb", "host s/GB", 3), ("device_s_per_gb", "device s/GB", 3))
_OPERATIONS = (
    ("rate", "per second", 0),
    ("p50_us", "p50 µs", 1),
    ("p99_us", "p99 µs", 1),
    ("host_us_per_op", "host µs each", 2),
    ("device_us_per_op", "device µs each", 2),
)
_DATAGRAMS = (
    ("rate", "per second", 0),
    ("delivered_rate", "arrived", 0),
    ("lossless_rate", "without loss", 0),
    *_OPERATIONS[1:],
)
#: What a workload is compared by, where it is not its first column.
_LEADS = {
    "request": "p50_us",
    "udp-request": "p50_us",
    "udp-send": "delivered_rate",
    "udp-lossless": "lossless_rate",
}


def _columns(workload: Workload) -> tuple[tuple[str, str, int], ...]:
    return BULK if workload.bulk else _DATAGRAMS if workload.name.startswith("udp-") else _OPERATIONS


def print_workloads(console: Console, figures: Figures) -> None:
    """One table a workload: medians, and the first column as ratio to HAProxy and direct TCP."""
    for workload in WORKLOADS:
        subjects = figures.get(workload.key)
        if not subjects:
            continue
        table = Table(title=workload.title, title_justify="left")
        table.add_column("path")
        for _, title, _ in _columns(workload):
            table.add_column(title, justify="right")
        lead = _LEADS.get(workload.name, _columns(workload)[0][0])
        proxy = UDP_PROXY if UDP_PROXY.key in subjects else HAPROXY
        table.add_column(f"÷ {proxy.label}", justify="right")
        direct = "direct-r0" if "direct-r0" in subjects else "direct-r1"
        table.add_column(f"÷ {direct.replace('-', ' ')}", justify="right")
        for key, metrics in subjects.items():
            cells = [
                f"{spread(metrics[name]).median:,.{digits}f}" if name in metrics else ""
                for name, _, digits in _columns(workload)
            ]
            cells += [
                _ratio_text(ratio(figures, workload.key, lead, key, baseline)) for baseline in (proxy.key, direct)
            ]
            table.add_row(LABELS[key], *cells)
        console.print(table)


def _ratio_text(value: Spread | None) -> str:
    return "" if value is None else f"{value.median:.2f} ({value.low:.2f}–{value.high:.2f})"


def print_limits(console: Console, figures: Figures) -> None:
    """What keeps each path from being faster."""
    table = Table(title="what limits it", title_justify="left")
    for title in ("workload", "path", "host core", "device core", "of that the peer", "limit"):
        table.add_column(title, justify="right" if title.endswith(("core", "peer")) else "left")
    for limit in limits.of(figures):
        peer = "" if limit.peer_share is None else f"{limit.peer_share:.0%}"
        busy = (f"{limit.host_share:.0%}", f"{limit.device_share:.0%}")
        table.add_row(limit.workload, LABELS[limit.path], *busy, peer, limit.reason)
    console.print(table)


def print_memory(console: Console, idle: dict[str, dict[str, float]], memory: dict[str, dict[str, float]]) -> None:
    """Idle connections and attached processes."""
    if idle:
        count = int(next(iter(idle.values()))["connections"])
        table = Table(title=f"{count:,} idle connections", title_justify="left")
        for title in (
            "path",
            "application bytes each",
            "proxy bytes each",
            "kernel slab bytes each",
            "host CPU",
            "device CPU",
            "set up s",
        ):
            table.add_column(title, justify="left" if title == "path" else "right")
        for key, row in idle.items():
            table.add_row(
                key,
                f"{row['host_bytes_each']:,.0f}",
                f"{row['proxy_bytes_each']:,.0f}" if "proxy_bytes_each" in row else "",
                f"{row['kernel_bytes_each']:,.0f}",
                f"{row['host_cpu']:.1%}",
                f"{row['device_cpu']:.1%}",
                f"{row['setup_s']:.1f}",
            )
        console.print(table)
    if memory:
        table = Table(title="memory of a Python process beyond bare Python, MB", title_justify="left")
        for title in ("path", "attached", "after 64 MB of bulk"):
            table.add_column(title, justify="left" if title == "path" else "right")
        for key, row in memory.items():
            table.add_row(key, f"{row['attached_bytes'] / 2**20:.1f}", f"{row['beyond_bare_bytes'] / 2**20:.1f}")
        console.print(table)


def print_targets(console: Console, verdicts: list[Verdict]) -> None:
    """Target, prototype, measured, met; those that this run did not measure are left out."""
    table = Table(title="targets", title_justify="left")
    for title in ("figure", "path", "target", "prototype", "measured (range)", "met"):
        table.add_column(title, justify="left" if title in ("figure", "path") else "right")
    for verdict in verdicts:
        if verdict.met is None:
            continue
        met = "[green]yes[/]" if verdict.met else "[red]no[/]"
        table.add_row(
            verdict.label,
            verdict.subject,
            verdict.aim,
            "" if verdict.prototype is None else f"{verdict.prototype:g}",
            _measured_text(verdict.measured),
            met,
        )
    console.print(table)


def _measured_text(value: Spread | None) -> str:
    if value is None:
        return ""
    return (
        f"{value.median:,.0f}"
        if value.median >= 100
        else _ratio_text(value)
        if value.low != value.high
        else f"{value.median:.3g}"
    )


def write_plot(path: Path, figures: Figures, environment: Mapping[str, object]) -> None:
    """One panel a workload and figure, one bar a path; whiskers are the range over repetitions."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [
        (workload, column)
        for workload in WORKLOADS
        if workload.key in figures
        for column in (
            (_columns(workload)[0], _columns(workload)[1])
            if workload.bulk
            else (_columns(workload)[1 if workload.name == "request" else 0], _columns(workload)[3])
        )
        if any(column[0] in metrics for metrics in figures[workload.key].values())
    ]
    rows = (len(panels) + 1) // 2
    figure, axes = pyplot.subplots(rows, 2, figsize=(12, 2.6 * rows), squeeze=False)
    for axis, (workload, (metric, title, _)) in zip(axes.flat, panels, strict=False):
        subjects = [key for key in figures[workload.key] if metric in figures[workload.key][key]]
        values = [spread(figures[workload.key][key][metric]) for key in subjects]
        errors = [
            [value.median - value.low for value in values],
            [value.high - value.median for value in values],
        ]
        colours = ["tab:blue" if not key.startswith(("direct", "haproxy")) else "tab:gray" for key in subjects]
        axis.barh([LABELS[key] for key in subjects], [value.median for value in values], xerr=errors, color=colours)
        axis.invert_yaxis()
        axis.set_title(f"{workload.title}: {title}", fontsize=9)
        axis.tick_params(labelsize=8)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    figure.suptitle(f"{environment['cpu']}, Linux {environment['kernel']}, {environment['date']}", fontsize=9)
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    figure.savefig(path)
    pyplot.close(figure)
