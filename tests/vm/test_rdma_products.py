"""xts-agent and xts-proxy over RDMA, and unmodified programs of users under `xts run`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.rdma import Device
from beds.rdma_products import PATIENCE_S, XTS, Products, products, until
from beds.ready import readable

CLIENT = str(Path(__file__).with_name("programs") / "plain_client.py")
NOBODY, ANOTHER = 65534, 4711
HASH_BYTES = 64
Echo = tuple[int, int]


@pytest.fixture
def both(device: Device) -> Iterator[Products]:
    with products(device) as made:
        yield made


class Client:
    """The unmodified program, offloaded over RDMA."""

    def __init__(self, both: Products, echo: Echo, size: int = 100_000, then: str = "end", user: int = NOBODY) -> None:
        self.both = both
        words = sys.executable, CLIENT, str(echo[0]), str(size), then
        self.process = both.run(*words, user=user, stdin=subprocess.PIPE)

    def hashed(self) -> None:
        """Its next exchange was whole."""
        assert len(self.line()) == HASH_BYTES

    def line(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline().strip() if readable(self.process.stdout, PATIENCE_S) else ""
        if not line:
            self.process.kill()
            raise AssertionError(self.process.communicate(timeout=60)[1] + self.both.log_of_both())
        return line

    def go_on(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ends(self) -> None:
        told = self.process.communicate(timeout=120)[1]
        assert self.process.returncode == 0, told + self.both.log_of_both()


def echoes(both: Products, echo: Echo) -> None:
    """A new program is served, by the proxy's worker."""
    before = trunk_bytes(both)
    client = Client(both, echo, 100_000)
    client.hashed()
    client.ends()
    assert trunk_bytes(both) >= before + 100_000


def trunk_bytes(both: Products) -> int:
    """How many bytes of frames have come over RDMA, by the connections that there are."""
    return sum(int(row["queue"]["rx_bytes"]) for row in both.status()["channels"] if not row["relayed"])


def environment(both: Products) -> dict[str, str]:
    return os.environ | {"XTS_ENDPOINT": both.endpoint, "XTS_LOOPBACK": "1"}


def relay_of(both: Products) -> int:
    """The process that carries the frames, whether its agent lives or not."""
    return until(lambda: processes("xts-relay"), "a relay")[0]


def processes(name: str) -> list[int]:
    """All of this name, in this machine."""
    found = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text().strip() == name:
                found.append(int(comm.parent.name))
        except OSError:
            continue
    return found


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
    assert (row["device"], row["port"], row["connected"]) == (both.device.name, 8600, 1)
    assert row["peer"] == both.device.address and not row["problem"]
    for client in clients:
        client.go_on()
        client.hashed()
        client.ends()
    said = subprocess.run([XTS, "status", "--endpoint", both.endpoint], capture_output=True, text=True, check=False)
    line = f"RDMA device {both.device.name} to {both.device.address} port 8600: the relay is up"
    assert line in said.stdout or (both.device.kind == "siw" and "the relay is up" in said.stdout), said.stdout
    told = subprocess.run(
        [XTS, "doctor", "--json"], env=environment(both), capture_output=True, text=True, check=False
    ).stdout
    assert f'"RDMA {both.device.name}"' in told and "can carry queues" in told, told
    control = [XTS.with_name("xts-proxy"), "status", "--control", both.control]
    told = subprocess.run(control, capture_output=True, text=True, check=False).stdout
    assert f"RDMA device {both.device.name}" in told and "connected with the agent at" in told, told


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


def test_a_host_that_is_not_among_them(device: Device) -> None:
    """The proxy says whom it has refused, the agent that it was, and a program why it is not served."""
    with products(device, start=False, rdma={"hosts": ["10.9.0.77"]}) as both:
        both.proxy.start()
        both.agent.start()
        both.agent.until_said("trying again")
        assert "REJECTED" in both.agent.said()
        assert f"{device.address} was refused: its address is not among rdma.hosts" in both.proxy.said()
        until(lambda: both.queue()["refused"] >= 2, "that it comes again")
        assert not both.queue()["connected"]
        client = both.run(sys.executable, "-c", "import socket; socket.create_connection(('127.0.0.1', 9))")
        told = client.communicate(timeout=120)[1]
        assert client.returncode and "there is no relay (the RDMA peer is not there, or does not want to" in told, told


def test_no_device_at_the_interface(device: Device) -> None:
    with products(device, start=False) as both:
        for service in (both.proxy, both.agent):
            config = service.command.index("--config") + 1 if service is both.proxy else 0
            if config:
                path = Path(service.command[config])
                path.write_text(path.read_text().replace(f'"{device.interface}"', '"lo"'))
            else:
                service.command[service.command.index(device.interface)] = "lo"
        with pytest.raises(AssertionError):
            both.proxy.start()
        assert "no RDMA device at this interface" in both.proxy.said()
        both.agent.start()
        both.agent.until_said("no RDMA device at this interface")
