"""What the bench reads out of the output of other people's load generators, and what --only may say."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from bench import options, served
from bench.subjects import WORKLOADS

REDIS = """\
"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"GET","20000.00","0.255","0.032","0.119","0.231","1.199","1.343"
"""
WRK = """\
Running 2s test @ http://198.18.0.1:9402/
  1 threads and 50 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     5.93ms    1.20ms  18.89ms   89.43%
    Req/Sec     8.00k   500.00     9.00k    75.00%
  Latency Distribution
     50%  250.00us
     75%    1.50ms
     90%    2.00ms
     99%   18.89ms
  16000 requests in 2.00s, 2.64MB read
Requests/sec:   8000.00
Transfer/sec:      1.32MB
"""
SOCKPERF_PING = """\
sockperf: [Total Run] RunTime=1.001 sec; Warm up time=400 msec; SentMessages=4813; ReceivedMessages=4812
sockperf: [Valid Duration] RunTime=0.546 sec; SentMessages=1510; ReceivedMessages=1510
sockperf: \x1b[2;35m====> avg-latency=180.829 (std-dev=619.870)\x1b[0m
sockperf: ---> percentile 99.900 = 5714.728
sockperf: ---> percentile 99.000 = 3798.588
sockperf: ---> percentile 50.000 =   50.288
"""
SOCKPERF_THROUGHPUT = """\
sockperf: Total of 200649 messages sent in 1.006 sec

sockperf: Summary: Message Rate is 199455 [msg/sec]
"""


@dataclass
class Answering:
    """A target whose load generator prints what it is told, and remembers how it was called."""

    output: str
    load: tuple[str, ...] = ()
    address: str = "198.18.0.1"
    port: int = 9400
    connections: int = 50
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *command: str) -> str:
        self.calls.append(command)
        return self.output


def test_redis() -> None:
    target = Answering(REDIS, ("-t", "get", "-P", "16"))
    result = served._redis_load(target, 1.5, 20_000)  # type: ignore[arg-type]
    assert result == {"operations": 30_000, "seconds": 1.5, "p50_us": pytest.approx(119), "p99_us": pytest.approx(1199)}
    (call,) = target.calls
    assert call[call.index("-n") + 1] == "30000" and call[-4:] == ("-t", "get", "-P", "16")


def test_wrk() -> None:
    result = served._wrk_load(Answering(WRK), 2, 0)  # type: ignore[arg-type]
    expected = {"operations": 16_000, "seconds": 2, "p50_us": 250, "p99_us": 18_890}
    assert result == {name: pytest.approx(value) for name, value in expected.items()}


@pytest.mark.parametrize(
    "line",
    ["  Socket errors: connect 0, read 3, write 0, timeout 0", "  Non-2xx or 3xx responses: 7"],
    ids=["socket", "status"],
)
def test_wrk_with_errors_is_no_measurement(line: str) -> None:
    with pytest.raises(RuntimeError, match="wrk: "):
        served._wrk_load(Answering(f"{WRK}{line}\n"), 2, 0)  # type: ignore[arg-type]


def test_sockperf() -> None:
    ping = served._sockperf_load(Answering(SOCKPERF_PING, ("pp",)), 1, 0)  # type: ignore[arg-type]
    assert ping["operations"] == 4812 and ping["seconds"] == 1.001
    assert ping["p50_us"] == pytest.approx(100.576) and ping["p99_us"] == pytest.approx(7597.176)
    throughput = served._sockperf_load(Answering(SOCKPERF_THROUGHPUT, ("tp",)), 1, 0)  # type: ignore[arg-type]
    assert throughput == {"operations": 200_649, "seconds": 1.006}


def test_output_of_another_form_is_shown() -> None:
    with pytest.raises(RuntimeError, match="a novel form"):
        served._sockperf_load(Answering("a novel form", ("pp",)), 1, 0)  # type: ignore[arg-type]


def test_only_takes_workloads_and_groups_of_them() -> None:
    names = options.names()
    assert len(names["redis"]) == 8 and names["redis-get-50-p16"] == ["redis-get-50-p16"]
    assert names["wrk"] == ["wrk-keepalive", "wrk-close"] and names["send"] == ["send"]
    assert {key for keys in names.values() for key in keys} == {w.key for w in WORKLOADS} | {"idle", "memory"}


def test_a_program_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RuntimeError, match=r"not installed: .*redis-server.*wrk.* deploy/setup"):
        served.check_installed(WORKLOADS)
    served.check_installed(workload for workload in WORKLOADS if not workload.served)
