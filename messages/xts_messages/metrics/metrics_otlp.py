"""Conversion of a metrics server's answer to OpenTelemetry's metrics, for the exporters of opentelemetry-sdk.

Prometheus and OpenTelemetry have the same kinds of metric. Names are kept (a counter's without `_total`), so that
alerts and dashboards find them again behind a collector. Counters and histograms are cumulative since their program
began.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from typing import Any

from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from xts_messages.version import __version__

_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}
_NS_PER_S = 1_000_000_000
_CUMULATIVE = export.AggregationTemporality.CUMULATIVE
#: The metric that identifies the program -> the program's name as a service.
_SERVICES = {"xts_proxy_info": "xts-proxy", "xts_agent_info": "xts-agent"}
_STARTS = ("xts_proxy_start_time_seconds", "xts_agent_start_time_seconds")


def converted(text: str, now_ns: int) -> export.MetricsData:
    """Converts Prometheus's text as of now_ns. ValueError: it is not such a text, or not from a program of ours."""
    families = {family.name: family for family in text_string_to_metric_families(text)}
    service = next((service for name, service in _SERVICES.items() if name in families), None)
    if service is None:
        raise ValueError("these are not the metrics of xts-proxy or xts-agent")
    started = [int(_only(families[name]) * _NS_PER_S) for name in _STARTS if name in families]
    start_ns = started[0] if started else now_ns
    metrics = [made for family in families.values() if (made := _metric(family, start_ns, now_ns))]
    info = next(families[name] for name in _SERVICES if name in families)
    resource = Resource(
        {
            "service.name": service,
            "service.version": info.samples[0].labels.get("version", "") if info.samples else "",
            "host.name": socket.gethostname(),
        }
    )
    scope = export.ScopeMetrics(InstrumentationScope("xts", __version__), metrics, "")
    return export.MetricsData([export.ResourceMetrics(resource, [scope], "")])


def _only(family: Metric) -> float:
    if len(family.samples) != 1:
        raise ValueError(f"{family.name} has {len(family.samples)} samples, not one")
    return float(family.samples[0].value)


def _unit(name: str) -> str:
    return next((unit for suffix, unit in _UNITS.items() if name.endswith(f"_{suffix}")), "")


def _metric(family: Metric, start_ns: int, now_ns: int) -> export.Metric | None:
    """None: it is of a kind that we do not use, or has no samples."""
    data: Any
    if family.type == "histogram":
        data = export.Histogram(list(_histograms(family, start_ns, now_ns)), _CUMULATIVE)
    elif family.type == "counter":
        data = export.Sum(list(_numbers(family, f"{family.name}_total", start_ns, now_ns)), _CUMULATIVE, True)
    elif family.type == "gauge":
        data = export.Gauge(list(_numbers(family, family.name, 0, now_ns)))
    else:
        return None
    return export.Metric(family.name, family.documentation, _unit(family.name), data) if data.data_points else None


def _numbers(family: Metric, name: str, start_ns: int, now_ns: int) -> Iterator[export.NumberDataPoint]:
    for sample in family.samples:
        if sample.name == name:
            yield export.NumberDataPoint(dict(sample.labels), start_ns, now_ns, sample.value)


def _histograms(family: Metric, start_ns: int, now_ns: int) -> Iterator[export.HistogramDataPoint]:
    within: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in family.samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        if sample.name == f"{family.name}_bucket":
            within.setdefault(labels, {})[float(sample.labels["le"])] = sample.value
        elif sample.name == f"{family.name}_sum":
            sums[labels] = sample.value
    for labels, counts in within.items():
        bounds = sorted(counts)
        sums_within = [int(counts[bound]) for bound in bounds]
        yield export.HistogramDataPoint(
            dict(labels),
            start_ns,
            now_ns,
            count=sums_within[-1],
            sum=sums.get(labels, 0.0),
            bucket_counts=_differences(sums_within),
            explicit_bounds=bounds[:-1],  # without the last one, which is infinite
            min=None,  # type: ignore[arg-type]  # not known; the encoder leaves it out
            max=None,  # type: ignore[arg-type]
        )


def _differences(numbers: Iterable[int]) -> list[int]:
    before, found = 0, []
    for number in numbers:
        found.append(number - before)
        before = number
    return found
