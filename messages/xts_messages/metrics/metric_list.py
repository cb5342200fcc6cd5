"""The metrics that a program has, as a list for people and programs: `--list-metrics`, and the reference page."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xts_messages.terminal import terminal

if TYPE_CHECKING:  # it imports prometheus_client, which the commands do without
    from .metric import Metric

#: What the metrics are of -> the labels of its rows, and the metrics. Each catalogue has one.
Parts = Mapping[str, "tuple[tuple[str, ...], tuple[Metric, ...]]"]
_COLUMNS_MAX = 100


def add_list_metrics(parser: argparse.ArgumentParser) -> None:
    """--list-metrics and its --json."""
    parser.add_argument(
        "--list-metrics",
        action="store_true",
        help="print the metrics that can be served: name, kind, labels and meaning; and exit",
    )
    parser.add_argument("--json", action="store_true", dest="json_list", help="with --list-metrics: print JSON instead")


def list_asked(parser: argparse.ArgumentParser, options: argparse.Namespace) -> bool:
    """Whether --list-metrics was given. --json without it is a mistake of the command line."""
    if options.json_list and not options.list_metrics:
        parser.error("--json without --list-metrics: give both")
    return bool(options.list_metrics)


def listing(parts: Parts, options: argparse.Namespace) -> str:
    """What --list-metrics prints."""
    found = list(rows(parts))
    if options.json_list:
        return json.dumps(found, indent=2)
    columns = min(_COLUMNS_MAX, terminal.columns(piped=_COLUMNS_MAX) or _COLUMNS_MAX)
    lines: list[str] = []
    part = ""
    for row in found:
        if row["part"] != part:
            part = row["part"]
            lines += ["", part] if lines else [part]
        labels = f" by {', '.join(row['labels'])}" if row["labels"] else ""
        lines.append(f"  {row['name']}  {row['kind']}{labels}")
        lines += textwrap.wrap(row["meaning"], columns, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)


def rows(parts: Parts) -> Iterator[dict[str, Any]]:
    """A row for each metric, in the order in which they are served."""
    for title, (of_row, metrics) in parts.items():
        for metric in metrics:
            labels = [*of_row, *([metric.label] if metric.label else [])]
            yield {
                "name": metric.series,
                "kind": metric.kind,
                "labels": labels,
                "part": title,
                "meaning": metric.help,
            }
