"""What the kernel drops at a queue, because its process is too slow, is in status, in the metrics and in `xts top`."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from beds.lab import raise_or_skip
from beds.metrics import scrape, value
from beds.patience import SLOWER
from beds.ready import readable
from beds.running_agent import until
from xts_lab import topology
from xts_lab.lab import Lab
from xts_messages.attaching.attach import list_queues

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

FRAMES, WAIT_S = 4000, 20.0 * SLOWER
#: Has a queue and never looks what has come.
SLOW = """
import os, sys
from xts_messages.attaching.attach import attach
with attach(os.environ["XTS_ENDPOINT"]) as a:
    print(a.queue_id, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    raised = raise_or_skip("afxdp", "drops", queues=1, metrics=True)
    try:
        yield raised
    finally:
        assert not raised.down()


def test_a_process_that_does_not_look(lab: Lab) -> None:
    host, device = (
        bytes.fromhex(topology.mac_address(lab.name, end).replace(":", ""))
        for end in (topology.HOST_XTS, topology.DPU_XTS)
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with lab.popen("host", [sys.executable, "-c", SLOW], text=True, **pipes) as process:
        try:
            assert readable(process.stdout, WAIT_S) and process.stdout
            assert process.stdout.readline() == "0\n"
            with lab.inside("dpu"):
                raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            with raw:
                raw.bind((topology.DPU_XTS.interface, 0))
                for _ in range(FRAMES):
                    raw.send((host + device + b"\x85\x5b").ljust(60, b"\0"))
            until(lambda: dropped(lab) > FRAMES / 2, WAIT_S)
            count = dropped(lab)
            assert f"{count} (its process" in told(lab, "status")
            (shown,) = json.loads(told(lab, "top", "--json"))["interfaces"]
            assert shown["interface"] == topology.HOST_XTS.interface and sum(shown["drops"].values()) == count
            name = "xts_agent_dropped_frames_total"
            assert value(scrape(lab.metrics_path("agent")), name, interface=shown["interface"]) == count
        finally:
            process.kill()


def dropped(lab: Lab) -> int:
    """By what the endpoint says."""
    (offered,) = list_queues(str(lab.endpoint))
    return offered.drops.rx_ring_full + offered.drops.rx_no_buffers


def told(lab: Lab, *words: str) -> str:
    done = lab.run("host", ["xts", *words], capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)
