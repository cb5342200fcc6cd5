"""xts-agent and xts-proxy over RDMA, and unmodified programs of users under `xts run`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.patience import SLOWER
from beds.rdma_clients import NOBODY, Client, Echo, echoes, processes
from beds.rdma_products import XTS, Products, products, until
from beds.rdma_wire import Wire

ANOTHER = 4711


@pytest.fixture
def both(wire: Wire) -> Iterator[Products]:
    with products(wire) as made:
        yield made


def environment(both: Products) -> dict[str, str]:
    return os.environ | {"XTS_ENDPOINT": both.endpoint, "XTS_LOOPBACK": "1"}


def relay_of(both: Products) -> int:
    """The process that carries the frames, whether its agent lives or not."""
    return until(lambda: processes("xts-relay"), "a relay")[0]


def opened(pid: int, what: str) -> list[str]:
    """The files of a process whose names begin so."""
    links = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()]
    return [link for link in links if link.startswith(what)]


# --- what it is for ----------------------------------------------------------------------------------------


def test_programs_of_several_users(both: Products, echo: Echo) -> None:
    """Some at once, megabytes each, none with anything of RDMA; and what both sides say of it."""
    clients = [Client(both, echo, 2_000_000 + n, "keep", user) for n, user in enumerate((NOBODY, ANOTHER, NOBODY))]
    for client in clients:
        client.hashed()
    attached = both.attached()
    assert len(attached) == 3 and {one.uid for one in attached} == {NOBODY, ANOTHER}
    for one in attached:
        assert not opened(one.pid, "/dev/infiniband")
    assert opened(relay_of(both), "/dev/infiniband/uverbs") and not opened(relay_of(both), "/dev/infiniband/rdma_cm")
    row = both.queue()
    assert (row["device"], row["port"], row["connected"]) == (both.wire.dpu.name, 8600, 1)
    assert row["peer"] == both.wire.host.address and not row["problem"]
    for client in clients:
        client.go_on()
        client.hashed()
        client.ends()
    said = subprocess.run([XTS, "status", "--endpoint", both.endpoint], capture_output=True, text=True, check=False)
    line = f"RDMA device {both.wire.host.name} to {both.wire.dpu.address} port 8600: the relay is up"
    assert line in said.stdout or (both.wire.kind == "siw" and "the relay is up" in said.stdout), said.stdout
    told = subprocess.run(
        [XTS, "doctor", "--json"], env=environment(both), capture_output=True, text=True, check=False
    ).stdout
    assert f'"RDMA {both.wire.host.name}"' in told and "can carry queues" in told, told
    control = [XTS.with_name("xts-proxy"), "status", "--control", both.control]
    told = subprocess.run(control, capture_output=True, text=True, check=False).stdout
    assert f"RDMA device {both.wire.dpu.name}" in told and "connected with the agent at" in told, told


# --- who ends without a word -------------------------------------------------------------------------------


def test_a_killed_agent_leaves_its_relay_to_programs(both: Products, echo: Echo) -> None:
    """They go on, and the next agent goes on with it."""
    client = Client(both, echo, then="keep")
    client.hashed()
    relay = relay_of(both)
    both.agent.kill()
    client.go_on()
    client.hashed()
    after = len(both.agent.said())
    both.agent.start()
    both.agent.until_said("the relay goes on", after)
    client.go_on()
    client.hashed()
    client.ends()
    echoes(both, echo)
    assert processes("xts-relay") == [relay]
    assert both.queue()["connections"] == 1


def test_a_killed_relay(both: Products, echo: Echo) -> None:
    """Connections end, and the same program is served again: by another relay, at another queue pair."""
    client = Client(both, echo, then="lose")
    client.hashed()
    os.kill(relay_of(both), signal.SIGKILL)
    client.go_on()
    client.line()
    client.hashed()
    client.ends()
    assert both.queue()["connections"] == 2


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_proxy_that_ends_and_is_started_again(both: Products, echo: Echo, how: signal.Signals) -> None:
    client = Client(both, echo, then="lose")
    client.hashed()
    both.proxy.kill(how)
    both.proxy.start()
    client.go_on()
    client.line()
    client.hashed()
    client.ends()
    assert both.queue()["connections"] == 1


def test_whoever_accepts_is_killed(both: Products, echo: Echo) -> None:
    """Another is started, and agents come again."""
    client = Client(both, echo, then="lose")
    client.hashed()
    for pid in processes("xts-rdma-cm"):
        os.kill(pid, signal.SIGKILL)
    client.go_on()
    client.line()
    client.hashed()
    client.ends()
    assert "xts-rdma-cm: killed by SIGKILL" in both.proxy.said(), both.proxy.said()


# --- who is refused, and what cannot be --------------------------------------------------------------------


def test_a_host_that_is_not_among_them(wire: Wire) -> None:
    """The proxy says whom it has refused, the agent that it was, and a program why it is not served."""
    with products(wire, start=False, rdma={"hosts": ["10.9.0.77"]}) as both:
        both.proxy.start()
        both.agent.start()
        both.agent.until_said("trying again")
        assert "REJECTED" in both.agent.said()
        assert f"{wire.host.address} was refused: its address is not among rdma.hosts" in both.proxy.said()
        until(lambda: both.queue()["refused"] >= 2, "that it comes again")
        assert not both.queue()["connected"]
        client = both.run(sys.executable, "-c", "import socket; socket.create_connection(('127.0.0.1', 9))")
        told = client.communicate(timeout=24 * SLOWER)[1]
        assert client.returncode and "there is no relay (the RDMA peer is not there, or does not want to" in told, told


def test_no_device_at_the_interface(wire: Wire) -> None:
    with products(wire, start=False) as both:
        for service in (both.proxy, both.agent):
            config = service.command.index("--config") + 1 if service is both.proxy else 0
            if config:
                path = Path(service.command[config])
                path.write_text(path.read_text().replace(f'"{wire.dpu.interface}"', '"lo"'))
            else:
                service.command[service.command.index(wire.host.interface)] = "lo"
        with pytest.raises(AssertionError):
            both.proxy.start()
        assert "no RDMA device at this interface" in both.proxy.said()
        both.agent.start()
        both.agent.until_said("no RDMA device at this interface")
