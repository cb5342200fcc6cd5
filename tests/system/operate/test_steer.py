"""`[[steer]]`: frames of the network by DSCP, flow label and VNI to the CPU of a worker, counted where they arrive. The
kernel says of a socket on which CPU its last packet was handled (SO_INCOMING_CPU), and knows nothing of our counts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.flow_label import connect_with_label
from beds.lab import raise_or_skip
from beds.operated_proxy import PROXY, wait, write_config
from beds.scripts import RUN_S
from xts_bpf.classes import Classes, ClassRule, Kind
from xts_lab import topology
from xts_lab.lab import Lab
from xts_proxy.status import control_socket

EF, AF11, LABEL, VNI = 46, 10, 0x12345, 77
SO_INCOMING_CPU = 49
#: Exchanges; and what an interface sends of itself (IPv6 on the tunnel looks for its neighbours).
ROUNDS, FEW = 40, 12
RULES = f"""
[[tenant]]
name = "default"
[[steer]]
interface = "net0"
dscp = {EF}
worker = 0
[[steer]]
interface = "net0"
dscp = {AF11}
worker = 1
[[steer]]
interface = "net0"
flow_label = {LABEL}
worker = 1
[[steer]]
interface = "net0"
vni = {VNI}
worker = 1
"""
DEVICE = {4: str(topology.DPU_NET.addresses[0].ip), 6: str(topology.DPU_NET.addresses[1].ip)}
PEER = str(topology.NET.addresses[0].ip)
INNER = {"dpu": "192.168.77.1", "net": "192.168.77.2"}
pytestmark = [pytest.mark.root, pytest.mark.skipif(os.cpu_count() == 1, reason="needs two CPUs")]


@pytest.fixture(scope="module", params=[pytest.param("shm"), pytest.param("afxdp", marks=pytest.mark.afxdp)])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with raise_or_skip(request.param, "steer", queues=2, tables=RULES, cpus=(0, 1)) as made:
        # A frame of veth has no checksum yet; a card's has, and XDP knows only those.
        off = ["ethtool", "-K", topology.NET.interface, "tx", "off"]
        assert made.run("net", off, stdout=subprocess.DEVNULL).returncode == 0
        for role, other in (("dpu", "net"), ("net", "dpu")):
            link = topology.DPU_NET if role == "dpu" else topology.NET
            ends = {"dpu": DEVICE[4], "net": PEER}
            commands = (
                f"link add vx0 type vxlan id {VNI} dev {link.interface} local {ends[role]} remote {ends[other]} "
                f"dstport 4789\naddress add {INNER[role]}/24 dev vx0\nlink set vx0 up\n"
            )
            assert made.run(role, ["ip", "-batch", "-"], input=commands, text=True).returncode == 0
        yield made


def frames(lab: Lab) -> dict[str, dict[str, int]]:
    """What has arrived of each rule, by CPU."""
    answer = control_socket.ask(str(lab.control), control_socket.Question("status", False))
    return {f"{row['match']} {row['value']}": row["frames"] for row in answer["steering"]}


def exchanged(lab: Lab, client: socket.socket, address: str, label: int = 0) -> int:
    """Exchanges bytes between this client in the network and a socket of the device's kernel, and returns the CPU on
    which the kernel has handled the client's packets."""
    with lab.inside("dpu"):
        server = socket.create_server((address, 0), family=client.family)
    server.settimeout(RUN_S)
    client.settimeout(RUN_S)
    with client, server:
        if label:
            connect_with_label(client, address, server.getsockname()[1], label)
        else:
            client.connect(server.getsockname()[:2])
        accepted, _ = server.accept()
        with accepted:
            for _ in range(ROUNDS):
                client.sendall(b"x" * 100)
                assert accepted.recv(100)
                accepted.sendall(b"y")
                assert client.recv(1)
            return int(accepted.getsockopt(socket.SOL_SOCKET, SO_INCOMING_CPU))


def client(lab: Lab, family: int = socket.AF_INET, dscp: int = 0) -> socket.socket:
    with lab.inside("net"):
        made = socket.socket(family)
    if dscp and family == socket.AF_INET:
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
    elif dscp:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
    return made


def arrived(lab: Lab, rule: str, before: dict[str, dict[str, int]], cpu: int) -> None:
    """So many frames and more, all on this CPU, and of no other rule more than FEW."""
    after = frames(lab)
    assert list(after[rule]) == [str(cpu)]
    came = {name: sum(of.values()) - sum(before[name].values()) for name, of in after.items()}
    assert came.pop(rule) > ROUNDS
    assert all(count < FEW for count in came.values()), came


@pytest.mark.parametrize(("dscp", "cpu"), [(EF, 0), (AF11, 1)])
@pytest.mark.parametrize("version", [4, 6])
def test_by_dscp(lab: Lab, dscp: int, cpu: int, version: int) -> None:
    before = frames(lab)
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    assert exchanged(lab, client(lab, family, dscp), DEVICE[version]) == cpu
    arrived(lab, f"dscp {dscp}", before, cpu)


def test_by_flow_label(lab: Lab) -> None:
    before = frames(lab)
    assert exchanged(lab, client(lab, socket.AF_INET6), DEVICE[6], LABEL) == 1
    arrived(lab, f"flow_label {LABEL}", before, 1)
    assert exchanged(lab, client(lab, socket.AF_INET6), DEVICE[6], LABEL + 1) in (0, 1)
    assert frames(lab)[f"flow_label {LABEL}"]["1"] < before[f"flow_label {LABEL}"].get("1", 0) + 2 * ROUNDS


def test_by_vni(lab: Lab) -> None:
    before = frames(lab)
    assert exchanged(lab, client(lab), INNER["dpu"]) == 1
    arrived(lab, f"vni {VNI}", before, 1)


def test_what_no_rule_matches_goes_on(lab: Lab) -> None:
    before = frames(lab)
    exchanged(lab, client(lab), DEVICE[4])
    after = frames(lab)
    assert all(sum(after[name].values()) - sum(of.values()) < FEW for name, of in before.items())


#: Connects to a peer, and reads what that sends.
READS = """
import sys
import xts_socket as socket
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as sock:
    count = 0
    while data := sock.recv(65536):
        count += len(data)
    print(count)
"""


def test_offloaded_connections_get_their_frames_so(lab: Lab) -> None:
    before = frames(lab)
    with lab.inside("net"):
        server = socket.create_server((PEER, 0))
    server.settimeout(RUN_S)
    server.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, AF11 << 2)
    with server:
        command = [sys.executable, "-c", READS, PEER, str(server.getsockname()[1])]
        program = lab.popen("host", command, stdout=subprocess.PIPE, text=True)
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(bytes(1 << 20))
        output, _ = program.communicate(timeout=RUN_S)
    assert int(output) == 1 << 20
    arrived(lab, f"dscp {AF11}", before, 1)


def test_nic_tells_what_is_in_force_and_who_asked(lab: Lab) -> None:
    command = [sys.executable, "-m", "xts_proxy", "nic", "--interface", "net0"]
    text = lab.run("dpu", command, stdout=subprocess.PIPE, text=True)
    assert text.returncode == 0
    line = next(line for line in text.stdout.splitlines() if f"VNI {VNI} on net0" in line)
    assert "to worker 1 (CPU 1)" in line and "XDP" in line and "tenant default" in line
    told = lab.run("dpu", [*command, "--json"], stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(told.stdout)
    steering = [one for one in found["in_force"] if one["back_end"] == "XDP"]
    assert [one["setting"].split(" on ")[0] for one in steering] == [
        f"DSCP {EF}", f"DSCP {AF11}", f"flow label {LABEL:#x}", f"VNI {VNI}",
    ]  # fmt: skip
    able = {row["capability"]: row for row in found["here"]["net0"] if row["back_end"] == "XDP"}
    assert able["steering by VNI"]["available"] is True


def program_on(lab: Lab, interface: str) -> bool:
    """Has it an XDP program?"""
    told = lab.run("dpu", ["ip", "-json", "link", "show", interface], stdout=subprocess.PIPE, text=True)
    return "xdp" in json.loads(told.stdout)[0]


def test_rules_end_with_the_proxy_and_come_back(lab: Lab) -> None:
    assert program_on(lab, "net0")
    record = lab.record("proxy")
    assert record
    os.kill(record.pid, signal.SIGKILL)
    wait(lambda: not program_on(lab, "net0"), "end of the program")
    lab.stop_program("proxy")
    lab.start_proxy()
    assert program_on(lab, "net0") and frames(lab)[f"dscp {EF}"] == {}


def test_an_interface_that_was_removed_has_no_rules(lab: Lab) -> None:
    def ip(command: str) -> None:
        assert lab.run("dpu", ["ip", "link", *command.split()]).returncode == 0

    ip("add away0 type veth peer name away1")
    with lab.inside("dpu"), Classes("away0", [ClassRule(Kind.DSCP, EF, 0)]) as classes:
        assert classes.present and program_on(lab, "away0")
        ip("delete away0")
        assert not classes.present
        ip("add away0 type veth peer name away1")
        assert not classes.present and not program_on(lab, "away0")
    ip("delete away0")


def test_mistakes(tmp_path: Path) -> None:
    steer = '[[steer]]\ninterface = "net0"\nworker = 1\ndscp = 1\nvni = 2\ntenant = "web"\n'
    config = write_config(tmp_path, steer, cpus=[0])
    done = subprocess.run([*PROXY, "--check", str(config)], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    for text in ("exactly one of dscp, flow_label, vni", "worker 1 has no CPU of its own", "there is no tenant web"):
        assert text in done.stderr


def test_rules_stay_over_an_upgrade(lab: Lab) -> None:
    """The new proxy has the program of the old one replaced, whose link it shares: there is a program at any time."""
    exchanged(lab, client(lab, dscp=AF11), DEVICE[4])
    assert frames(lab)[f"dscp {AF11}"]
    command = [sys.executable, "-m", "xts_proxy", "--config", str(lab.directory / "proxy.toml"), "upgrade"]
    lab.spawn("dpu", command, name="next", ready=True)
    try:
        wait(lambda: frames(lab)[f"dscp {AF11}"] == {}, "the new proxy")
        assert program_on(lab, "net0")
        wait(lambda: not running(lab, "proxy"), "the end of the old proxy", RUN_S)
        assert program_on(lab, "net0")
        assert exchanged(lab, client(lab, dscp=AF11), DEVICE[4]) == 1
        assert frames(lab)[f"dscp {AF11}"]["1"] > ROUNDS
    finally:
        lab.stop_program("next")
    assert not program_on(lab, "net0")
    lab.start_proxy()


def running(lab: Lab, program: str) -> bool:
    """Is this program of the lab still there?"""
    record = lab.record(program)
    return bool(record and Path(f"/proc/{record.pid}/exe").exists())
