"""The agent's metrics: its queues, and what the processes of this host have done."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
from beds import process_tree
from beds.lab import raise_or_skip
from beds.metrics import scrape, value
from beds.patience import SLOWER
from beds.proxy_queue import RDMA, WIRE_VARIABLE
from xts_lab.lab import Lab

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

#: Sends and receives so many bytes, and lives until its input ends.
CLIENT = """
import sys
import xts_socket as socket
with socket.create_server(("198.18.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as s:
    peer, _ = listener.accept()
    s.sendall(bytes(5000))
    assert len(peer.recv(5000, socket.MSG_WAITALL)) == 5000
    print("done", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    raised = raise_or_skip("afxdp", "metrics", queues=4, metrics=True)
    try:
        yield raised
    finally:
        assert not raised.down()


def test_another_serves_when_it_ends(lab: Lab) -> None:
    """As often as that happens; the agent goes on meanwhile."""
    record = lab.record("agent")
    assert record
    agent = record.pid
    for _ in range(2):
        server = process_tree.one(agent, "xts-metrics")
        assert "xts_agent_info" in scrape(lab.metrics_path("agent"))
        process_tree.kill(server)
        process_tree.one(agent, "xts-metrics", other_than=server)
        assert "xts_agent_info" in scrape(lab.metrics_path("agent"))
    assert record.alive and lab.record("agent") == record


def test_queues_and_what_processes_have_done(lab: Lab) -> None:
    def agent() -> str:
        return scrape(lab.metrics_path("agent"))

    before = agent()
    assert 'xts_agent_info{version="' in before
    assert value(before, "xts_agent_queues", interface="xts0") == lab.settings.queues
    uid = str(os.geteuid())
    with lab.popen(
        "host", ["python", "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stdin
        assert process.stdout.readline() == "done\n"
        during = agent()
        assert value(during, "xts_agent_queues", interface="xts0", state="used") == 1
        assert value(during, "xts_host_processes", uid=uid) == 1
        assert value(during, "xts_host_sockets", uid=uid) >= 2
        attaches = value(during, "xts_agent_attaches_total", result="ok")
        assert attaches == value(before, "xts_agent_attaches_total", result="ok") + 1
        process.stdin.close()
        assert process.wait(10 * SLOWER) == 0
    after = agent()
    assert value(after, "xts_host_processes", uid=uid) == 0
    for name in ("xts_host_sent_bytes_total", "xts_host_received_bytes_total"):
        gained = value(after, name, uid=uid) - value(before, name, uid=uid)
        assert gained >= 5000, "what ended processes have done stays counted"
    if os.environ.get(WIRE_VARIABLE) != RDMA:  # which has no XDP program
        proxy = scrape(lab.metrics_path("proxy"))
        assert value(proxy, "xts_steer_frames_total", verdict="admitted") > 0
