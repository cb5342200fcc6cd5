"""Fixtures of the link tests: a wire (beds/veth_wire.py), and an agent on it (beds/running_agent.py)."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.running_agent import Running, start_agent, stop
from beds.veth_wire import Wire, make_wire
from xts_bpf.device import open_device_queues
from xts_messages.queues.queue_kinds import QueueOptions


@pytest.fixture
def wire() -> Iterator[Wire]:
    yield from make_wire(62_000)


@pytest.fixture
def folder() -> Iterator[str]:
    """One that everybody may enter."""
    path = tempfile.mkdtemp(prefix="xts-link-")
    Path(path).chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def running(wire: Wire, folder: str, request: pytest.FixtureRequest) -> Iterator[Running]:
    options = getattr(request, "param", ["--queues", "2"])
    endpoint = f"{folder}/endpoint.sock"
    log = Path(folder) / "log"
    agent = start_agent(wire, endpoint, *options, log=log)
    with wire.inside(wire.device):
        device = open_device_queues(
            wire.device_if, 8, wire.host_mac, options=QueueOptions(single_chunk="--single-chunk" in options)
        )
    with device:
        served = Running(wire, agent, endpoint, device, log)
        yield served
        sys.stderr.write(served.logged())  # for who reads about a failure
        assert stop(served.agent) == 0
