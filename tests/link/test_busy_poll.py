"""Busy polling of AF_XDP sockets: what agent and proxy ask for, what is in force, and an interface that does without
interrupts meanwhile and is as before at the end. veth takes the options, and has nothing to poll."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from beds.operated_proxy import wait
from beds.proxy_cable import inside, made_cable, proxy_on
from beds.running_agent import start_agent, stop, until
from beds.veth_wire import Wire
from xts_bpf.device import open_device_queues
from xts_bpf.napi_deferral import Deferral, napis
from xts_bpf.program import SteerProgram, interface_index
from xts_messages.queues import busy_poll
from xts_messages.queues.afxdp import open_socket
from xts_messages.queues.queue_kinds import QueueOptions
from xts_socket.cli.device import offered_interfaces

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

OPTIONS = QueueOptions(frame_window=16, busy_poll_us=20, busy_poll_frames=64)
SAID = "busy polling (20 us, preferred, 64 frames): nothing to poll, for no frame has named a NAPI"
DEFER_US = 50


def test_a_queue_with_nothing_to_poll_carries_frames(wire: Wire) -> None:
    with wire.inside(wire.device):
        device = open_device_queues(wire.device_if, 1, wire.host_mac, options=OPTIONS)
    with device, wire.inside(wire.host), SteerProgram(wire.host_if, wire.device_mac) as program:
        with open_socket(wire.host_if, 0, OPTIONS) as xsk:
            program.admit(0, xsk.xsk_fd)
            xsk.set_addresses(wire.host_mac, wire.device_mac)
            asked = xsk.xsk_fd
            found = busy_poll.in_force(asked)
            assert (found.us, found.preferred) == (20, True)
            host = xsk.adopt()
            for number in range(200):
                frame = wire.device_mac + wire.host_mac + b"\x85\x5b" + number.to_bytes(50)
                host.send(frame)
                received = device.queues[0].wait(2000)
                assert bytes(received) == frame
                received.recycle()
                device.queues[0].send(frame[6:12] + frame[:6] + frame[12:])
                host.wait(2000).recycle()
                assert host.receive() is None
            napi_id = busy_poll.in_force(asked).napi_id
            assert bool(host.stats.card_polls) == bool(napi_id), "what there is to poll is polled"
            assert busy_poll.said(asked, OPTIONS) == (SAID if not napi_id else SAID.partition(":")[0])
            host.close()


def test_what_is_said() -> None:
    on = busy_poll.InForce(20, True, 7)
    assert busy_poll.describe(on, OPTIONS) == "busy polling (20 us, preferred, 64 frames) of NAPI 7"
    assert "Linux 5.11" in busy_poll.describe(busy_poll.InForce(20, False, 7), QueueOptions(busy_poll_us=20))
    assert busy_poll.describe(busy_poll.InForce(), OPTIONS).startswith("no busy polling")
    assert busy_poll.said(-1, QueueOptions()) == "", "nobody has asked"


def deferred(namespace: str, interface: str) -> set[tuple[int, int]]:
    with inside(namespace):
        return {(one.defer_hard_irqs, one.gro_flush_ns) for one in napis(interface_index(interface))}


def can_defer(namespace: str, interface: str) -> None:
    """Its NAPIs stay when no XDP program is there any more."""
    if not shutil.which("ethtool"):
        pytest.skip("no ethtool is installed")
    with inside(namespace):
        subprocess.run(["ethtool", "-K", interface, "gro", "on"], check=True, timeout=10)
    try:
        assert deferred(namespace, interface) == {(0, 0)}
    except OSError as failure:
        pytest.skip(str(failure))


def test_an_interface_is_as_before(wire: Wire) -> None:
    with wire.inside(wire.host):
        can_defer(wire.host, wire.host_if)
        made = Deferral(DEFER_US)
        made.begin(interface_index(wire.host_if))
        assert made.said == "deferred by 50 us" and deferred(wire.host, wire.host_if) == {(2, DEFER_US * 1000)}
        made.end()
        assert deferred(wire.host, wire.host_if) == {(0, 0)}
        unwanted = Deferral(0)
        unwanted.begin(interface_index(wire.host_if))
        assert unwanted.said == ""


def test_what_a_killed_process_has_set_is_not_put_back(wire: Wire) -> None:
    with wire.inside(wire.host):
        can_defer(wire.host, wire.host_if)
        index = interface_index(wire.host_if)
        Deferral(DEFER_US).begin(index)  # and it never ends
        after = Deferral(DEFER_US)
        after.begin(index)
        assert deferred(wire.host, wire.host_if) == {(2, DEFER_US * 1000)}
        after.end()
        assert deferred(wire.host, wire.host_if) == {(0, 0)}


def test_the_agent(wire: Wire, folder: str) -> None:
    endpoint = f"{folder}/endpoint.sock"
    options = ["--busy-poll-us", "20", "--busy-poll-frames", "64", "--napi-defer-us", str(DEFER_US), "--queues", "2"]
    can_defer(wire.host, wire.host_if)
    agent = start_agent(wire, endpoint, *options)
    try:
        until(lambda: offered_interfaces.ask(endpoint))
        (shown,) = offered_interfaces.ask(endpoint)
        assert SAID in shown.copying
        assert "deferred by 50 us" in shown.copying
        assert deferred(wire.host, wire.host_if) == {(2, DEFER_US * 1000)}
    finally:
        stopped = stop(agent)
    assert stopped == 0
    assert deferred(wire.host, wire.host_if) == {(0, 0)}


def test_the_proxy(tmp_path: Path) -> None:
    with made_cable() as cable:
        can_defer(cable.device, "dev0")
        keys = {"busy_poll_us": 20, "busy_poll_frames": 64, "napi_defer_us": DEFER_US}
        with proxy_on(cable, tmp_path, **keys) as proxy:
            assert SAID in proxy.status()["interface"]["copying"]
            wait(lambda: "deferred by 50 us" in proxy.status()["interface"]["copying"], "deferral")
            assert deferred(cable.device, "dev0") == {(2, DEFER_US * 1000)}
            assert _polls(proxy.metrics()) == 0.0
            proxy.process.terminate()
            assert proxy.ended(20) == 0
        assert deferred(cable.device, "dev0") == {(0, 0)}


def _polls(metrics: str) -> float:
    found = [line for line in metrics.splitlines() if line.startswith("xts_queue_card_polls_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in found)
