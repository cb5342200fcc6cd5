"""`xts-trace` on connections of this process: bcc at the static probes of libxts and of the proxy. Where kernel headers
or uprobes are missing, the tool says so, and these tests are skipped with what it says."""

from __future__ import annotations

import json
import os
import re
import socket as kernel
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xts_socket
from beds.proxy_process import ProxyProcess

pytestmark = pytest.mark.root

SECONDS = 1.5
TRACE = [sys.executable, "-m", "xts_bpf.trace"]
#: What makes tracing impossible here, without being wrong.
CANNOT = re.compile(r"bcc is missing|no kernel headers|bcc: |built without <sys/sdt.h>")


def traced(proxy: ProxyProcess, verb: str, work: Callable[[], None]) -> list[dict[str, Any]]:
    """What the tool reports of this process and the proxy, while work() is done again and again."""
    pids = ["--pid", str(os.getpid()), "--pid", str(proxy.workers_pid)]
    command = [*TRACE, verb, "--seconds", str(SECONDS), "--json", *pids]
    # Tracepoints need tracefs, which a machine may not have mounted.
    mounted = ["unshare", "-m", "sh", "-c", 'mount -t tracefs none /sys/kernel/tracing; exec "$@"', "sh", *command]
    with subprocess.Popen(mounted, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tool:
        assert tool.stdout and tool.stderr
        said = ""
        for line in tool.stderr:
            said += line
            if "watching" in line:
                break
        else:
            assert tool.wait() == 1
            if CANNOT.search(said):
                pytest.skip(f"no tracing on this machine: {said.strip().splitlines()[-1]}")
            pytest.fail(said)
        ended = threading.Event()

        def wait() -> None:
            tool.wait()
            ended.set()

        threading.Thread(target=wait).start()
        while not ended.is_set():
            work()
        rows: list[dict[str, Any]] = json.loads(tool.stdout.read())
        assert tool.returncode == 0, tool.stderr.read()
    return rows


@pytest.fixture
def exchange(xts_endpoint: ProxyProcess) -> Any:
    """One request and its answer, over an offloaded connection."""
    with kernel.create_server(("127.0.0.1", 0)) as listener, xts_socket.socket() as sock:
        sock.connect(listener.getsockname())
        peer, _ = listener.accept()

        def once() -> None:
            sock.sendall(b"x" * 1000)
            assert len(peer.recv(1000, kernel.MSG_WAITALL)) == 1000
            peer.sendall(b"y")
            assert sock.recv(1) == b"y"

        with peer:
            yield once


def test_stages_of_a_send(exchange: Callable[[], None], xts_endpoint: ProxyProcess) -> None:
    rows = {row["stage"]: row for row in traced(xts_endpoint, "send", exchange)}
    assert list(rows)[:5] == ["call", "queue", "worker", "TCP", "total"]
    total = rows["total"]["count"]
    assert total > 50
    for stage in ("call", "queue", "worker", "TCP"):
        # Sends go on while the tool reads one count after the other.
        assert abs(rows[stage]["count"] - total) <= 1 + total // 20, rows
        assert 0 < rows[stage]["p50_us"] <= rows[stage]["p99_us"] < 1e6
        assert sum(rows[stage]["histogram_us"].values()) == rows[stage]["count"]
    assert rows["total"]["p50_us"] > rows["TCP"]["p50_us"]
    assert "unfinished" not in rows


def test_wakeups(exchange: Callable[[], None], xts_endpoint: ProxyProcess) -> None:
    # The server of this process is in the kernel: only the worker, and a wait of recv(), sleep at our probes.
    rows = traced(xts_endpoint, "wakeups", lambda: (threading.Event().wait(0.002), exchange())[1])
    worker = [row for row in rows if row["name"] == "xts-worker"]
    assert len(worker) == 1 and worker[0]["pid"] == xts_endpoint.workers_pid, rows
    assert worker[0]["sleeps"] >= worker[0]["wakeups"] > 20
    assert 0 < worker[0]["to_run_p50_us"] <= worker[0]["to_run_p99_us"] < 1e6
    assert worker[0]["asleep_p50_us"] >= 500, "it slept while nothing was sent, for two milliseconds each time"


def test_depth_of_queues(exchange: Callable[[], None], xts_endpoint: ProxyProcess) -> None:
    rows = traced(xts_endpoint, "queues", exchange)
    depths = {row["depth"]: row for row in rows}
    sent = depths["frames in flight at a send"]
    assert sent["of"] == f"process {os.getpid()}" and sent["count"] > 50
    assert 0 <= sent["p50"] <= sent["max"] < 128
    found = depths["frames found at a look"]
    assert found["count"] > 50 and 1 <= found["p50"] <= found["max"]
    assert depths["bytes in a spill buffer after a write"]["max"] == 0, "TCP took each at once"


def test_nothing_that_runs_has_probes(tmp_path: Path) -> None:
    """In a namespace of processes of its own there are none of ours."""
    script = 'mount -t proc none /proc; exec "$@"'
    done = subprocess.run(
        ["unshare", "-mpf", "sh", "-c", script, "sh", *TRACE, "send", "--seconds", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and not done.stdout
    assert "no running process has the probes" in done.stderr or "bcc is missing" in done.stderr


@pytest.mark.parametrize("seconds", ["-1", "nan", "many", "1e9"])
def test_wrong_usage(seconds: str) -> None:
    done = subprocess.run(
        [*TRACE, "send", "--seconds", seconds], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2 and "--seconds" in done.stderr
