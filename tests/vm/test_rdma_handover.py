"""Over RDMA: another proxy takes over, the workers die, or the process with the queue pair. And who has no token."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.patience import SLOWER
from beds.rdma_clients import Client, Echo, echoes, processes
from beds.rdma_products import Products, products, until
from beds.rdma_wire import Wire


@pytest.fixture
def both(wire: Wire) -> Iterator[Products]:
    with products(wire) as made:
        yield made


def one(name: str) -> int:
    """The number of the only process of this name."""
    [found] = processes(name)
    return found


def connect_again(both: Products) -> None:
    """The agent's relay ends, and another one connects."""
    after = len(both.agent.said())
    os.kill(one("xts-relay"), signal.SIGKILL)
    both.until_up(after)


# --- another proxy -----------------------------------------------------------------------------------------


def test_an_upgrade_keeps_connections(both: Products, echo: Echo) -> None:
    """With a megabyte on its way, twice. The connection of RDMA stays the same one, and so do its processes, until it
    ends: then they are the new program."""
    client = Client(both, echo, 1_000_000, then="keep")
    client.hashed()
    carries, accepts, workers = one("xts-rdma-qp"), one("xts-rdma-cm"), one("xts-workers")
    for _ in range(2):
        client.go_on()
        both.upgrade()
        client.hashed()
    assert (one("xts-rdma-qp"), one("xts-rdma-cm")) == (carries, accepts)
    assert one("xts-workers") != workers
    row = both.queue()
    assert (row["connections"], row["connected"], row["peer"]) == (1, 1, both.wire.host.address)
    client.go_on()
    client.hashed()
    client.ends()
    echoes(both, echo)
    connect_again(both)
    echoes(both, echo)
    assert one("xts-rdma-qp") != carries
    assert one("xts-rdma-cm") != accepts


def test_an_upgrade_without_an_agent(wire: Wire, echo: Echo) -> None:
    """The new proxy has processes of its own."""
    with products(wire, start=False) as both:
        both.proxy.start()
        carries = one("xts-rdma-qp")
        both.upgrade()
        both.agent.start()
        both.until_up()
        assert one("xts-rdma-qp") != carries
        echoes(both, echo)


def test_a_new_proxy_that_cannot_take_over(both: Products, echo: Echo) -> None:
    """The running one goes on: with its connections, and with agents that come."""
    client = Client(both, echo, then="keep")
    client.hashed()
    both.fails_to_upgrade()
    client.go_on()
    client.hashed()
    client.ends()
    connect_again(both)
    echoes(both, echo)
    assert both.queue()["connections"] == 2


# --- who dies ----------------------------------------------------------------------------------------------


def test_workers_that_die_are_followed_by_others(both: Products, echo: Echo) -> None:
    client = Client(both, echo, 1_000_000, then="keep")
    client.hashed()
    carries = one("xts-rdma-qp")
    for _ in range(2):
        after = len(both.proxy.said())
        client.go_on()
        os.kill(one("xts-workers"), signal.SIGKILL)
        both.proxy.until_said("another process goes on", after)
        client.hashed()
    client.ends()
    echoes(both, echo)
    assert one("xts-rdma-qp") == carries
    assert both.queue()["connections"] == 1


def test_the_process_with_the_queue_pair_is_killed(both: Products, echo: Echo) -> None:
    """Another is started, and agents come again."""
    client = Client(both, echo, then="lose")
    client.hashed()
    os.kill(one("xts-rdma-qp"), signal.SIGKILL)
    client.go_on()
    client.line()
    client.hashed()
    client.ends()
    assert "xts-rdma-qp: killed by SIGKILL" in both.proxy.said(), both.proxy.said()


def test_nothing_is_left_of_a_proxy_that_has_ended(both: Products) -> None:
    assert processes("xts-rdma-qp")
    both.proxy.kill()
    until(lambda: not processes("xts-rdma-qp") + processes("xts-rdma-cm"), "that all have ended", 12 * SLOWER)
    both.proxy.start()


# --- tokens ------------------------------------------------------------------------------------------------


def key_file(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(os.urandom(64))
    path.chmod(0o600)
    return path


def test_who_has_no_token_is_refused(wire: Wire, echo: Echo, tmp_path: Path) -> None:
    """Its address is among `rdma.hosts`: that is not enough where there is a key."""
    key, another = key_file(tmp_path, "key"), key_file(tmp_path, "another")
    extra = f'token_key = "{key}"'
    for options in ((), ("--token-key", str(another))):
        with products(wire, start=False, proxy_extra=extra, agent_options=options) as both:
            both.proxy.start()
            both.agent.start()
            both.agent.until_said("no relay on")
            assert "the relay is up" not in both.agent.said()
    with products(wire, proxy_extra=extra, agent_options=("--token-key", str(key))) as both:
        echoes(both, echo)
