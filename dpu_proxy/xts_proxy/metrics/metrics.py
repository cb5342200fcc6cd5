"""Metrics of the proxy, which the metrics process makes from the supervisor's figures (Figures.of_metrics())."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xts_messages.metrics import metric
from xts_messages.metrics.metric import Family

from xts_proxy.metrics import metric_catalogue as catalogue


def families(figures: dict[str, Any]) -> Iterator[Family]:
    """The metrics, in the order of the catalogue. Missing figures, as of a worker that hangs, are left out."""
    yield from metric.families(catalogue.INFO, [(figures["info"], {"one": 1})])
    yield from metric.families(catalogue.PROXY, [({}, figures["proxy"])])
    if figures["shm"]:
        yield from metric.families(catalogue.SHM, [({}, figures["shm"])])
    if figures["interface"]:
        yield from metric.families(catalogue.INTERFACE, [({}, figures["interface"])])
    over_rdma = [({"queue": str(row["queue"]), "device": row["device"]}, row) for row in figures["rdma"]]
    yield from metric.families(catalogue.RDMA, over_rdma)
    yield from metric.families(catalogue.PROGRESS, [(_worker(row), row) for row in figures["progress"]])
    yield from metric.families(catalogue.WORKER, [(_worker(row), row) for row in figures["workers"]])
    yield from metric.families(catalogue.CHANNEL, [channel_row(row) for row in figures["channels"]])
    tenants = [({"tenant": name}, tenant_figures(account)) for name, account in figures["tenants"].items()]
    yield from metric.families(catalogue.TENANT, tenants)
    filters = [({"filter": name}, totals) for name, totals in figures["filters"].items()]
    yield from metric.families(catalogue.FILTER, filters)
    if figures["tls"]:
        yield from metric.families(catalogue.TLS, [({}, figures["tls"])])
    if figures["steer"]:
        yield from metric.families(catalogue.STEER, [({}, figures["steer"])])


def _worker(row: dict[str, Any]) -> dict[str, str]:
    return {"worker": str(row["worker"])}


def channel_row(stats: dict[str, Any]) -> metric.Row:
    """The figures of a row of Worker.channels(), with those of its link and queue."""
    relayed = f".{stats['relayed']}" if stats["relayed"] else ""  # its number behind the relay that has the queue
    labels = {"queue": f"{stats['queue_id']}{relayed}", "worker": str(stats["worker"])}
    nested = {f"{part}.{name}": value for part in ("link", "queue") for name, value in stats[part].items()}
    return labels, {**stats, **nested, "up": int(stats["link_state"] == 1)}


def tenant_figures(account: dict[str, dict[str, int]]) -> dict[str, Any]:
    """The figures of a row of Account.figures(). Resources counted in bytes are a separate metric."""
    used = {name: number for name, number in account["used"].items() if name != "cpu_ns"}
    found: dict[str, Any] = {
        "cpu_ns": account["used"]["cpu_ns"],
        "used": {name: number for name, number in used.items() if not name.endswith("_bytes")},
        "used_bytes": {name: number for name, number in used.items() if name.endswith("_bytes")},
        "refused": {name: number for name, number in account["refused"].items() if name != "cpu_ns"},
        "pool_refused": account["pool_refused"],
    }
    guaranteed = {f"{pool}_guaranteed": number for pool, number in account["pool_guaranteed"].items()}
    return found | account["pool_used"] | guaranteed
