"""Proofs that frames find their queue, with few queues, odd numbers of them, and the most."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from xts_bpf.program import SteerProgram
from xts_bpf.steering import Prober, Proof, SteeredInterface, Steering
from xts_lab import card, netns, topology
from xts_lab.wire import PORTS, Wire, raise_network
from xts_messages.machine import mac_address

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

ETHERTYPE = 0x855B
ENDS = (topology.HOST_XTS, topology.DPU_XTS)
LOG = logging.getLogger("test")


@contextmanager
def wired(queues: int, folder: Path) -> Iterator[tuple[str, Path]]:
    """Two interfaces with so many queues at a switch with cards; without agent and proxy. Their lab's name, and where
    its cards answer."""
    name, answers = f"t{os.getpid()}proof", folder / "card.sock"
    ports = [f"{port.interface}={end.interface}" for end, port in PORTS.items()]
    raise_network(name, queues, Wire.SWITCH)
    try:
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "xts_lab.card", str(answers), *ports, "--ready-fd", str(writing)]
        with os.fdopen(reading) as ready:
            with netns.inside(topology.namespace_of(name, topology.SWITCH_ROLE)):
                process = subprocess.Popen(command, pass_fds=[writing])
            os.close(writing)
            with process:
                try:
                    assert ready.read(1) == ".", "the cards do not answer"
                    yield name, answers
                finally:
                    process.kill()
    finally:
        topology.remove_network(name)


def address(name: str, end: topology.End) -> bytes:
    return mac_address.station(topology.mac_address(name, end))


def steered(name: str, end: topology.End, queues: int, answers: Path, stack: ExitStack) -> tuple[SteerProgram, str]:
    """The program, the addresses and the rules of an end. And why some rules cannot be had."""
    peer = next(other for other in ENDS if other is not end)
    mask, ethertype = Steering.ADDRESS.peer_mask, ETHERTYPE
    with netns.inside(topology.namespace_of(name, end.role)):
        program = SteerProgram(end.interface, address(name, peer), ethertype=ethertype, exclusive=False, peer_mask=mask)
        base, how = address(name, end), f"unix:{answers}"
        interface = SteeredInterface(end.interface, base, range(queues), LOG, how=how, ethertype=ethertype)

    def close() -> None:
        with netns.inside(topology.namespace_of(name, end.role)):
            interface.close()
            program.close()

    stack.callback(close)
    return program, interface.problem


def proved(name: str, program: SteerProgram, queues: int) -> Proof:
    host, device = (address(name, end) for end in ENDS)
    with netns.inside(topology.namespace_of(name, "host")), closing(Prober(program, ETHERTYPE)) as prober:
        return prober.prove(topology.HOST_XTS.interface, host, device, range(queues), patience=10)


@pytest.mark.parametrize("queues", [1, 63, 256])
def test_each_queue_is_proved(queues: int, tmp_path: Path) -> None:
    with wired(queues, tmp_path) as (name, answers), ExitStack() as stack:
        (program, problem), (_, other) = (steered(name, end, queues, answers, stack) for end in ENDS)
        assert (problem, other) == ("", "")
        assert proved(name, program, queues) == Proof(frozenset(), "", answered=True)


def test_a_card_with_room_for_few_rules(tmp_path: Path) -> None:
    """As igb's: 16. Queue 0 needs none."""
    with wired(63, tmp_path) as (name, answers), ExitStack() as stack:
        card.behave(answers, topology.DPU_XTS.interface, card.DRIVERS["igb"])
        (program, problem), (_, other) = (steered(name, end, 63, answers, stack) for end in ENDS)
        assert problem == ""
        assert "its card has no room for another rule" in other
        found = proved(name, program, 63)
        assert found.lacking == set(range(17, 63))
        assert found.reason.startswith("46 of 63 queues of xts0 are not used: frames for queue 17 of the device")
        assert len(card.ask(answers, topology.DPU_XTS.interface, "rules")) == card.DRIVERS["igb"].rules_max
