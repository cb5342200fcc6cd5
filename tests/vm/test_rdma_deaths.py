"""Over RDMA: each process ends without a word while megabytes are on their way, and what programs notice of that."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from beds.rdma_clients import Echo, Program, echoes, processes
from beds.rdma_products import Products, products
from beds.rdma_wire import Wire

PROGRAM = str(Path(__file__).with_name("programs") / "exchanging_client.py")
SIZE = 3_000_000


@pytest.fixture(scope="module")
def both(wire: Wire) -> Iterator[Products]:
    with products(wire, proxy_extra="crashes_max = 1000") as made:
        yield made


class Exchanging(Program):
    def __init__(self, both: Products, echo: Echo) -> None:
        super().__init__(both, PROGRAM, str(echo[0]), str(SIZE))

    def begins(self) -> None:
        """The next exchange is under way."""
        self.go_on()
        assert self.line() == "begun"

    def whole(self) -> list[str]:
        """All bytes are there and right. How often a connection was lost before, and by which errors."""
        lost = []
        while (line := self.line()) != "whole":
            if line.startswith("lost "):
                lost.append(line.removeprefix("lost "))
        return lost


def killed(name: str) -> Callable[[Products], None]:
    def kill(both: Products) -> None:
        found = processes(name)
        assert found, name
        for pid in found:
            os.kill(pid, signal.SIGKILL)

    return kill


def killed_agent(both: Products) -> None:
    after = len(both.agent.said())
    both.agent.kill()
    both.agent.start()
    both.agent.until_said("the relay goes on", after)


def killed_proxy(both: Products) -> None:
    both.proxy.kill()
    both.proxy.start()


#: Whether connections outlive it.
DEATHS: dict[str, tuple[Callable[[Products], None], bool]] = {
    "agent": (killed_agent, True),
    "workers": (killed("xts-workers"), True),
    "upgrade": (Products.upgrade, True),
    "queue pair of the proxy": (killed("xts-rdma-qp"), False),
    "connection manager of the proxy": (killed("xts-rdma-cm"), False),
    "relay": (killed("xts-relay"), False),
    "connection manager of the relay": (killed("xts-relay-cm"), False),
    "proxy": (killed_proxy, False),
}


@pytest.mark.parametrize("who", DEATHS)
def test_who_dies_under_way(both: Products, echo: Echo, who: str) -> None:
    """No byte is wrong, none is missing from a connection that goes on, and everybody is served again."""
    dies, outlived = DEATHS[who]
    client = Exchanging(both, echo)
    client.begins()
    assert client.whole() == []
    client.begins()
    dies(both)
    lost = client.whole()
    assert outlived == (not lost), (lost, both.log_of_both())
    client.begins()
    assert client.whole() == []
    client.ends()
    echoes(both, echo)
