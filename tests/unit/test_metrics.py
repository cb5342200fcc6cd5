"""The metrics of the proxy: format, names, and what its HTTP answers."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xts_bpf.program import SteerCounters
from xts_proxy._native import ffi
from xts_proxy.metric_help import HELP
from xts_proxy.metrics import ROUND_CPU, WORKER_GAUGES, Families, add_channel, add_worker, handler, respond

ROUNDS = {"0.0001": 5, "0.0002": 2, "+Inf": 1}


def fields(struct: str) -> dict[str, Any]:
    return {name: ROUNDS if name == "round_cpu" else 0 for name, _ in ffi.typeof(f"struct {struct}").fields}


def channel(queue_id: int) -> dict[str, Any]:
    nested = {"link": fields("xts_link_stats"), "queue": fields("xts_queue_stats")}
    return fields("xts_channel_stats") | nested | {"queue_id": queue_id, "link_state": 1}


PARTS = {"_bucket", "_sum", "_count"}
SAMPLE = re.compile(r'[a-z_]+(\{[a-z_]+="(?:[^"\\\n]|\\.)*"(,[a-z_]+="(?:[^"\\\n]|\\.)*")*\})? -?[0-9.e+]+')


def test_the_text_is_prometheus_format() -> None:
    families = Families()
    for index in (0, 1):
        add_worker(families, index, fields("xts_worker_stats"))
        add_channel(families, index, channel(queue_id=index + 4))
    text = families.text()
    assert text.endswith("\n")
    kinds: dict[str, str] = {}
    current = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert current not in kinds, "samples of one name stand together"
            kinds[current] = kind
        elif not line.startswith("# HELP "):
            assert SAMPLE.fullmatch(line), line
            name = re.split(r"[{ ]", line)[0]
            of_histogram = kinds[current] == "histogram" and name.removeprefix(current) in PARTS
            assert name == current or of_histogram, line
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in kinds.items())
    assert 'xts_accepts_total{worker="1"} 0' in text
    assert 'xts_channel_up{queue="5",worker="1"} 1' in text
    assert 'xts_link_sent_frames_total{queue="4",worker="0"} 0' in text


def test_what_is_counted_by_name_has_a_label() -> None:
    families = Families()
    stats = fields("xts_worker_stats") | {"ulp_pushed": {"tls": 3, "lines": 0}, "ulp_faults": {"digest": 1}}
    add_worker(families, 0, stats)
    text = families.text()
    assert 'xts_ulp_pushed_total{worker="0",ulp="tls"} 3' in text
    assert 'xts_ulp_faults_total{worker="0",fault="digest"} 1' in text
    assert text.count("# TYPE xts_ulp_pushed_total") == 1
    assert "# TYPE xts_ulp_handshakes gauge" in text


def test_the_cpu_time_of_rounds_is_a_histogram() -> None:
    families = Families()
    add_worker(families, 1, fields("xts_worker_stats") | {"round_cpu_ns": 2_500_000})
    lines = [line for line in families.text().splitlines() if line.startswith("xts_round_cpu")]
    assert lines == [
        'xts_round_cpu_seconds_bucket{worker="1",le="0.0001"} 5',
        'xts_round_cpu_seconds_bucket{worker="1",le="0.0002"} 7',
        'xts_round_cpu_seconds_bucket{worker="1",le="+Inf"} 8',
        'xts_round_cpu_seconds_sum{worker="1"} 0.0025',
        'xts_round_cpu_seconds_count{worker="1"} 8',
    ]


def test_gauges_are_fields_of_the_worker() -> None:
    assert set(fields("xts_worker_stats")) >= WORKER_GAUGES


def test_the_number_of_series_does_not_grow_with_connections() -> None:
    def series(connections: int) -> int:
        families = Families()
        add_worker(families, 0, fields("xts_worker_stats") | {"connections": connections})
        add_channel(families, 0, channel(0) | {"connections": connections})
        return families.text().count("\n")

    assert series(0) == series(100_000)


def test_every_metric_says_what_it_means() -> None:
    """Sentences for what the structs of C have, and none for what they do not have."""
    parts = {
        "xts_": "xts_worker_stats",
        "xts_link_": "xts_link_stats",
        "xts_queue_": "xts_queue_stats",
        "xts_tls_": "xts_tls_counts",
    }
    of_structs = {f"{prefix}{name}" for prefix, struct in parts.items() for name in fields(struct)}
    of_steer = {f"xts_steer_{name}" for name in SteerCounters.__slots__}
    of_python = {"xts_worker_no_progress", "xts_worker_no_progress_seconds"}
    others = {name for name in HELP if re.match(r"xts_(proxy|channel|tenant|attaches)", name)}
    of_structs = (of_structs - {f"xts_{name}" for name in ROUND_CPU}) | {"xts_round_cpu_seconds"}
    assert of_structs | of_steer | of_python | others == set(HELP)
    assert all(text.endswith(".") and "struct " not in text for text in HELP.values())
    with pytest.raises(KeyError):
        Families().add("xts_nobody_knows", 1, {})


@given(st.text())
def test_labels_are_escaped(label: str) -> None:
    families = Families()
    families.add("xts_channels", 1, {"label": label}, gauge=True)
    sample = families.text().split("\n", 2)[2]
    assert sample.count("\n") == 1
    quoted = sample[len('xts_channels{label="') : -len('"} 1\n')]
    assert re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], quoted, flags=re.DOTALL) == label


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /metrics HTTP/1.1", b"200"),
        (b"GET /metrics?x=1 HTTP/1.1", b"200"),
        (b"HEAD /metrics HTTP/1.1", b"200"),
        (b"GET / HTTP/1.1", b"404"),
        (b"POST /metrics HTTP/1.1", b"405"),
        (b"\x00", b"405"),
    ],
)
def test_requests_get_their_status(request_line: bytes, status: bytes) -> None:
    head, *body = respond(request_line + b"\r\n\r\n", lambda: "text\n")
    assert head.split(b" ")[1] == status
    if request_line.startswith(b"HEAD"):
        assert not body
        assert b"Content-Length: 5\r\n" in head
    elif status == b"200":
        assert body == [b"text\n"]


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HT", b"x" * 100_000])
def test_a_broken_request_ends_the_connection_and_nothing_else(sent: bytes) -> None:
    async def run() -> bytes:
        server = await asyncio.start_server(handler(lambda: "text\n"), "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            writer.write_eof()
            try:
                answer = await reader.read()
            except ConnectionResetError:
                answer = b""
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert (await reader.read()).endswith(b"\r\n\r\ntext\n")
            writer.close()
            return answer

    assert asyncio.run(run()) == b""
