"""What is under the proxy changes while it runs: its interface leaves and returns, its XDP program is taken off, the
MTU is lowered. The proxy mends it by itself, and says meanwhile what is wrong."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from beds.operated_proxy import PROXY, START_S, Proxy, user_to_become, wait, write_config
from beds.proxy_cable import (
    DEVICE_MAC,
    HOST_MAC,
    QUEUES,
    Cable,
    exchange,
    host_on,
    inside,
    made_cable,
    proxy_on,
    upgraded_on,
)
from beds.scripted_host import ScriptedHost
from beds.service_manager import Manager
from pyroute2 import NetNS
from xts_bpf.device import DeviceQueues, open_device_queues
from xts_bpf.interface_state import InterfaceState, read_state
from xts_bpf.program import SteerProgram

pytestmark = [
    pytest.mark.root,
    pytest.mark.afxdp,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]

BACK_S = 10.0  # generous: the machine may be busy


@pytest.fixture
def cable() -> Iterator[Cable]:
    with made_cable() as made:
        yield made


@pytest.fixture(params=["started", pytest.param("upgraded", marks=pytest.mark.long)])
def way(request: pytest.FixtureRequest) -> str:
    """How the proxy has come to its interface: it has opened its queues, or the one before has handed them over."""
    return str(request.param)


@pytest.fixture
def proxy(cable: Cable, tmp_path: Path, request: pytest.FixtureRequest, way: str) -> Iterator[Proxy]:
    with proxy_on(cable, tmp_path, **getattr(request, "param", {})) as made:
        if way == "started":
            yield made
            return
        with upgraded_on(cable, made) as new:
            yield new


@pytest.fixture
def server(cable: Cable) -> Iterator[socket.socket]:
    with inside(cable.device):
        made = socket.create_server(("127.0.0.1", 0))
    with made:
        made.settimeout(5)
        yield made


@contextlib.contextmanager
def host_of(cable: Cable, queues: int = QUEUES) -> Iterator[DeviceQueues]:
    """The host's queues."""
    with ExitStack() as stack:
        with inside(cable.host):
            opened = open_device_queues("xts0", queues, bytes.fromhex(DEVICE_MAC.replace(":", "")))
        yield stack.enter_context(opened)


def state_of(cable: Cable, name: str = "dev0") -> InterfaceState | None:
    with inside(cable.device):
        return read_state(name)


def set_link(cable: Cable, name: str = "dev0", **what: object) -> None:
    with NetNS(cable.device) as device:
        device.link("set", index=device.link_lookup(ifname=name)[0], **what)


def remove(cable: Cable) -> None:
    with NetNS(cable.device) as device:
        device.link("del", index=device.link_lookup(ifname="dev0")[0])


def interface(proxy: Proxy) -> dict[str, Any]:
    return dict(proxy.status()["interface"])


def wait_for_problem(proxy: Proxy, words: str) -> None:
    wait(lambda: words in interface(proxy)["problem"], f"problem {words!r}", BACK_S)


def served(ends: DeviceQueues, number: int, server: socket.socket) -> ScriptedHost:
    """A process of the host that is served, as soon as one can be."""
    deadline = time.monotonic() + BACK_S
    while True:
        try:
            host = host_on(ends, number)
            break
        except (AssertionError, TimeoutError, OSError):
            if time.monotonic() > deadline:
                raise
    exchange(host, server)
    return host


@pytest.mark.parametrize("way", ["started", "upgraded"], indirect=True)
def test_a_program_that_is_taken_off_is_attached_again(cable: Cable, proxy: Proxy, server: socket.socket) -> None:
    before = state_of(cable)
    assert before and before.program_id
    with host_of(cable) as ends:
        host = served(ends, 0, server)
        set_link(cable, xdp_fd=-1)
        wait(lambda: state_of(cable) == before, "the program", BACK_S)
        exchange(host, server)
    wait(lambda: interface(proxy)["reattached"] == 1, "count", BACK_S)
    assert interface(proxy)["problem"] == ""
    assert "\nxts_program_attaches_total 1.0\n" in proxy.metrics()
    assert "\nxts_interface_serves 1.0\n" in proxy.metrics()
    assert proxy.log.read_text().count("was taken off dev0 by another tool, and is attached again") == 1


def test_another_program_in_its_place(cable: Cable, proxy: Proxy, server: socket.socket) -> None:
    with inside(cable.device):
        other = SteerProgram("dev0", bytes(6))
    wait_for_problem(proxy, f"dev0 has XDP program {other.program_id} in place of ours")
    assert "\nxts_interface_serves 0.0\n" in proxy.metrics()
    with inside(cable.device):
        other.close()
    wait(lambda: not interface(proxy)["problem"], "end of the problem", BACK_S)
    with host_of(cable) as ends:
        served(ends, 0, server)
    assert proxy.log.read_text().count("in place of ours") == 1


def move_away_and_back(cable: Cable, proxy: Proxy, between: Callable[[], None]) -> None:
    with NetNS(cable.device) as device, NetNS(cable.host) as host:
        device.link("set", index=device.link_lookup(ifname="dev0")[0], net_ns_fd=cable.host)
        between()
        host.link("set", index=host.link_lookup(ifname="dev0")[0], net_ns_fd=cable.device)
    set_link(cable, state="up")


def test_an_interface_that_leaves_and_returns(cable: Cable, proxy: Proxy, server: socket.socket) -> None:
    """As with a reload of its driver: it has the same number, and the sockets are bound to nothing all the same."""

    def meanwhile() -> None:
        wait_for_problem(proxy, "dev0 is not there")
        assert not proxy.status()["channels"]

    with host_of(cable) as ends:
        served(ends, 1, server)
        move_away_and_back(cable, proxy, meanwhile)
        for number in range(QUEUES):
            served(ends, number, server)
        move_away_and_back(cable, proxy, lambda: None)  # and too fast to be seen
        wait(lambda: interface(proxy)["renewed"] == 2, "another renewal", BACK_S)
        for number in range(QUEUES):
            served(ends, number, server)
    log = proxy.log.read_text()
    assert log.count("dev0 is not there: it was removed, or moved") == 1 or log.count("is not there") == 2
    assert log.count("queues of dev0 were opened again") == 2


@pytest.mark.parametrize("way", ["started", "upgraded"], indirect=True)
def test_an_interface_that_is_made_again(cable: Cable, proxy: Proxy, server: socket.socket) -> None:
    before = state_of(cable)
    with host_of(cable) as ends:
        served(ends, 1, server)
        remove(cable)
        wait_for_problem(proxy, "dev0 is not there")
    with NetNS(cable.device) as device:  # takes the old number
        device.link("add", ifname="other0", kind="veth", peer={"ifname": "other1"})
    cable.join(device_mac="02:00:00:00:00:77")
    with ExitStack() as stack:
        with inside(cable.host):
            opened = open_device_queues("xts0", QUEUES, bytes.fromhex("020000000077"))
        ends = stack.enter_context(opened)
        for number in range(QUEUES):
            served(ends, number, server)
    after = state_of(cable)
    assert before and after and before.index != after.index
    assert (interface(proxy)["renewed"], interface(proxy)["problem"]) == (1, "")
    log = proxy.log.read_text()
    assert log.count("dev0 was made again") == log.count("2 queues of dev0 were opened again") == 1
    assert log.count("dev0 has the address 02:00:00:00:00:77 now, and had 02:00:00:00:00:02") == 1


@pytest.mark.parametrize("proxy", [{"queues": "0-1"}], indirect=True)
def test_an_interface_with_fewer_queues_than_configured(cable: Cable, proxy: Proxy, server: socket.socket) -> None:
    """It says so, and serves when there are as many again."""
    remove(cable)
    cable.join(queues=1)
    wait_for_problem(proxy, "dev0 has queues 0-0, not 0-1 (see ethtool -l dev0)")
    time.sleep(2.5)  # it tries again
    assert proxy.log.read_text().count("dev0 has queues 0-0, not 0-1") == 1
    remove(cable)
    cable.join()
    wait(lambda: not interface(proxy)["problem"], "end of the problem", BACK_S)
    with host_of(cable) as ends:
        served(ends, 1, server)


def test_an_interface_with_fewer_queues(cable: Cable, proxy: Proxy, server: socket.socket) -> None:
    """All that there are, says the configuration."""
    remove(cable)
    cable.join(queues=1)
    with host_of(cable, queues=1) as ends:
        served(ends, 0, server)
    assert [row["queue_id"] for row in proxy.status()["channels"]] == [0]


def test_an_interface_that_is_renamed(cable: Cable, proxy: Proxy, server: socket.socket) -> None:
    with host_of(cable) as ends:
        host = served(ends, 0, server)
        set_link(cable, ifname="renamed0")
        wait(lambda: "dev0 is called renamed0 now" in proxy.log.read_text(), "line", BACK_S)
        exchange(host, server)
        set_link(cable, "renamed0", mtu=9000)  # its queues are opened again
        wait(lambda: interface(proxy)["renewed"] == 1, "renewal", BACK_S)
        served(ends, 0, server)


def test_an_mtu_that_is_lowered(cable: Cable, proxy: Proxy, server: socket.socket) -> None:
    with host_of(cable) as ends:
        host = served(ends, 0, server)
        assert host.link.largest_message == 61_440
        set_link(cable, mtu=9000)
        host.wait_down()
        assert served(ends, 0, server).link.largest_message == 9014
        set_link(cable, mtu=1200)
        wait_for_problem(proxy, "the MTU of dev0 is 1200: 1280 or more is needed")
        set_link(cable, mtu=62_000)
        assert served(ends, 0, server).link.largest_message == 61_440
    log = proxy.log.read_text()
    assert log.count("the MTU of dev0 is 9000 now, and was 62000") == 1
    assert log.count("the MTU of dev0 is 1200") == 1


def test_the_process_that_opens_queues_has_ended(cable: Cable, proxy: Proxy, server: socket.socket) -> None:
    """The proxy goes on, until another start is the only way to open queues."""
    with host_of(cable) as ends:
        host = served(ends, 0, server)
        os.kill(proxy.pid_of("xts-opener"), signal.SIGKILL)
        wait(lambda: "xts-opener: killed by SIGKILL" in proxy.log.read_text(), "line", BACK_S)
        exchange(host, server)
        remove(cable)
        wait_for_problem(proxy, "dev0 is not there")
        assert proxy.process.poll() is None
    cable.join()
    assert proxy.ended(BACK_S) == 1
    assert "dev0 was made again: opening its queues takes a restart" in proxy.log.read_text()


def test_queues_that_were_opened_ahead(cable: Cable, server: socket.socket) -> None:
    """The proxy has no right to open any: it ends when a start would help, and not before."""
    with tempfile.TemporaryDirectory(prefix="xts-proxy-") as name, Manager() as manager, inside(cable.device):
        directory = Path(name)
        directory.chmod(0o755)
        config = write_config(directory, queue="afxdp", interface="dev0", peer_mac=HOST_MAC, workers=QUEUES)
        shutil.chown(directory, user_to_become())

        @contextlib.contextmanager
        def started() -> Iterator[Proxy]:
            with manager.start([*PROXY, "--config", str(config), "--open-queues"]) as opener:
                assert opener.wait(START_S) == 0, opener.communicate()[1]
            manager.heard.clear()
            with manager.start([*PROXY, "--config", str(config)], user=user_to_become()) as process:
                made = Proxy(process, directory, directory / "log")
                try:
                    wait(lambda: any(m.startswith("READY=1") for m in manager.heard), "READY", START_S)
                    yield made
                finally:
                    process.kill()

        def ends_saying(proxy: Proxy, words: str) -> None:
            assert proxy.ended(BACK_S) == 1
            assert words in proxy.process.communicate()[1]

        with started() as proxy:
            with host_of(cable) as ends:
                served(ends, 0, server)
            remove(cable)
            wait_for_problem(proxy, "dev0 is not there")
            assert proxy.process.poll() is None
            cable.join()
            ends_saying(proxy, "dev0 was made again: opening its queues takes a restart")
        with started() as proxy:
            other = SteerProgram("dev0", bytes(6))
            wait_for_problem(proxy, f"XDP program {other.program_id} in place of ours")
            assert proxy.process.poll() is None
            other.close()
            ends_saying(proxy, "dev0 has no XDP program any more: opening its queues takes a restart")
        with started() as proxy, host_of(cable) as ends:
            served(ends, 0, server)
