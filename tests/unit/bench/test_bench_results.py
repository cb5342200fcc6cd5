"""What the bench keeps, goes on with, and says over several runs."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench import limits, options, picture, results, rows
from bench.analysis import WATCHED, Run, figures, metrics
from bench.certificates import Certificates
from bench.haproxy import config
from bench.resultfile import FORMAT, Recorded, Writer, read
from bench.session import wrong_queues
from bench.subjects import DIRECT_R0, HAPROXY, SHM, WORKLOADS
from rich.console import Console

FACTS = {"format": FORMAT, "date": "2026-01-02T03:04:05+00:00", "cpu": "CPU", "cores": 2, "kernel": "6.18"}
FACTS |= {"haproxy": "HAProxy version 2.6 2026/01/01 - more", "commit": "0123456789ab"}


def run(workload: str, path: str, repetition: int, *, host: float = 1.0, device: float = 1.0, count: int = 100) -> Run:
    result = {"operations": count, "seconds": 1.0, "host_core_s": host, "device_core_s": device, "checked": "all"}
    return Run(workload, path, repetition, result, {"placement": "r0"})


def recorded(*runs: Run) -> Recorded:
    found = Recorded(environment=[dict(FACTS)])
    found.runs.extend(runs)
    return found


# --- the file -------------------------------------------------------------------------------------------------------


def test_what_is_interrupted_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    with Writer(path) as writer:
        writer.add("environment", FACTS)
        writer.add("asked", {"repetitions": 2})
        writer.run(run("send", "shm", 0, host=1 / 3))
        writer.add("idle", {"path": "shm", "host_cpu": 0.25})
        assert read(path).runs == writer.recorded.runs, "it is in the file at once"
    with path.open("a") as file:
        file.write('{"kind":"run","workl')  # killed in the middle of a line
    with Writer(path, resume=True) as writer:
        assert writer.recorded.done() == {("send", "shm", 0)}
        assert writer.recorded.asked == {"repetitions": 2}
        writer.run(run("send", "shm", 1))
    found = read(path)
    assert found.done() == {("send", "shm", 0), ("send", "shm", 1)}
    assert found.runs[0].result["host_core_s"] == 0.333333
    assert found.idle == {"shm": {"host_cpu": 0.25}}
    assert len(path.read_text().splitlines()) == 5


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    path.write_text("precious\n")
    with pytest.raises(FileExistsError, match=r"--resume .*bench\.jsonl"):
        Writer(path)
    assert path.read_text() == "precious\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no result file"),
        ("[]\n", "line 1"),
        ('{"kind":"environment","format":1}\n', "line 1.*format 1"),
        (json.dumps({"kind": "environment", **FACTS}) + '\n{"kind":"song"}\n', "line 2.*song"),
    ],
    ids=["empty", "no object", "old format", "unknown kind"],
)
def test_no_result_file(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read(path)


# --- what is asked --------------------------------------------------------------------------------------------------


def ask(*arguments: str) -> options.Asked:
    return options.asked(options.parser("").parse_args(arguments))


def test_quick_has_every_row_and_nothing_else() -> None:
    quick = ask("--quick")
    planned = {(w.key, s.key) for w in quick.wanted() for s in w.subjects if quick.wants(w, s)}
    assert planned == rows.needed(), "a row names a path that its workload does not have"
    assert quick.minutes == 5 and quick.repetitions > 1
    everything = ask()
    assert sum(len(w.subjects) for w in everything.wanted()) == sum(len(w.subjects) for w in WORKLOADS)
    assert everything.minutes is None


def test_what_was_asked_is_known_when_resumed() -> None:
    asked = ask("--quick", "--only", "tls", "--seconds", "0.25")
    assert options.Asked.of(json.loads(json.dumps(asked.stored()))) == asked


def test_without_privilege_only_what_needs_none() -> None:
    asked = ask("--loopback", "--queue", "afxdp")
    assert asked.queues == ("shm",) and asked.extras == ()


# --- figures --------------------------------------------------------------------------------------------------------


def test_those_by_the_relay_compared_with_those_that_have_a_queue() -> None:
    """Within one run; and the processor time of each program for each request."""
    counted: dict[str, float | str] = {"operations": 1000, "seconds": 1.0, "host_core_s": 0.5, "device_core_s": 0.5}
    counted |= {"own_p50_us": 50.0, "relayed_p50_us": 100.0, "own_p99_us": 80.0, "relayed_p99_us": 400.0}
    found = metrics({**counted, "relay_s": 0.02, "agent_s": 0.0, "proxy_s": 0.03, "checked": "every byte"})
    assert (found["relayed_to_own_p50"], found["relayed_to_own_p99"]) == (2.0, 5.0)
    assert [found[f"{kind}_us_per_op"] for kind in WATCHED] == [pytest.approx(20), 0, pytest.approx(30)]


def test_the_process_with_the_keys_and_how_many_have_resumed() -> None:
    found = metrics(
        {"operations": 100, "seconds": 1.0, "host_core_s": 0.5, "device_core_s": 0.5, "keys_s": 0.1, "own_s": 0.3}
        | {"resumed_share": 0.9}
    )
    assert found["keys_us_per_op"] == pytest.approx(1000) and found["keys_share"] == pytest.approx(0.2)
    assert found["own_us_per_op"] == pytest.approx(3000)
    assert found["resumed_share"] == 0.9


@pytest.mark.parametrize(
    ("processes", "own", "relayed", "right"),
    [(200, 3, 197, True), (200, 2, 198, False), (3, 3, 0, True), (3, 2, 1, False)],
)
def test_a_run_counts_only_with_the_queues_it_is_about(processes: int, own: int, relayed: int, right: bool) -> None:
    (workload,) = (w for w in WORKLOADS if w.key == f"processes-{processes}")
    (subject,) = (s for s in workload.subjects if s.key == "crowded-thr")
    fault = wrong_queues(workload, subject, {"own_queues": own, "relayed": relayed})
    assert (fault is None) == right
    assert fault is None or f"{own} processes had a queue" in fault


def test_the_devices_own_cpu_is_without_the_peers() -> None:
    (row,) = (row for row in rows.ROWS if row.own and row.workload == "requests-32")
    data = figures(
        [
            run("requests-32", "direct-r1", 0, device=0.2),
            run("requests-32", "haproxy-r1", 0, device=1.0),
            run("requests-32", "shm", 0, device=0.6),
        ]
    )
    found = row.ratio(data, "shm", row.haproxy)
    assert found is not None and found.median == pytest.approx(0.5)
    assert row.value(data, "shm") == pytest.approx(4000)
    assert row.value(figures([run("requests-32", "shm", 0)]), "shm") is None


def test_what_tls_costs_more_is_without_the_peers_either() -> None:
    (row,) = (row for row in rows.ROWS if row.less == "requests-32")
    plain = {"direct-r1": 0.1, "haproxy-r1": 0.4, "shm": 0.2}
    secured = {"direct-r1": 0.3, "haproxy-r1": 1.0, "shm": 0.6}
    runs = [run(row.less, path, 0, device=cpu) for path, cpu in plain.items()]
    runs += [run(row.workload, path, 0, device=cpu) for path, cpu in secured.items()]
    found = row.ratio(figures(runs), "shm", row.haproxy)
    assert found is not None and found.median == pytest.approx(0.5)
    assert row.value(figures(runs), "shm") == pytest.approx(2000)
    assert row.value(figures(runs[3:]), "shm") is None


def test_the_range_over_files() -> None:
    files = [
        results.Measured.of(
            name, recorded(run("requests-32", "shm", 0, count=count), run("requests-32", "haproxy", 0, count=100))
        )
        for name, count in (("a", 150), ("b", 200), ("c", 120))
    ]
    (line,) = (line for line in results.lines(files) if line.row.metric == "rate")
    assert line.haproxy is not None and line.direct is None
    assert (line.haproxy.median, line.haproxy.low, line.haproxy.high) == (1.5, 1.2, 2.0)
    assert line.files == 3
    text = results.markdown(files)
    assert "1.50 (1.20–2.00)" in text and "| b | 2026-01-02 | CPU | 2 | 6.18 |" in text
    screen = io.StringIO()
    results.print_rows(Console(file=screen, width=120), files)
    assert "1.50 (1.20–2.00)" in screen.getvalue()


def test_results_need_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no result file"):
        results.files_of([tmp_path])


def test_figures_go_into_a_page(tmp_path: Path) -> None:
    page = tmp_path / "figures.md"
    page.write_text(f"before\n{results.BEGIN}\nold\n{results.END}\nafter\n")
    for _ in range(2):
        results.put_into(page, "new\n")
        assert page.read_text() == f"before\n{results.BEGIN}\n\nnew\n\n{results.END}\nafter\n"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="no place"):
        results.put_into(page, "new")
    assert page.read_text() == "nothing"


def test_the_page_has_the_figures_of_the_committed_files(tmp_path: Path) -> None:
    if not list(options.RESULTS.glob(f"*{results.SUFFIX}")):
        pytest.skip("no result file is committed yet")
    page = options.RESULTS.parents[2] / "deploy" / "docs" / "figures.md"
    copy = tmp_path / page.name
    copy.write_text(page.read_text())
    shown = list(picture.cells(picture.found_over(results.files_of([options.RESULTS]))))
    results.put_into(copy, results.markdown(results.load([options.RESULTS]), shown))
    assert copy.read_text() == page.read_text(), "run tests/bench/run --results --into deploy/docs/figures.md"


def test_limits() -> None:
    data = figures(
        [
            run("requests-32", "direct-r1", 0, host=1.0, device=0.6),
            run("requests-32", "haproxy", 0, host=0.5, device=0.99),
            run("requests-32", "shm", 0, host=0.5, device=0.7),
        ]
    )
    found = {limit.path: limit for limit in limits.of(data)}
    assert found["direct-r1"].reason == "the host's core"
    assert found["haproxy"].reason == "the device's core, most of it the peer's work"
    assert found["haproxy"].peer_share == pytest.approx(0.606, abs=0.001)
    assert found["shm"].reason.startswith("wake-ups")


# --- HAProxy --------------------------------------------------------------------------------------------------------


def test_haproxy_speaks_tls_with_the_peer_alone() -> None:
    files = Certificates(Path("/c/rsa"), Path("/c/ecdsa"), Path("/c/trust.pem"))
    text = config("198.18.1.1", "198.18.0.2", [], Path("/c"), files)
    port = HAPROXY.port("connect", "ecdsa")
    block = text[text.index(f"bind 198.18.1.1:{port}\n") :].partition("listen")[0]
    assert f"198.18.0.2:{DIRECT_R0.port('connect', 'ecdsa')} ssl verify required ca-file /c/trust.pem" in block
    assert "no-ssl-reuse" in block
    resumes = text[text.index(f"bind 198.18.1.1:{HAPROXY.port('connect', 'ecdsa-resumed')}\n") :].partition("listen")[0]
    assert f"198.18.0.2:{DIRECT_R0.port('connect', 'ecdsa-resumed')} ssl verify required" in resumes
    assert "no-ssl-reuse" not in resumes and "no-tls-tickets" not in resumes
    ports = [line.rpartition(":")[2] for line in text.splitlines() if line.lstrip().startswith("bind")]
    assert len(ports) == len(set(ports))
    assert SHM.port("connect", "rsa") == DIRECT_R0.port("connect", "rsa")
    assert replace(HAPROXY, splice=True).port("send") != HAPROXY.port("send")
