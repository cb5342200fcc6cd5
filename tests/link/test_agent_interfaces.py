"""An agent with several interfaces, and one that gives its interface more queues."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from beds.running_agent import stop, take
from beds.veth_wire import Wire, join
from pyroute2 import Ethtool
from xts_bpf.device import open_device_queues, receive_queues
from xts_messages.attaching.attach import attach
from xts_messages.services import exit_status
from xts_socket.cli.sockets import attached

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

#: Attaches as a child of a process that is attached, in a session of its own; prints the station of its queue.
CHILD = """
import os, sys
from xts_messages.services import exit_status
from xts_messages.attaching.attach import attach
with attach(sys.argv[1]) as mine:
    if os.fork() == 0:
        os.setsid()
        with attach(sys.argv[1]) as other:
            print(mine.queue.local_mac == other.queue.local_mac, flush=True)
        os._exit(0)
    os.wait()
"""


#: Attaches, prints the station of its queue, and stays.
STAYS = """
import sys, time
from xts_messages.services import exit_status
from xts_messages.attaching.attach import attach
with attach(sys.argv[1]) as mine:
    print(mine.queue.local_mac.hex(), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def second(wire: Wire) -> Wire:
    """Another pair of interfaces between the namespaces of the first."""
    more = replace(
        wire,
        host_if="xts2",
        device_if="xts3",
        host_mac=bytes.fromhex("020000000003"),
        device_mac=bytes.fromhex("020000000004"),
    )
    join(more, 62_000)
    return more


def start(wires: list[Wire], endpoint: str, *options: str) -> tuple[subprocess.Popen[str], str]:
    """The agent, and the line it said when it was ready."""
    command = [sys.executable, "-m", "xts_agent", "--endpoint", endpoint, "--relayed-max", "0", *options]
    for wire in wires:
        command += ["--interface", wire.host_if, "--peer-mac", wire.device_mac.hex(":")]
    with wires[0].inside(wires[0].host):
        agent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert agent.stdout
    return agent, agent.stdout.readline()


@pytest.fixture
def endpoint(wire: Wire, second: Wire, folder: str) -> Iterator[str]:
    """Of an agent with two queues on each of two interfaces."""
    agent, ready = start([wire, second], f"{folder}/endpoint.sock", "--queues", "2", "--per-uid-max", "0")
    assert ready.startswith("ready: 4 queues of xts0, xts2 at")
    yield f"{folder}/endpoint.sock"
    assert stop(agent) == 0


def test_all_queues_of_all_interfaces_are_given_out(endpoint: str, wire: Wire, second: Wire) -> None:
    with ExitStack() as held:
        given = [held.enter_context(attach(endpoint)) for _ in range(4)]
        macs = [attachment.queue.local_mac for attachment in given]
        assert sorted(macs) == sorted([wire.host_mac, second.host_mac] * 2)
        with pytest.raises(OSError, match="all 4 queues of xts0, xts2 are in use"):
            attach(endpoint)


def test_a_queue_is_shown_with_its_interface(endpoint: str) -> None:
    """Its number alone is that of as many queues as there are interfaces."""
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(attach(endpoint))
        shown = [(process.queue_kind, process.interface, process.queue_id) for process in attached.ask(endpoint)]
        assert shown == [("afxdp", name, number) for name in ("xts0", "xts2") for number in range(2)]
        text = subprocess.run(
            [sys.executable, "-m", "xts_socket.cli", "status", "--endpoint", endpoint],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert all(text.count(f"afxdp {name} {number} ") == 1 for _, name, number in shown)


def test_frames_cross_both(endpoint: str, wire: Wire, second: Wire) -> None:
    with ExitStack() as held:
        given = [held.enter_context(attach(endpoint)) for _ in range(4)]
        for one in (wire, second):
            with one.inside(one.device):
                device = held.enter_context(open_device_queues(one.device_if, 8, one.host_mac))
            for attachment in (a for a in given if a.queue.local_mac == one.host_mac):
                frame = one.device_mac + one.host_mac + b"\x85\x5b" + bytes(50)
                attachment.queue.send(frame)
                assert take(device.queues[attachment.queue_id]) == frame


def test_strangers_are_spread(endpoint: str) -> None:
    macs = []
    with ExitStack() as held:
        for _ in range(4):
            process = subprocess.Popen(
                [sys.executable, "-c", STAYS, endpoint], stdout=subprocess.PIPE, text=True, start_new_session=True
            )
            held.enter_context(process)
            held.callback(process.kill)
            assert process.stdout
            macs.append(process.stdout.readline().strip())
        assert macs[0] != macs[1]
        assert macs[2] != macs[3]


def test_a_child_is_served_where_its_parent_is(endpoint: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, endpoint], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "True\n"


@pytest.mark.parametrize(
    "options, said",
    [
        (
            ["--interface", "x0", "--interface", "x1", "--peer-mac", "02:00:00:00:00:02"],
            "2 interfaces and 1 of peer_mac",
        ),
        (["--interface", "x0", "--peer-mac", "02:00:00:00:00:02"] * 2, "an interface is named twice: x0, x0"),
    ],
)
def test_pairs(options: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "xts_agent", *options], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert said in done.stderr


# --- more queues -------------------------------------------------------------------------------------------


def lower(wire: Wire, queues: int) -> None:
    """Both ends of a wire have so many queues in use, of the eight that they may have."""
    for namespace, name in ((wire.host, wire.host_if), (wire.device, wire.device_if)):
        with wire.inside(namespace), Ethtool() as ethtool:
            ethtool.set_channels(name, {"rx_count": queues, "tx_count": queues})


@pytest.mark.parametrize("queues, given", [("6", 6), ("0", 8)])
def test_an_interface_is_given_more_queues(wire: Wire, folder: str, queues: str, given: int) -> None:
    lower(wire, 2)
    agent, ready = start([wire], f"{folder}/e.sock", "--raise-queues", "--queues", queues)
    assert ready.startswith(f"ready: {given} queues of xts0")
    with wire.inside(wire.host):
        assert receive_queues(wire.host_if) == given
    with ExitStack() as held:
        for _ in range(given):
            held.enter_context(attach(f"{folder}/e.sock"))
    assert stop(agent) == 0


def test_no_more_than_the_driver_allows(wire: Wire, folder: str) -> None:
    lower(wire, 2)
    agent, ready = start([wire], f"{folder}/e.sock", "--raise-queues", "--queues", "9")
    assert ready == ""
    assert stop(agent) == exit_status.MISTAKE


def test_the_number_stays_without_being_asked(wire: Wire, folder: str) -> None:
    lower(wire, 2)
    agent, ready = start([wire], f"{folder}/e.sock")
    assert ready.startswith("ready: 2 queues of xts0")
    assert stop(agent) == 0


def test_the_number_stays_while_a_queue_is_in_use(wire: Wire, folder: str) -> None:
    lower(wire, 2)
    agent, _ = start([wire], f"{folder}/e.sock")
    with attach(f"{folder}/e.sock"):
        with agent:
            agent.kill()
        agent, ready = start([wire], f"{folder}/e.sock", "--raise-queues")
        assert ready.startswith("ready: 2 queues of xts0")
        assert stop(agent) == 0
    Path(f"{folder}/e.sock").unlink(missing_ok=True)
