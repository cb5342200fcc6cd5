"""Metrics as they are declared: a name, what it means, and which figures it is made of.

A program has a table of them (xts_proxy/metric_catalogue.py, xts_agent/metric_catalogue.py) and rows of figures: of a
worker, of a queue, of a tenant. `families()` makes of both what prometheus_client writes. Names follow Prometheus's
rules: base units (seconds, bytes) at the end, `_total` behind counters, a label where a sum over it means something.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as PrometheusFamily
from prometheus_client.utils import floatToGoString

#: What prometheus_client writes: a metric and its samples.
Family = PrometheusFamily
#: Labels of a row, and its figures: a number, or numbers by a name.
Row = tuple[Mapping[str, str], Mapping[str, Any]]

_NAME = re.compile(r"xts_[a-z0-9]+(_[a-z0-9]+)*")
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Metric:
    """`figures`: value of the label -> name of a figure; without a label, "" -> its name. `each`: a figure that is
    numbers by a name, each a value of the label. `per`: what a figure is divided by."""

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
        """How its samples are called; those of a histogram have _bucket, _sum and _count behind it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @property
    def used(self) -> Iterator[str]:
        """The figures that it is made of."""
        yield from self.figures.values()
        if self.each:
            yield self.each


def counter(name: str, help: str, figure: str, *, ns: bool = False) -> Metric:
    """Of one figure; `ns`: it is in nanoseconds, and the metric in seconds."""
    return Metric(name, "counter", help, {"": figure}, per=_NS_PER_S if ns else 1)


def gauge(name: str, help: str, figure: str) -> Metric:
    return Metric(name, "gauge", help, {"": figure})


def counter_by(name: str, help: str, label: str, **figures: str) -> Metric:
    """Of several figures, each with its value of the label."""
    return Metric(name, "counter", help, figures, label)


def counter_each(name: str, help: str, label: str, figure: str) -> Metric:
    """Of a figure that is numbers by a name."""
    return Metric(name, "counter", help, label=label, each=figure)


def gauge_each(name: str, help: str, label: str, figure: str) -> Metric:
    return Metric(name, "gauge", help, label=label, each=figure)


def histogram(name: str, help: str, figure: str) -> Metric:
    """Of a figure {"counts": {bound: number}, "sum_ns": ...}: how many there were within each bound and not within the
    one before; the last bound is "+Inf"."""
    return Metric(name, "histogram", help, {"": figure}, per=_NS_PER_S)


def families(metrics: Iterable[Metric], rows: Sequence[Row]) -> Iterator[Family]:
    """What prometheus_client writes. KeyError: a figure is missing. Rows have the same names of labels."""
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
