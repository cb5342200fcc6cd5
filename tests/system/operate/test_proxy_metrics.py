"""The proxy's process for metrics: what it may, what its end means, and that a reload takes over its files."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from beds.authority import certificate_for_localhost
from beds.few_descriptors import few_descriptors
from beds.metrics import value
from beds.operated_proxy import PROXY, START_S, Proxy, running, wait, write_config
from xts_lab.free_ports import free_port

LOOPBACK = "127.0.0.1"
TOKENS = ("the-first-token-of-two", "the-other-token-of-two")


def test_metrics_by_tls_for_who_has_the_token(tmp_path: Path) -> None:
    files, port, token = certificate_for_localhost(tmp_path), free_port(), tmp_path / "token"
    token.write_text(f"{TOKENS[0]}\n")
    where = {"metrics": f"{LOOPBACK}:{port}", "metrics_certificate": str(files.certificate)}

    def scrape(bearer: str) -> int:
        request = urllib.request.Request(f"https://localhost:{port}/metrics")
        request.add_header("Authorization", f"Bearer {bearer}")
        try:
            with urllib.request.urlopen(request, timeout=10, context=files.client_context()) as answer:
                assert b'xts_worker_rounds_total{worker="0"}' in answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    with running(tmp_path, **where, metrics_key=str(files.key), metrics_token=str(token)) as proxy:
        assert [scrape(one) for one in TOKENS] == [200, 401]
        token.write_text(TOKENS[1])
        proxy.hang_up("taken")
        wait(lambda: scrape(TOKENS[1]) == 200, "other token")
        assert scrape(TOKENS[0]) == 401
        token.write_text("short")
        assert "proxy.metrics_token" in proxy.hang_up("refused")
        assert scrape(TOKENS[1]) == 200


def rights(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_its_process_has_no_right_and_is_started_again(tmp_path: Path) -> None:
    with running(tmp_path) as proxy, proxy.host():
        assert 'xts_channel_up{queue="0",worker="0"} 1.0' in proxy.metrics()
        first = proxy.pid_of("xts-metrics")
        found = rights(first)
        assert {found["CapPrm"], found["CapEff"], found["CapInh"]} == {"0" * 16}
        assert found["NoNewPrivs"] == "1"
        if os.geteuid() == 0:
            assert "0" not in found["Uid"].split()
        os.kill(first, signal.SIGKILL)
        wait(lambda: "xts-metrics: killed by SIGKILL" in proxy.log.read_text(), "line in the log")
        wait(lambda: proxy.pid_of("xts-metrics") != first, "other process")
        assert 'xts_channel_up{queue="0",worker="0"} 1.0' in proxy.metrics()
        proxy.process.terminate()
        assert proxy.ended() == 0
        assert not (tmp_path / "metrics.sock").exists()


def test_one_that_cannot_be_started_again_for_lack_of_descriptors_is_started_later(tmp_path: Path) -> None:
    with running(tmp_path) as proxy:
        first = proxy.pid_of("xts-metrics")
        os.kill(first, signal.SIGKILL)
        wait(lambda: "starting it again" in proxy.log.read_text(), "line")
        assert proxy.status()  # and what it had open for it is closed
        with few_descriptors(proxy.process.pid, 0):
            wait(lambda: "xts-metrics cannot be started: Too many open files" in proxy.log.read_text(), "line")
            wait(lambda: proxy.status()["proxy"]["state"] == "running", "answer")
        wait(lambda: proxy.pid_of("xts-metrics") != first, "other process")
        assert "xts_" in proxy.metrics()


def test_a_process_for_metrics_that_stands_still_harms_nobody(tmp_path: Path) -> None:
    with running(tmp_path) as proxy:
        stopped = proxy.pid_of("xts-metrics")
        os.kill(stopped, signal.SIGSTOP)
        with proxy.host():
            assert proxy.status()["proxy"]["state"] == "running"
        proxy.process.terminate()
        assert proxy.ended() == 0
        with pytest.raises(ProcessLookupError):
            os.kill(stopped, 0)


def scraped(proxy: Proxy, name: str) -> float:
    return value(proxy.metrics(), name)


def test_files_that_cannot_be_used_are_mistakes(tmp_path: Path) -> None:
    config = write_config(tmp_path, metrics_token=str(tmp_path / "none"))
    ended = subprocess.run(
        [*PROXY, "--check", str(config)], check=False, capture_output=True, text=True, timeout=START_S
    )
    assert ended.returncode == 2
    assert "proxy.metrics_token" in ended.stderr and "No such file" in ended.stderr


def test_times_are_counted(tmp_path: Path) -> None:
    """By the worker: of a connect, and between two requests on a connection."""
    with running(tmp_path) as proxy, proxy.host() as (_, host), socket.create_server((LOOPBACK, 0)) as server:
        _, ack = host.connect(LOOPBACK, server.getsockname()[1])
        peer, _ = server.accept()

        def delayed() -> bool:
            """A request, after one that the worker has looked for in vain: unless it is slow, the first time."""
            host.send("XTS_CMD_SEND", b"request", id=int(ack.fields["proxy_id"]))
            assert peer.recv(7, socket.MSG_WAITALL) == b"request"
            return scraped(proxy, "xts_worker_turn_delay_seconds_count") >= 1

        with peer:
            wait(delayed, "delay")
            wait(delayed, "delay")
        assert scraped(proxy, "xts_request_gap_seconds_count") >= 1
        assert scraped(proxy, "xts_connect_seconds_count") == 1
        assert scraped(proxy, "xts_worker_round_cpu_seconds_count") >= 1
