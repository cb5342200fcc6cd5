"""Scripts of datagrams and groups over AF_XDP: the program is in the device's own network namespace, and its queue's
packets cross the lab's cable. What differs between kinds of queues is below sockets, so this is the same as over
shared memory (test_calls.py, test_multicast.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from beds import multicast_namespace
from beds.lab import raise_or_skip
from beds.scripts import RUN_S, scripts
from beds.shm_proxy import SYSTEM, library
from system.sockets.programs.call_multicast import TOPICS
from system.sockets.programs.call_program import SCRIPTS
from xts_lab.lab import Lab

assert TOPICS  # which have the scripts of groups
pytestmark = [pytest.mark.root, pytest.mark.afxdp]
GROUPS = tuple(scripts("multicast"))
DATAGRAMS = tuple(name for name in SCRIPTS if "datagram" in name or "error_queue" in name)
PROGRAMS = {"call_multicast.py": (), "call_program.py": DATAGRAMS}
Traces = dict[str, list[Any]]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with raise_or_skip("afxdp", "calls", queues=1) as made:
        routes = "route add default via 198.18.0.2"  # without one, limited broadcast is unreachable for the kernel
        done = made.run("dpu", ["ip", "-batch", "-"], input=f"{multicast_namespace.batch()}\n{routes}", text=True)
        assert done.returncode == 0
        yield made


def traces(lab: Lab, side: str) -> Traces:
    found: Traces = {}
    for program, names in PROGRAMS.items():
        command = [sys.executable, str(SYSTEM / "sockets/programs" / program), side, *names]
        environment = {"XTS_ENDPOINT": str(lab.endpoint)}
        done = lab.run(
            "dpu", command, environment=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            timeout=RUN_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stderr}\n{lab.tail('proxy')}{lab.tail('agent')}"
        found |= json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def kernel(lab: Lab) -> Traces:
    return traces(lab, "kernel")


@pytest.fixture(scope="module")
def offloaded(lab: Lab) -> Traces:
    return traces(lab, library())


@pytest.mark.parametrize("name", [*GROUPS, *DATAGRAMS])
def test_goes_as_on_the_kernel(name: str, kernel: Traces, offloaded: Traces) -> None:
    assert not [entry for entry in kernel[name] if entry[0] == "failed"], kernel[name]
    assert offloaded[name] == kernel[name]
