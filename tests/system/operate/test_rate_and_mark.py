"""The rate and the mark (DSCP) of a tenant and of a socket, as the network sees them: how fast data arrives at a peer,
and what is in the packets."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from beds.lab import raise_or_skip
from beds.scripts import RUN_S
from beds.shm_proxy import SYSTEM
from beds.wire_view import BUFFER_BYTES, Meters, at_rate, in_background, packets_in, read_datagrams, read_stream
from xts_lab import topology
from xts_lab.lab import Lab
from xts_proxy.status import control_socket

PROGRAM = str(SYSTEM / "operate/programs/send_fast.py")
TENANT_MBIT_S, SOCKET_MBIT_S = 64, 40
#: Expedited forwarding, and assured forwarding 4.1.
EF, AF41 = 46, 34
SECONDS = 2.0
SO_RCVBUFFORCE = 33
TENANT = f'[[tenant]]\nname = "default"\npacing_mbit_s = {TENANT_MBIT_S}\ndscp = {EF}\n'
PEER = {4: str(topology.NET.addresses[0].ip), 6: str(topology.NET.addresses[1].ip)}
QUEUES = [pytest.param("shm"), pytest.param("afxdp", marks=pytest.mark.afxdp)]
pytestmark = [pytest.mark.root]


@pytest.fixture(scope="module", params=QUEUES)
def limited(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Everybody is of a tenant with a rate and a mark."""
    with raise_or_skip(request.param, "limited", queues=4, tables=TENANT) as lab:
        yield lab


@pytest.fixture(scope="module", params=QUEUES)
def plain(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with raise_or_skip(request.param, "plain", queues=4) as lab:
        yield lab


def peer(lab: Lab, protocol: str, version: int = 4) -> socket.socket:
    """A socket of the network, bound, and listening if it is a stream's."""
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    with lab.inside("net"):
        made = socket.socket(family, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM)
    made.settimeout(RUN_S)
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    made.bind((PEER[version], 0))
    if protocol == "tcp":
        made.listen()
    return made


def start(lab: Lab, at: socket.socket, seconds: float, *, rate: int = 0, traffic_class: int = -1) -> Any:
    """The program, which sends to this peer."""
    protocol = "tcp" if at.type == socket.SOCK_STREAM else "udp"
    address, port = at.getsockname()[:2]
    command = [sys.executable, PROGRAM, protocol, address, str(port), str(seconds), str(rate), str(traffic_class)]
    return lab.popen("host", command, stdout=subprocess.PIPE, text=True)


def said(program: Any) -> dict[str, Any]:
    output, _ = program.communicate(timeout=RUN_S)
    assert program.returncode == 0
    found: dict[str, Any] = json.loads(output)
    return found


def rates(lab: Lab, protocols: list[str], *, rate: int = 0) -> list[float]:
    """How fast each of several programs is at once, in Mbit/s."""
    meters = Meters(len(protocols), SECONDS)
    with ExitStack() as stack:
        peers = [stack.enter_context(peer(lab, protocol)) for protocol in protocols]
        for at, meter in zip(peers, meters.each, strict=True):
            in_background(read_stream if at.type == socket.SOCK_STREAM else read_datagrams, at, meter)
        programs = [start(lab, at, SECONDS + 2 + len(peers), rate=rate) for at in peers]
        found = meters.mbit_s(RUN_S)
        for program in programs:
            said(program)
    return found


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_tenant_sends_at_its_rate(limited: Lab, protocol: str) -> None:
    at_rate(TENANT_MBIT_S, lambda: rates(limited, [protocol]))


def test_the_sockets_of_a_tenant_share_its_rate(limited: Lab) -> None:
    each_min = TENANT_MBIT_S / 6  # with equal shares each has a third
    at_rate(TENANT_MBIT_S, lambda: rates(limited, ["tcp", "udp", "tcp"]), each_min)
    answer = control_socket.ask(str(limited.control), control_socket.Question("status", False))
    assert sum(row["paced"] for row in answer["workers"]) > 0


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_socket_sends_at_its_rate(plain: Lab, protocol: str) -> None:
    at_rate(SOCKET_MBIT_S, lambda: rates(plain, [protocol], rate=SOCKET_MBIT_S * 125_000))


def marks(lab: Lab, protocol: str, version: int, traffic_class: int) -> tuple[set[int], int]:
    """The traffic classes of all packets that the peer gets from a program, and what its socket says."""
    with peer(lab, protocol, version) as at, ExitStack() as stack:
        with lab.inside("net"):
            captured = stack.enter_context(packets_in(topology.NET.interface))
        meter = Meters(1, 0.1).each[0]
        reader = in_background(read_stream if protocol == "tcp" else read_datagrams, at, meter)
        program = start(lab, at, 0.6, traffic_class=traffic_class)
        answer = said(program)
        reader.join(RUN_S)
        port = at.getsockname()[1]
        packets = [packet for packet in captured() if packet.to_port == port and packet.version == version]
    assert len(packets) > 10
    return {packet.traffic_class for packet in packets}, answer["traffic_class"]


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_packets_have_the_mark_of_their_tenant(limited: Lab, protocol: str, version: int) -> None:
    assert marks(limited, protocol, version, -1) == ({EF << 2}, EF << 2)
    assert marks(limited, protocol, version, AF41 << 2) == ({EF << 2}, EF << 2)  # the operator's word counts


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_packets_have_the_mark_of_their_socket(plain: Lab, protocol: str, version: int) -> None:
    assert marks(plain, protocol, version, AF41 << 2) == ({AF41 << 2}, AF41 << 2)
