"""A real Prometheus scrapes a lab, by TCP, and every query of the dashboard gives data."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from beds import dashboard
from beds.lab import raise_or_skip
from xts_lab.free_ports import free_port
from xts_lab.lab import Lab

pytestmark = [
    pytest.mark.root,
    pytest.mark.afxdp,
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed"),
]

LOOPBACK = "127.0.0.1"
PATIENCE_S = 60.0
CLIENT = """
import time
import xts_socket as socket
with socket.create_server(("198.18.0.1", 0)) as listener:
    for _ in range(40):
        with socket.create_connection(listener.getsockname()) as s:
            peer, _ = listener.accept()
            for _ in range(20):
                s.sendall(bytes(5000))
                assert len(peer.recv(5000, socket.MSG_WAITALL)) == 5000
        time.sleep(0.5)
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    raised = raise_or_skip("afxdp", "prom", queues=4, metrics=True)
    try:
        yield raised
    finally:
        assert not raised.down()


@contextmanager
def forwarded(path: Path) -> Iterator[int]:
    """A port of this machine that leads to a Unix socket: the lab's programs are in networks of their own."""

    def carry(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def serve(near: socket.socket) -> None:
        with near, socket.socket(socket.AF_UNIX) as far:
            far.connect(str(path))
            back = threading.Thread(target=carry, args=[far, near])
            back.start()
            carry(near, far)
            back.join()

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()

    with socket.create_server((LOOPBACK, 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


class Prometheus:
    """A running one, with its data in a directory."""

    def __init__(self, port: int) -> None:
        self.address = f"http://{LOOPBACK}:{port}/api/v1"

    def ask(self, what: str, **arguments: str) -> Any:
        query = urllib.parse.urlencode(arguments)
        with urllib.request.urlopen(f"{self.address}/{what}?{query}", timeout=10) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> list[Any]:
        return list(self.ask("query", query=expression)["result"])

    def wait(self, expression: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with suppress(OSError):
                if self.query(expression):
                    return
            assert time.monotonic() < deadline, f"nothing for {expression}"
            time.sleep(0.2)


@contextmanager
def prometheus(directory: Path, targets: dict[str, int]) -> Iterator[Prometheus]:
    scrapes = [
        {"job_name": job, "static_configs": [{"targets": [f"{LOOPBACK}:{port}"]}]} for job, port in targets.items()
    ]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(dashboard.ALERTS)],
        "scrape_configs": scrapes,
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    command = ["prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data"]
    command += [f"--web.listen-address={LOOPBACK}:{port}", "--log.level=warn"]
    with (directory / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield Prometheus(port)
        finally:
            process.terminate()
            process.wait(20)
            print((directory / "prometheus.log").read_text())


def as_grafana(expression: str) -> str:
    """With its variables filled in, for a scrape interval of a second."""
    return expression.replace("$__rate_interval", "10s").replace("$proxy", ".*").replace("$host", ".*")


def test_every_query_of_the_dashboard_gives_data(lab: Lab, tmp_path: Path) -> None:
    with (
        forwarded(lab.metrics_path("proxy")) as proxy,
        forwarded(lab.metrics_path("agent")) as agent,
        prometheus(tmp_path, {"xts-proxy": proxy, "xts-agent": agent}) as asked,
        lab.popen("host", ["python", "-c", CLIENT]) as client,
    ):
        try:
            for job in ("xts-proxy", "xts-agent"):
                asked.wait(f'up{{job="{job}"}} == 1')
            asked.wait("rate(xts_tcp_sent_bytes_total[10s]) > 0")
            asked.wait("rate(xts_agent_attaches_total[10s])")
            empty = [(title, e) for title, e in dashboard.queries() if not asked.query(as_grafana(e))]
            assert not empty
            for name in ("xts_worker_turn_delay_seconds", "xts_connect_seconds", "xts_request_gap_seconds"):
                (found,) = asked.query(f"histogram_quantile(0.5, sum by (le) (rate({name}_bucket[20s])))")
                assert 0 < float(found["value"][1]) < 10, name
            rules = [rule for group in asked.ask("rules")["groups"] for rule in group["rules"]]
            assert {rule["name"] for rule in rules} == set(dashboard.alerts())
            assert {rule["health"] for rule in rules} == {"ok"}
            assert not asked.ask("alerts")["alerts"]
            assert len(asked.ask("targets")["activeTargets"]) == 2
            # Type, help and unit are as the program says.
            (about,) = asked.ask("metadata", metric="xts_accepts")["xts_accepts"]  # as OpenMetrics calls it
            assert (about["type"], about["help"]) == ("counter", "Connections accepted by listeners.")
        finally:
            client.terminate()
