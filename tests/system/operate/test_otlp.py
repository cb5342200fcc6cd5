"""`xts-otlp`: metrics of a running proxy arrive at a collector of OpenTelemetry, a stand-in that decodes them."""

from __future__ import annotations

import http.server
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from beds.metrics import value
from beds.operated_proxy import running, wait

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from xts_messages.metrics import otlp

OTLP = [sys.executable, "-m", "xts_messages.metrics.otlp"]


class Collector:
    """Keeps what is posted to it. `status`: what it answers."""

    def __init__(self) -> None:
        self.taken: list[ExportMetricsServiceRequest] = []
        self.paths: list[str] = []
        self.headers: list[str | None] = []
        self.status = 200

    def metrics(self) -> dict[str, Any]:
        """Of what came last, by name."""
        return {m.name: m for r in self.taken[-1].resource_metrics for s in r.scope_metrics for m in s.metrics}


@contextmanager
def collector(port: int = 0) -> Iterator[tuple[Collector, str]]:
    mine = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            mine.paths.append(self.path)
            mine.headers.append(self.headers.get("X-Tenant"))
            if mine.status == 200:
                mine.taken.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(mine.status)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield mine, f"http://127.0.0.1:{server.server_port}/v1/metrics"
        finally:
            server.shutdown()
            thread.join()


def push(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [*OTLP, *arguments]
    env = os.environ | (environment or {})
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)


def labels(point: Any) -> dict[str, str]:
    return {a.key: a.value.string_value for a in point.attributes}


def test_metrics_of_a_proxy_arrive(tmp_path: Path) -> None:
    with running(tmp_path) as proxy, collector() as (mine, url):
        with proxy.host():
            source = f"unix:{proxy.directory}/metrics.sock"
            environment = {"OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=lab"}
            done = push("--from", source, "--to", url, "--once", environment=environment)
            text = proxy.metrics()
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert mine.paths == ["/v1/metrics"] and mine.headers == ["lab"]
    [of_proxy] = mine.taken[0].resource_metrics
    resource = {a.key: a.value.string_value for a in of_proxy.resource.attributes}
    assert resource["service.name"] == "xts-proxy" and resource["host.name"] == socket.gethostname()
    found = mine.metrics()
    families = {line.split()[2].removesuffix("_total") for line in text.splitlines() if line.startswith("# TYPE ")}
    assert len(families) > 50 and families <= found.keys(), families - found.keys()
    opened = found["xts_links_opened"]
    assert opened.sum.is_monotonic and sum(p.as_double for p in opened.sum.data_points) == 1
    assert value(text, "xts_links_opened_total") == 1
    up = found["xts_channel_up"].gauge.data_points
    assert [p.as_double for p in up] == [1] and labels(up[0])["queue"]
    started = value(text, "xts_proxy_start_time_seconds")
    assert abs(opened.sum.data_points[0].start_time_unix_nano / 1e9 - started) < 1
    times = [m for m in found.values() if m.WhichOneof("data") == "histogram"]
    assert times
    for one in times:
        assert one.unit == "s"
        for point in one.histogram.data_points:
            assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
            assert sum(point.bucket_counts) == point.count
            assert not point.HasField("min")


def test_collector_that_fails_and_comes_back(tmp_path: Path) -> None:
    """Said once when it begins, and once when it ends."""
    with running(tmp_path) as proxy, collector() as (mine, url):
        mine.status = 400
        command = [*OTLP, "--from", f"unix:{proxy.directory}/metrics.sock", "--to", url, "--interval", "1"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                wait(lambda: len(mine.paths) >= 2, "a second attempt", 30)
                mine.status = 200
                wait(lambda: mine.taken, "metrics", 30)
                mine.taken.clear()
                wait(lambda: mine.taken, "further metrics", 30)
            finally:
                process.terminate()
            assert process.stderr
            lines = process.stderr.read().splitlines()
    assert len(lines) == 2, lines
    assert "does not take metrics" in lines[0] and "arrive again" in lines[1]


def test_source_and_collector_that_are_not_there(tmp_path: Path) -> None:
    gone = f"unix:{tmp_path}/gone.sock"
    with collector() as (mine, url):
        done = push("--from", gone, "--to", url, "--once")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "No such file" in done.stderr
    assert not mine.paths


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nxts_proxy_info 1", ""),
        (b"HTTP/1.0 200 OK\r\n\r\nother_info 1\n", "not the metrics of"),
        (b"HTTP/1.0 200 OK\r\n\r\nxts_proxy_info{ 1\n", "_"),
        (b"HTTP/1.0 200 OK\r\n\r\n\xff\xfe", "decode"),
        (b"HTTP/1.0 401 No\x1b[31m\r\n\r\n", "401"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 50\r\n\r\nxts", "_"),
        (b"SSH-2.0\r\n", "SSH"),
        (b"", "_"),
    ],
)
def test_hostile_source(answer: bytes, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says what is wrong; no traceback, and none of the peer's control characters."""
    with socket.create_server(("127.0.0.1", 0)) as listener, collector() as (mine, url):
        with _answering(listener, answer):
            arrived = otlp.Pusher([f"http://127.0.0.1:{listener.getsockname()[1]}"], url).push()
    error = capsys.readouterr().err
    assert arrived == (not said) and bool(mine.taken) == arrived
    assert error.count("\n") == bool(said) and "\x1b" not in error
    assert said in ("", "_") or said in error


def test_source_that_answers_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then is no answer in time, though each byte is."""
    monkeypatch.setattr(otlp, "FETCH_S", 0.3)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
                while not ended.wait(0.02):
                    try:
                        peer.sendall(b"#")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(TimeoutError):
            otlp.fetch(f"http://127.0.0.1:{listener.getsockname()[1]}")
        ended.set()
        thread.join()


def test_source_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "ANSWER_BYTES_MAX", 1 << 20)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with _answering(listener, b"HTTP/1.0 200 OK\r\n\r\n" + bytes(4 << 20)):
            with pytest.raises(ValueError, match="longer than 1 MiB"):
                otlp.fetch(f"http://127.0.0.1:{listener.getsockname()[1]}")


@pytest.mark.parametrize(
    "wrong",
    [
        ["--from", "metrics.sock", "--to", "http://a/"],
        ["--from", "http://a:b", "--to", "http://a/"],
        ["--from", "unix:/x", "--to", "collector:4318"],
        ["--from", "unix:/x", "--to", "http://a/", "--interval", "0"],
        ["--to", "http://a/"],
    ],
)
def test_wrong_usage(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        otlp.main(wrong)
    assert ended.value.code == 2 and "xts-otlp: " in capsys.readouterr().err


@contextmanager
def _answering(listener: socket.socket, answer: bytes) -> Iterator[None]:
    def one() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(65536)
            with suppress(OSError):
                peer.sendall(answer)

    thread = threading.Thread(target=one)
    thread.start()
    yield
    thread.join()
