"""From runs to figures: medians over repetitions, and ratios taken within each repetition before the median.

The machine has slow and fast phases of tens of seconds; paths are interleaved, so neighbours in one
repetition share the phase and their ratio survives it where their absolutes do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import comb
from statistics import median

#: workload -> subject -> metric -> one value per repetition (by number).
Figures = Mapping[str, Mapping[str, Mapping[str, Mapping[int, float]]]]


#: Programs of a path whose processor time the client samples.
WATCHED = ("relay", "agent", "proxy")
#: Round trips of those processes that have a queue of their own, and of those that have the relay's.
_SERVED_BY = tuple(f"{kind}_{percentile}_us" for kind in ("own", "relayed") for percentile in ("p50", "p99"))


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one workload over one subject: what the client printed, as numbers."""

    workload: str
    subject: str
    repetition: int
    result: Mapping[str, float | str]
    placement: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median with the range it comes from."""

    median: float
    low: float
    high: float


def metrics(result: Mapping[str, float | str]) -> dict[str, float]:
    """The figures of one run, per second, per byte or per operation."""
    number = {key: float(value) for key, value in result.items() if not isinstance(value, str)}
    seconds, host, device = number["seconds"], number["host_core_s"], number["device_core_s"]
    out = {"host_share": host / seconds, "device_share": device / seconds}
    if "bytes" in number:
        gigabytes = number["bytes"] / 1e9
        out |= {
            "gbit_s": 8 * gigabytes / seconds,
            "host_s_per_gb": host / gigabytes,
            "device_s_per_gb": device / gigabytes,
        }
    if "operations" in number:
        operations = number["operations"]
        out |= {
            "rate": operations / seconds,
            "host_us_per_op": 1e6 * host / operations,
            "device_us_per_op": 1e6 * device / operations,
        }
    if "delivered" in number:
        out["delivered_rate"] = number["delivered"] / seconds
    if "lock_waits" in number:  # of the whole run, as is what it did
        thousands = number["all"] / (1e6 if "bytes" in number else 1) / 1000
        out["lock_waits"] = number["lock_waits"] / thousands
    out |= {
        f"{kind}_us_per_op": 1e6 * number[f"{kind}_s"] / number["operations"]
        for kind in WATCHED
        if f"{kind}_s" in number
    }
    if "own_s" in number:
        out["own_us_per_op"] = 1e6 * number["own_s"] / number["operations"]
    if "keys_s" in number:
        out["keys_us_per_op"] = 1e6 * number["keys_s"] / number["operations"]
        out["keys_share"] = number["keys_s"] / device if device else 0.0
    out |= {key: number[key] for key in ("resumed_share", *_SERVED_BY) if key in number}
    for percentile in ("p50", "p99"):
        if f"relayed_{percentile}_us" in number and f"own_{percentile}_us" in number:
            out[f"relayed_to_own_{percentile}"] = number[f"relayed_{percentile}_us"] / number[f"own_{percentile}_us"]
    out |= {key: number[key] for key in ("p50_us", "p90_us", "p99_us", "p999_us", "lossless_rate") if key in number}
    return out


def figures(runs: list[Run]) -> dict[str, dict[str, dict[str, dict[int, float]]]]:
    """Orders the figures of all runs."""
    out: dict[str, dict[str, dict[str, dict[int, float]]]] = {}
    for run in runs:
        subject = out.setdefault(run.workload, {}).setdefault(run.subject, {})
        for metric, value in metrics(run.result).items():
            subject.setdefault(metric, {})[run.repetition] = value
    return out


def spread(values: Mapping[int, float]) -> Spread:
    """Median and range of one metric over its repetitions."""
    return Spread(median(values.values()), min(values.values()), max(values.values()))


def ratios(data: Figures, workload: str, metric: str, subject: str, baseline: str) -> dict[int, float]:
    """Subject over baseline, within each repetition that has both."""
    over = data.get(workload, {}).get(subject, {}).get(metric, {})
    under = data.get(workload, {}).get(baseline, {}).get(metric, {})
    return {repetition: over[repetition] / under[repetition] for repetition in over if under.get(repetition)}


def ratio(data: Figures, workload: str, metric: str, subject: str, baseline: str) -> Spread | None:
    """The same as a spread; None where no repetition has both."""
    found = ratios(data, workload, metric, subject, baseline)
    return spread(found) if found else None


def interval(values: Iterable[float]) -> tuple[float, float] | None:
    """In which the median of what is measured lies, with a probability of 95 %; None: fewer than six values. Each value
    is above that median as often as below it, whatever the distribution is: the sign test."""
    ordered = sorted(values)
    count, cut, tail = len(ordered), 0, 0.5 ** len(ordered)
    while tail <= 0.025:
        cut += 1
        tail += comb(count, cut) * 0.5**count
    return (ordered[cut - 1], ordered[-cut]) if cut else None
