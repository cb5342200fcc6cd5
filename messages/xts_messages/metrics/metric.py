"""Declarations of metrics: a name, a meaning, and the figures of which each is made.

A program has a table of them (xts_proxy/metrics/metric_catalogue.py, xts_agent/metric_catalogue.py), and rows of
figures of a worker, a queue or a tenant. From both, `families()` makes what prometheus_client writes. Names follow
Prometheus's rules: base units (seconds, bytes) at the end, `_total` after counters, and a label where the sum over it
has a meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as PrometheusFamily
from prometheus_client.utils import floatToGoString

#: A metric and its samples, as prometheus_client writes them.
Family = PrometheusFamily
#: The labels of a row, and its figures: numbers, or dictionaries of numbers.
Row = tuple[Mapping[str, str], Mapping[str, Any]]

_NAME = re.compile(r"xts_[a-z0-9]+(_[a-z0-9]+)*")
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Metric:
    """`figures`: value of the label -> name of a figure; without a label, "" -> its name. `each`: a figure that is a
    dictionary of numbers, whose keys are the values of the label. `per`: the divisor of a figure."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    figures: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    each: str = ""
    per: float = 1

    def __post_init__(self) -> None:
        assert _NAME.fullmatch(self.name) and not self.name.endswith("_total"), self.name
        assert self.help.endswith("."), self.name

    @property
    def series(self) -> str:
        """The name of its samples; those of a histogram have _bucket, _sum and _count appended."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @property
    def used(self) -> Iterator[str]:
        """The figures of which it is made."""
        yield from self.figures.values()
        if self.each:
            yield self.each


def counter(name: str, help: str, figure: str, *, ns: bool = False) -> Metric:
    """From one figure; `ns`: the figure is in nanoseconds, and the metric in seconds."""
    return Metric(name, "counter", help, {"": figure}, per=_NS_PER_S if ns else 1)


def gauge(name: str, help: str, figure: str, *, ns: bool = False) -> Metric:
    return Metric(name, "gauge", help, {"": figure}, per=_NS_PER_S if ns else 1)


def counter_by(name: str, help: str, label: str, **figures: str) -> Metric:
    """From several figures, each with its value of the label."""
    return Metric(name, "counter", help, figures, label)


def counter_each(name: str, help: str, label: str, figure: str) -> Metric:
    """From a figure that is a dictionary of numbers."""
    return Metric(name, "counter", help, label=label, each=figure)


def gauge_each(name: str, help: str, label: str, figure: str) -> Metric:
    return Metric(name, "gauge", help, label=label, each=figure)


def histogram(name: str, help: str, figure: str) -> Metric:
    """From a figure {"counts": {bound: number}, "sum_ns": ...}: the number within each bound and above the one before;
    the last bound is "+Inf"."""
    return Metric(name, "histogram", help, {"": figure}, per=_NS_PER_S)


def families(metrics: Iterable[Metric], rows: Sequence[Row]) -> Iterator[Family]:
    """The input for prometheus_client. KeyError: a figure is missing. All rows have the same label names."""
    if not rows:
        return
    for metric in metrics:
        names = [*rows[0][0], *([metric.label] if metric.label else [])]
        yield _histogram(metric, names, rows) if metric.kind == "histogram" else _plain(metric, names, rows)


def _plain(metric: Metric, names: list[str], rows: Sequence[Row]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family: Family = kind(metric.name, metric.help, labels=names)
    for labels, figures in rows:
        numbers = figures[metric.each] if metric.each else {value: figures[f] for value, f in metric.figures.items()}
        for value, number in numbers.items():
            mine = [*labels.values(), *([value] if metric.label else [])]
            family.add_metric(mine, number / metric.per)  # type: ignore[attr-defined]
    return family


def _histogram(metric: Metric, names: list[str], rows: Sequence[Row]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=names)
    for labels, figures in rows:
        found = figures[metric.figures[""]]
        within, buckets = 0, []
        for bound, count in found["counts"].items():
            within += count
            buckets.append((str(floatToGoString(float(bound))), within))  # type: ignore[no-untyped-call]
        family.add_metric([*labels.values()], buckets, found["sum_ns"] / metric.per)
    return family
