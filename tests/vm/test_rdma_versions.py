"""Over RDMA: library, agent and proxy of today and of an older version serve programs together, and one follows the
other. The older one has no process with the queue pair: a worker of it has that, and no upgrade keeps connections."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.patience import SLOWER
from beds.rdma_clients import Client, Echo, echoes
from beds.rdma_products import PATIENCE_S, Products, products
from beds.rdma_wire import Wire
from beds.versions import OVER_RDMA, TODAY, NoVersionError, Version, version_of


@pytest.fixture(scope="module")
def older() -> Version:
    """It was built outside, for the machine cannot write there (`before` of the set, tests/suite/named_sets.py)."""
    try:
        return version_of(os.environ.get("XTS_TEST_PREVIOUS") or OVER_RDMA)
    except NoVersionError as why:
        pytest.skip(f"no older version: {why}")


@pytest.fixture
def both(wire: Wire) -> Iterator[Products]:
    with products(wire, start=False) as made:
        yield made


def become(both: Products, *, agent: Version | None = None, proxy: Version | None = None) -> None:
    """The next ones that start are of these versions."""
    for service, version in ((both.agent, agent), (both.proxy, proxy)):
        if version:
            service.command[0] = version.python


def served(both: Products, echo: Echo, library: Version) -> None:
    """A new program, with the library of this version."""
    both.xts = Path(library.python).with_name("xts")
    echoes(both, echo)


@pytest.mark.parametrize("agent", ["today", "older"])
@pytest.mark.parametrize("proxy", ["today", "older"])
def test_all_serve_programs_of_both(both: Products, echo: Echo, older: Version, agent: str, proxy: str) -> None:
    versions = {"today": TODAY, "older": older}
    become(both, agent=versions[agent], proxy=versions[proxy])
    both.start()
    for library in versions.values():
        served(both, echo, library)


def test_agents_follow_each_other(both: Products, echo: Echo, older: Version) -> None:
    """The relay of the first one goes on, with the connections."""
    become(both, agent=older)
    both.start()
    client = Client(both, echo, then="keep")
    client.hashed()
    for version in (TODAY, older):
        both.agent.kill()
        become(both, agent=version)
        after = len(both.agent.said())
        both.agent.start()
        both.agent.until_said("the relay goes on", after)
        client.go_on()
        client.hashed()
    client.ends()
    assert both.queue()["connections"] == 1


def test_proxies_follow_each_other(both: Products, echo: Echo, older: Version) -> None:
    """By a restart, which ends connections. Where the older one is asked for an upgrade it refuses, and goes on."""
    become(both, proxy=older)
    both.start()
    client = Client(both, echo, then="keep")
    client.hashed()
    words = [sys.executable, *both.proxy.command[1:], "upgrade"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode and "rdma" in done.stderr.lower(), done.stderr
    client.go_on()
    client.hashed()
    client.ends()
    for version in (TODAY, older):
        client = Client(both, echo, then="lose")
        client.hashed()
        both.proxy.kill()
        become(both, proxy=version)
        both.proxy.start()
        client.go_on()
        client.line()
        client.hashed()
        client.process.communicate(timeout=24 * SLOWER)
    echoes(both, echo)
