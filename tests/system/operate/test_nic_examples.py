"""The examples about network interfaces, one for each chapter of the verbs manual, and what they do on the wire."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from beds.flow_label import connect_with_label
from beds.lab import raise_or_skip
from beds.operated_proxy import wait
from beds.ready import readable
from beds.scripts import RUN_S
from beds.wire_view import Meters, at_rate, in_background, packets_in, read_stream
from xts_lab import topology
from xts_lab.lab import Lab

TOP = Path(__file__).resolve().parents[3]
DEVICE = {4: str(topology.DPU_NET.addresses[0].ip), 6: str(topology.DPU_NET.addresses[1].ip)}
PEER = str(topology.NET.addresses[0].ip)
MBIT_S, SEGMENT, SEGMENTS = 40, 1000, 20
MTU = topology.PLAIN_MTU
VNI, LABEL, EF = 5, 0xABCDE, 46
STEERS = [
    ("dscp", "nic_steer_dscp.py", EF),
    ("flow_label", "nic_steer_flow_label.py", LABEL),
    ("vni", "nic_steer_vni.py", VNI),
]
SYN_RECEIVED = 3
PACKETS = 30
pytestmark = [pytest.mark.root]


@pytest.fixture(scope="module", params=[pytest.param("shm"), pytest.param("afxdp", marks=pytest.mark.afxdp)])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with raise_or_skip(request.param, "nic", queues=4) as made:
        yield made


@pytest.fixture(scope="module")
def network() -> Iterator[Lab]:
    """For examples that run on the device, whatever hosts have. Frames have checksums, as those of cards."""
    with raise_or_skip("shm", "nicdev", queues=1) as made:
        turn(made, "net", topology.NET.interface, "tx", "off")
        yield made


def turn(lab: Lab, role: str, interface: str, *features: str) -> None:
    command = ["ethtool", "-K", interface, *features]
    assert lab.run(role, command, stdout=subprocess.DEVNULL).returncode == 0


def started(lab: Lab, role: str, folder: str, name: str, *arguments: str) -> Any:
    command = [sys.executable, str(TOP / folder / "examples" / name), *arguments]
    return lab.popen(role, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def on_host(lab: Lab, name: str, *arguments: str) -> Any:
    return started(lab, "host", "host_lib", name, *arguments)


def ended(program: Any, said: str | None = None) -> str:
    output, _ = program.communicate(said, timeout=RUN_S)
    assert program.returncode == 0
    return str(output)


def server(lab: Lab, kind: int = socket.SOCK_STREAM) -> socket.socket:
    with lab.inside("net"):
        made = socket.socket(socket.AF_INET, kind)
    made.settimeout(RUN_S)
    made.bind((PEER, 0))
    if kind == socket.SOCK_STREAM:
        made.listen()
    return made


def test_pacing(lab: Lab) -> None:
    def measured() -> list[float]:
        meters = Meters(1, 2.0)
        with server(lab) as at:
            in_background(read_stream, at, meters.each[0], True)
            program = on_host(lab, "nic_pacing.py", PEER, str(at.getsockname()[1]), str(MBIT_S), "3.5")
            found = meters.mbit_s(RUN_S)
            assert "Mbit/s" in ended(program)
        return found

    at_rate(MBIT_S, measured)


@pytest.mark.parametrize("by", ["the kernel", "the driver"])
def test_segmentation_of_datagrams(lab: Lab, by: str) -> None:
    turn(lab, "dpu", topology.DPU_NET.interface, "tx-udp-segmentation", "off" if by == "the kernel" else "on")
    with server(lab, socket.SOCK_DGRAM) as at, ExitStack() as stack:
        with lab.inside("net"):
            captured = stack.enter_context(packets_in(topology.NET.interface))
        port = at.getsockname()[1]
        ended(on_host(lab, "nic_segments.py", PEER, str(port), str(SEGMENT * SEGMENTS), str(SEGMENT)))
        assert [len(at.recv(65536)) for _ in range(SEGMENTS)] == [SEGMENT] * SEGMENTS
        packets = [packet.bytes - 28 for packet in captured() if packet.to_port == port]
    assert packets == ([SEGMENT] * SEGMENTS if by == "the kernel" else [SEGMENT * SEGMENTS])


@pytest.mark.parametrize("by", ["the kernel", "the driver"])
def test_segmentation_of_a_stream(lab: Lab, by: str) -> None:
    """Without the driver's help the kernel cuts, just before the wire; veth, as a driver, leaves it to the other
    end."""
    turn(lab, "dpu", topology.DPU_NET.interface, "tso", "off" if by == "the kernel" else "on")
    meters = Meters(1, 0.5)
    with server(lab) as at, ExitStack() as stack:
        with lab.inside("net"):
            captured = stack.enter_context(packets_in(topology.NET.interface))
        in_background(read_stream, at, meters.each[0], True)
        program = on_host(lab, "nic_pacing.py", PEER, str(at.getsockname()[1]), str(MBIT_S), "1.5")
        meters.mbit_s(RUN_S)
        ended(program)
        longest = max(packet.bytes for packet in captured() if packet.to_port == at.getsockname()[1])
    assert longest <= MTU if by == "the kernel" else longest > 2 * MTU


def exchange(lab: Lab, address: str, label: int = 0, dscp: int = 0) -> None:
    """Some packets from the network to the device's kernel."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with lab.inside("dpu"):
        at = socket.create_server((address, 0), family=family)
    with lab.inside("net"):
        client = socket.socket(family)
    with at, client:
        client.settimeout(RUN_S)
        if dscp:
            client.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
        if label:
            connect_with_label(client, address, at.getsockname()[1], label)
        else:
            client.connect(at.getsockname()[:2])
        accepted, _ = at.accept()
        with accepted:
            accepted.settimeout(RUN_S)
            for _ in range(PACKETS):
                client.sendall(b"x")
                assert accepted.recv(1)


def tunnel(lab: Lab) -> str:
    """Makes a tunnel between device and network; the device's address in it."""
    ends = {"dpu": (DEVICE[4], PEER, "192.168.5.1", "net0"), "net": (PEER, DEVICE[4], "192.168.5.2", "eth0")}
    for role, (local, remote, inner, link) in ends.items():
        commands = (
            f"link add vx1 type vxlan id {VNI} dev {link} local {local} remote {remote} dstport 4789\n"
            f"address add {inner}/24 dev vx1\nlink set vx1 up\n"
        )
        assert lab.run(role, ["ip", "-batch", "-"], input=commands, text=True).returncode == 0
    return "192.168.5.1"


@pytest.mark.skipif(os.cpu_count() == 1, reason="needs two CPUs")
@pytest.mark.parametrize(("what", "name", "value"), STEERS)
def test_steering(network: Lab, what: str, name: str, value: int) -> None:
    program = started(network, "dpu", "dpu_proxy", name, "net0", hex(value), "1")
    assert "go to CPU 1" in program.stdout.readline()
    if what == "dscp":
        exchange(network, DEVICE[4], dscp=EF)
    elif what == "flow_label":
        exchange(network, DEVICE[6], label=LABEL)
    else:
        exchange(network, tunnel(network))
    lines = ended(program).splitlines()
    assert len(lines) == 1 and lines[0].endswith("on CPU 1")
    assert int(lines[0].split()[0]) > PACKETS


def test_device_memory_is_refused_where_no_card_is(network: Lab) -> None:
    said = ended(started(network, "dpu", "dpu_proxy", "nic_device_memory.py"))
    assert said.startswith("verbs: no device memory (") and "not tried" in said


def test_a_peer_that_acknowledges_nothing_is_given_up(lab: Lab) -> None:
    with server(lab) as at:
        program = on_host(lab, "nic_user_timeout.py", PEER, str(at.getsockname()[1]), "1000")
        assert program.stdout.readline() == "connected\n"
        accepted, _ = at.accept()
        with accepted:
            silent = ["ip", "route", "add", "blackhole", DEVICE[4]]
            assert lab.run("net", silent).returncode == 0
            try:
                said = ended(program, "are you there?\n")
            finally:
                silent[2] = "del"
                assert lab.run("net", silent).returncode == 0
    assert said.startswith("ETIMEDOUT after ")
    assert 900 < int(said.split()[2]) < 8000


def states(lab: Lab, port: int) -> list[int]:
    """The states of the device's TCP connections at this port (net/tcp_states.h)."""
    with lab.inside("dpu"):
        rows = Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]
    fields = [row.split() for row in rows]
    return [int(field[3], 16) for field in fields if int(field[1].split(":")[1], 16) == port]


def test_a_listener_sees_a_client_that_is_ready(lab: Lab) -> None:
    program = on_host(lab, "nic_establish.py", DEVICE[4], "0", "20")
    port = int(program.stdout.readline().split()[-1])
    with lab.inside("net"):
        client = socket.create_connection((DEVICE[4], port))
    with client:
        wait(lambda: SYN_RECEIVED in states(lab, port), "a connection that waits for its client")
        assert not readable(program.stdout.fileno(), 0.3)
        client.sendall(b"ready")
        assert f"established by {PEER}: 'ready'" in ended(program)
