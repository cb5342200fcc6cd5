"""What people set at an interface while queues of it are in use: `ethtool`, promiscuous mode, another address. A
transfer both ways goes on, at either end, with a queue of one's own and behind a relay; and no interface that is made
of others is taken for a card."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from beds.lab import raise_or_skip
from beds.lab_processes import echo_server
from beds.operated_proxy import wait
from beds.refused_interface import refusal_of_agent
from beds.transfer import TRANSFER
from xts_lab import topology
from xts_lab.lab import Lab

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

BACK_S = 20.0
HOST, DEVICE = topology.HOST_XTS, topology.DPU_XTS
ENDS = pytest.mark.parametrize("end", [HOST, DEVICE], ids=["host", "device"])


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = raise_or_skip("afxdp", "set", 2, relayed_max=None)
    try:
        yield made
    finally:
        made.down()


def done(lab: Lab, end: topology.End, *words: str) -> subprocess.CompletedProcess[str]:
    return lab.run(end.role, list(words), capture_output=True, text=True, timeout=20)


def transfer_during(lab: Lab, commands: list[list[str]], end: topology.End) -> list[subprocess.CompletedProcess[str]]:
    """What the commands have said while two programs sent at full rate, of which no byte was lost."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with ExitStack() as stack:
        port = str(stack.enter_context(echo_server(lab)))
        command = [sys.executable, "-c", TRANSFER, port]
        programs = [stack.enter_context(lab.popen("host", command, text=True, **pipes)) for _ in range(2)]
        for one in programs:
            stack.callback(one.kill)
        for one in programs:
            assert one.stdout and one.stdout.readline() == "begun\n"
        answers = [done(lab, end, *words) for words in commands]
        for one in programs:
            assert one.communicate("\n", timeout=40)[0] == "as it was sent\n"
    return answers


@ENDS
def test_offloads_are_switched(lab: Lab, end: topology.End) -> None:
    name = end.interface
    words = ("gro", "gso", "tx")
    commands = [["ethtool", "-K", name, word, how] for word in words for how in ("off", "on")]
    assert [answer.returncode for answer in transfer_during(lab, commands, end)] == [0] * len(commands)


@ENDS
def test_fewer_queues_than_are_in_use(lab: Lab, end: topology.End) -> None:
    """The kernel does not take a queue away that has a socket, and nothing is lost."""
    (answer,) = transfer_during(lab, [["ethtool", "-L", end.interface, "rx", "1", "tx", "1"]], end)
    assert answer.returncode and "AF_XDP sockets" in answer.stderr


@ENDS
def test_promiscuous_mode(lab: Lab, end: topology.End) -> None:
    commands = [["ip", "link", "set", end.interface, "promisc", how] for how in ("on", "off")]
    assert [answer.returncode for answer in transfer_during(lab, commands, end)] == [0, 0]


@ENDS
def test_another_address(lab: Lab, end: topology.End) -> None:
    """As a bond gives its ports. The queues keep theirs, which the other end knows, and the log says so."""
    before = topology.mac_address(lab.name, end)
    program = "agent" if end is HOST else "proxy"
    try:
        transfer_during(lab, [["ip", "link", "set", end.interface, "address", "02:00:00:00:00:77"]], end)
        said = (
            f"{end.interface} has the address 02:00:00:00:00:77 now, and had {before}: its queues go on with {before}"
        )
        wait(lambda: said in lab.tail(program, 40), "line in the log", BACK_S)
        transfer_during(lab, [], end)
    finally:
        done(lab, end, "ip", "link", "set", end.interface, "address", before)
    wait(lambda: "has the address of its queues again" in lab.tail(program, 40), "line in the log", BACK_S)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("bridge", "is a bridge, which has no queues"), ("macvlan", "is a macvlan device, which has no")],
)
def test_an_interface_that_is_made_of_others(lab: Lab, kind: str, words: str) -> None:
    """An agent there ends at once, with what to use instead."""
    below = ("link", "eth0") if kind == "macvlan" else ()
    answer = refusal_of_agent(lab, (*below, "name", "other0", "type", kind))
    assert answer.returncode == 2 and f"other0 {words}" in answer.stderr
