"""The metrics of the proxy: their names, that none of its figures is without one, and what they are made of."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from xts_bpf.program import SteerCounters
from xts_messages.metrics import metric_list
from xts_messages.metrics.metric import Family, Metric, counter, families, histogram
from xts_proxy.__main__ import main as proxy_main
from xts_proxy._native import ffi, lib
from xts_proxy.metrics import metric_catalogue as catalogue
from xts_proxy.metrics import metrics
from xts_proxy.tenants.tenants import POOLS, RESOURCES

TIMES = {"counts": {"0.0001": 5, "0.0002": 2, "+Inf": 1}, "sum_ns": 2_500_000}


def fields(struct: str) -> dict[str, Any]:
    """Of a native struct: what workers.py makes of one that has counted nothing."""
    return {
        name: TIMES if field.type.cname == "struct xts_histogram" else {"some": 0} if name.startswith("ulp_") else 0
        for name, field in ffi.typeof(f"struct {struct}").fields
    }


def worker(index: int = 0) -> dict[str, Any]:
    plain = {"ulp_bytes": 0, "ulp_handshakes": 0, "ulp_handshakes_ok": 0, "ulp_handshakes_failed": 0}
    return fields("xts_worker_stats") | plain | {"worker": index}


def channel(queue_id: int, index: int = 0) -> dict[str, Any]:
    nested = {"link": fields("xts_link_stats"), "queue": fields("xts_queue_stats"), "ulp_bytes": 0}
    return fields("xts_channel_stats") | nested | {"queue_id": queue_id, "worker": index, "link_state": 1}


def account() -> dict[str, dict[str, int]]:
    pools = dict.fromkeys(POOLS.values(), 0)
    counts = dict.fromkeys(RESOURCES.values(), 0)
    return {
        "used": counts | {"cpu_ns": 1_500_000_000},
        "refused": counts,
        "pool_used": pools,
        "pool_guaranteed": pools | {"local_ports": 0},
        "pool_refused": pools | {"local_ports": 0},
    }


def figures(workers: int = 1, channels: int = 1) -> dict[str, Any]:
    """What Figures.of_metrics() has."""
    return {
        "info": {"version": "1.2.3", "queue": "shm"},
        "proxy": {
            "started_at": 1.0,
            "draining": 0,
            "reloads": {"taken": 2, "refused": 1},
            "tls_files": {"taken": 3, "refused": 4},
            "tls_waiting": 1,
        },
        "shm": {"attaches": 4, "attaches_refused": 0},
        "interface": {"interface": "x0", "problem": "", "serves": 1, "reattached": 0, "renewed": 0, "steered": 1}
        | {"copying": "copy mode: ", "zero_copy": 0, "copy_fallbacks": 0},
        "rdma": [{"queue": 0, "device": "mlx5_0", "connected": 1, "connections": 2, "refused": 3}],
        "steer": dict.fromkeys(SteerCounters.__slots__, 0),
        "progress": [{"worker": index, "stands_s": 0.0, "reports": 0} for index in range(workers)],
        "workers": [worker(index) for index in range(workers)],
        "tenants": {"default": account(), 'of "quotes"\\\n': account()},
        "channels": [channel(queue_id) for queue_id in range(channels)],
        "filters": {"rate": {"sockets": 2, "dropped": 3}},
        "tls": fields("xts_tls_counts"),
    }


class Once(Collector):
    def __init__(self, found: Iterable[Family]) -> None:
        self.found = list(found)

    def collect(self) -> Iterable[Family]:
        return self.found


def text(found: Iterable[Family]) -> str:
    registry = CollectorRegistry()
    registry.register(Once(found))
    return generate_latest(registry).decode()


def every() -> list[Metric]:
    return [metric for _, part in catalogue.PARTS.values() for metric in part]


def test_all_metrics_are_written_once_and_can_be_read() -> None:
    written = text(metrics.families(figures(workers=2, channels=3)))
    read = {family.name: family for family in text_string_to_metric_families(written)}
    assert [metric.name for metric in every() if metric.name not in read] == []
    assert len(read) == len(every()) == written.count("# TYPE ")
    assert {metric.name: metric.kind for metric in every()} == {name: family.type for name, family in read.items()}
    assert 'xts_proxy_info{queue="shm",version="1.2.3"} 1.0' in written
    assert 'xts_accepts_total{worker="1"} 0.0' in written
    assert 'xts_channel_up{queue="2",worker="0"} 1.0' in written
    assert 'xts_proxy_reloads_total{result="taken"} 2.0' in written
    assert (
        'xts_proxy_tls_file_renewals_total{result="refused"} 4.0' in written
        and "xts_proxy_tls_files_waiting 1.0" in written
    )
    assert 'xts_tenant_cpu_seconds_total{tenant="default"} 1.5' in written
    labels = {row["name"]: row["labels"] for row in metric_list.rows(catalogue.PARTS)}
    for family in read.values():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        for sample in family.samples:
            assert sorted(sample.labels.keys() - {"le"}) == sorted(labels[name]), name
    tenants = {sample.labels["tenant"] for sample in read["xts_tenant_cpu_seconds"].samples}
    assert 'of "quotes"\\\n' in tenants


@pytest.mark.parametrize(
    ("program", "module"), [("xts_proxy", "metrics.metric_catalogue"), ("xts_agent", "metric_catalogue")]
)
def test_the_command_lists_what_it_serves(program: str, module: str) -> None:
    command = [sys.executable, "-m", program, "--list-metrics"]
    listed = json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True).stdout)
    table = importlib.import_module(f"{program}.{module}").PARTS
    assert {row["name"] for row in listed} == {one.series for _, part in table.values() for one in part}
    assert all(row["meaning"].endswith(".") and row["part"] in table for row in listed)
    narrow = subprocess.run(command, capture_output=True, check=True, text=True, env=os.environ | {"COLUMNS": "60"})
    assert all(row["name"] in narrow.stdout for row in listed)
    assert max(map(len, narrow.stdout.splitlines())) <= 80  # names are longer than 60 columns and are not broken


def test_json_alone_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        proxy_main(["--json"])
    assert "--json without --list-metrics" in capsys.readouterr().err


def test_names_are_as_prometheus_wants_them() -> None:
    assert len({metric.name for metric in every()}) == len(every())
    for metric in every():
        assert not re.search(r"_(ns|us|ms|kb|mib|count|sum|bucket|total)(_|$)", metric.name), metric.name
        assert metric.kind != "histogram" or metric.name.endswith("_seconds"), metric.name
        assert "_bytes_" not in metric.name and "_seconds_" not in metric.name, metric.name
        assert len(metric.help) > 15 and "struct " not in metric.help, metric.name


def used(metrics_: Iterable[Metric]) -> list[str]:
    return sorted(figure for metric in metrics_ for figure in metric.used)


def test_every_figure_of_a_worker_is_one_metric() -> None:
    """A new counter in C needs a line in metric_catalogue.py."""
    assert used(catalogue.WORKER) == sorted(fields("xts_worker_stats"))


def test_every_figure_of_a_channel_is_one_metric() -> None:
    described = {"queue_id", "relayed", "tenant", "link_state", "link_error", "pid", "epoch", "link", "queue"}
    wanted = {"up", *fields("xts_channel_stats")} - described
    wanted |= {f"link.{name}" for name in fields("xts_link_stats")}
    wanted |= {f"queue.{name}" for name in fields("xts_queue_stats")}
    assert used(catalogue.CHANNEL) == sorted(wanted)


def test_every_other_figure_is_one_metric() -> None:
    assert used(catalogue.FILTER) == sorted(fields("xts_filter_totals").keys() - {"name"})
    assert used(catalogue.TLS) == sorted(fields("xts_tls_counts"))
    assert used(catalogue.STEER) == sorted(SteerCounters.__slots__)
    assert used(catalogue.TENANT) == sorted(metrics.tenant_figures(account()))


def test_a_histogram_counts_up() -> None:
    rows = [({"worker": "1"}, {"took": TIMES})]
    lines = text(families([histogram("xts_took_seconds", "How long it took.", "took")], rows)).splitlines()[2:]
    assert lines == [
        'xts_took_seconds_bucket{le="0.0001",worker="1"} 5.0',
        'xts_took_seconds_bucket{le="0.0002",worker="1"} 7.0',
        'xts_took_seconds_bucket{le="+Inf",worker="1"} 8.0',
        'xts_took_seconds_count{worker="1"} 8.0',
        'xts_took_seconds_sum{worker="1"} 0.0025',
    ]


def test_a_figure_that_is_missing_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        list(families([counter("xts_nobody_knows", "What nobody knows.", "unknown")], [({}, {})]))


def test_what_is_not_there_is_left_out() -> None:
    nothing = {
        "rdma": [],
        "shm": {},
        "steer": {},
        "tls": {},
        "filters": {},
        "workers": [],
        "channels": [],
        "tenants": {},
    }
    written = text(metrics.families(figures() | nothing))
    assert "xts_worker_stalled_seconds" in written
    assert "xts_accepts" not in written and "xts_tls" not in written


def test_the_number_of_series_does_not_grow_with_connections() -> None:
    def series(connections: int) -> int:
        found = figures()
        found["workers"][0]["connections"] = found["channels"][0]["connections"] = connections
        return text(metrics.families(found)).count("\n")

    assert series(0) == series(100_000)


def test_bounds_of_histograms_rise() -> None:
    bounds = [int(lib.xts_histogram_bound_us(i)) for i in range(22)]
    assert bounds == sorted(set(bounds)) and bounds[0] == 10 and bounds[-1] == 100_000_000
    assert lib.xts_histogram_bound_us(22) == 0
