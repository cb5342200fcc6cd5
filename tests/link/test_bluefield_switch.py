"""xts-bluefield on this machine: real Open vSwitch, traffic control, nftables and ethtool, in namespaces with veths.

host: hostin == hostrep :device: uplink == wire :net        hostrep, xtsrep, uplink are like a card's representors
               xts0 == xtsrep :device                       xts0 is like the function's own interface
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest
from beds import open_vswitch
from beds.ready import writable
from pyroute2 import NetNS
from xts_bluefield.__main__ import main
from xts_bluefield.functions import describe_features
from xts_bluefield.machine import ThisMachine
from xts_lab import netns
from xts_lab.privilege import missing_privilege

pytestmark = [pytest.mark.root]

Result = TypeVar("Result")
MESSAGE, IPV4, ARP = 0x855B, 0x0800, 0x0806
XTS_MAC, HOST_MAC, WIRE_MAC = (bytes((2, 0, 0, 0, 0x88, number)) for number in (1, 2, 3))
BROADCAST, MULTICAST = b"\xff" * 6, bytes.fromhex("01005e000001")
MARK = b"XTS-TEST"
_WAIT_S = 10
_numbers = itertools.count()


class Bed:
    """The namespaces, and ways to work in them."""

    def __init__(self) -> None:
        stem = f"xtsbf{os.getpid()}-{next(_numbers)}"
        self.host, self.device, self.net = (f"{stem}{end}" for end in "hdn")

    def inside(self, namespace: str, work: Callable[[], Result]) -> Result:
        with netns.inside(namespace):
            return work()

    def command(self, *argv: str) -> int:
        return self.inside(self.device, lambda: main(list(argv)))


def link(bed: Bed, ends: tuple[str, str], macs: tuple[bytes, bytes], namespaces: tuple[str, str]) -> None:
    """A veth pair: the second end has eight queues, the first has one (a veth with fewer than its peer has no XDP)."""
    with NetNS(namespaces[0]) as first, NetNS(namespaces[1]) as second:
        queues = {"num_tx_queues": 8, "num_rx_queues": 8}
        peer = {"ifname": ends[1], "address": macs[1].hex(":"), "net_ns_fd": namespaces[1], **queues}
        one = {"num_tx_queues": 1, "num_rx_queues": 1}
        first.link("add", ifname=ends[0], kind="veth", address=macs[0].hex(":"), peer=peer, **one)
        for ns, name in ((first, ends[0]), (second, ends[1])):
            ns.link("set", index=ns.link_lookup(ifname=name)[0], state="up")


@pytest.fixture
def bed() -> Iterator[Bed]:
    if lacking := missing_privilege():
        pytest.skip(f"network namespaces need root; lacking {', '.join(lacking)}")
    made = Bed()
    try:
        for name in (made.host, made.device, made.net):
            netns.create(name)
            for which in ("all", "default"):  # the kernel itself is to send nothing
                made.inside(name, lambda which=which: netns.set_sysctl(f"ipv6/conf/{which}/disable_ipv6", 1))
        other = bytes((2, 0, 0, 0, 0x77, 1)), bytes((2, 0, 0, 0, 0x77, 2)), bytes((2, 0, 0, 0, 0x77, 3))
        link(made, ("hostrep", "hostin"), (other[0], HOST_MAC), (made.device, made.host))
        link(made, ("xtsrep", "xts0"), (other[1], XTS_MAC), (made.device, made.device))
        link(made, ("uplink", "wire"), (other[2], WIRE_MAC), (made.device, made.net))
        yield made
    finally:
        for name in (made.host, made.device, made.net):
            with suppress(OSError):
                netns.remove(name)


@contextmanager
def port(bed: Bed, namespace: str, interface: str) -> Iterator[socket.socket]:
    """All frames of an interface, and a way to send on it."""
    sock = bed.inside(namespace, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
    with sock:
        bed.inside(namespace, lambda: sock.bind((interface, 3)))
        sock.settimeout(_WAIT_S)
        yield sock


def frame(to: bytes, sender: bytes, kind: int, number: int) -> bytes:
    return (to + sender + kind.to_bytes(2, "big") + MARK + bytes([number])).ljust(60, b"\0")


def next_number(sock: socket.socket) -> int:
    """Of the next frame of a test that comes in."""
    while True:
        data, (_, _, kind, *_) = sock.recvfrom(2048)
        if data[14:].startswith(MARK) and kind != socket.PACKET_OUTGOING:
            return data[14 + len(MARK)]


def state_of(bed: Bed) -> list[str]:
    """What commands show of the device, to compare."""

    def shown() -> list[str]:
        commands = [["tc", "qdisc", "show"], ["ethtool", "-l", "xts0"]]
        commands += [["nft", "list", "ruleset"]] if shutil.which("nft") else []
        if "OVS_RUNDIR" in os.environ:
            commands += [["ovs-vsctl", "list-ports", "br0"], ["ovs-ofctl", "--no-stats", "dump-flows", "br0"]]
        return [subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in commands]

    return bed.inside(bed.device, shown)


def write(folder: Path, text: str) -> tuple[str, str]:
    """A file of the wanted state, and the place of the journal."""
    file = folder / "xts-bluefield.toml"
    file.write_text(f'role = "device"\n{text}')
    return str(file), str(folder / "journal.json")


LINK = '[[link]]\ninterface = "xts0"\nrepresentor = "xtsrep"\nhost = "hostrep"\n'


def messages_go_one_way_and_the_rest_the_other(bed: Bed, bridged: bool) -> None:
    """A frame that should not arrive is followed by one that should, the same way: that one must be the first."""
    with ExitStack() as stack:
        host = stack.enter_context(port(bed, bed.host, "hostin"))
        proxy = stack.enter_context(port(bed, bed.device, "xts0"))
        wire = stack.enter_context(port(bed, bed.net, "wire"))
        if bridged:
            wire.send(frame(BROADCAST, WIRE_MAC, ARP, 1))  # the bridge learns where the network is
            assert next_number(host) == 1
        for kind, to in ((IPV4, BROADCAST), (ARP, BROADCAST), (IPV4, MULTICAST), (IPV4, XTS_MAC), (0x88CC, XTS_MAC)):
            host.send(frame(to, HOST_MAC, kind, 2))
        host.send(frame(XTS_MAC, HOST_MAC, MESSAGE, 3))
        assert next_number(proxy) == 3
        host.send(frame(BROADCAST, HOST_MAC, MESSAGE, 4))
        assert next_number(proxy) == 4
        if bridged:
            assert [next_number(wire) for _ in range(5)] == [2] * 5  # and no message
            host.send(frame(WIRE_MAC, HOST_MAC, IPV4, 5))
            assert next_number(wire) == 5
            wire.send(frame(XTS_MAC, WIRE_MAC, MESSAGE, 6))
            wire.send(frame(HOST_MAC, WIRE_MAC, MESSAGE, 6))
            wire.send(frame(XTS_MAC, WIRE_MAC, IPV4, 7))
            assert next_number(host) == 7  # flooded, for nobody is known there
            host.send(frame(XTS_MAC, HOST_MAC, MESSAGE, 8))
            assert next_number(proxy) == 8
        for kind, to in ((IPV4, BROADCAST), (ARP, BROADCAST), (IPV4, HOST_MAC), (IPV4, WIRE_MAC)):
            proxy.send(frame(to, XTS_MAC, kind, 9))
        proxy.send(frame(HOST_MAC, XTS_MAC, MESSAGE, 10))
        assert next_number(host) == 10
        if bridged:
            host.send(frame(WIRE_MAC, HOST_MAC, IPV4, 11))
            assert next_number(wire) == 11


@pytest.mark.skipif(bool(open_vswitch.missing()), reason=open_vswitch.missing() or "it is there")
def test_open_vswitch_carries_messages_to_the_proxy_alone(
    bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, journal = write(tmp_path, LINK + 'steering = "ovs"\nbridge = "br0"\nqueues = 4\n')
    with open_vswitch.open_vswitch(bed.device):
        for name in ("uplink", "hostrep"):
            subprocess.run(["ovs-vsctl", "--timeout=10", "add-port", "br0", name], check=True)
        subprocess.run(
            ["ovs-ofctl", "add-flow", "br0", "cookie=7,priority=5,in_port=uplink,actions=NORMAL"], check=True
        )
        before = state_of(bed)
        assert bed.command("plan", file) == 0 and state_of(bed) == before
        assert bed.command("check", file) == 1
        assert bed.command("apply", "--yes", "--journal", journal, file) == 0
        messages_go_one_way_and_the_rest_the_other(bed, bridged=True)
        assert bed.command("check", file) == 0
        capsys.readouterr()
        assert bed.command("apply", "--yes", "--journal", journal, file) == 0
        assert "0 settings changed" in capsys.readouterr().out
        subprocess.run(["ovs-ofctl", "mod-port", "br0", "xtsrep", "flood"], check=True)
        assert bed.command("check", file) == 1
        assert "bridge port xtsrep: is" in capsys.readouterr().out
        assert bed.command("apply", "--yes", "--journal", journal, file) == 0
        assert bed.command("undo", "--yes", "--journal", journal) == 0
        assert state_of(bed) == before and not Path(journal).exists()
        file, journal = write(tmp_path, '[firewall]\nuplink = "uplink"\n')
        assert bed.command("check", file) == 1
        assert "uplink uplink: is a port of br0" in capsys.readouterr().out


def flower_missing(bed: Bed) -> str:
    """Whether the kernel has what steering by tc needs."""

    def tries() -> str:
        subprocess.run(["tc", "qdisc", "add", "dev", "wire", "clsact"], check=True)
        for what in ("flower action drop", "matchall action drop"):
            argv = f"tc filter add dev wire ingress protocol all {what}".split()
            if subprocess.run(argv, capture_output=True, check=False).returncode:
                return f"this kernel cannot do: {what} (modules cls_flower, cls_matchall, act_gact)"
        return ""

    return bed.inside(bed.net, tries)


def test_traffic_control_carries_messages_to_the_proxy_alone(bed: Bed, tmp_path: Path) -> None:
    if reason := flower_missing(bed):
        pytest.skip(f"{reason}; tests/vm/run has one that can")
    bed.inside(bed.net, lambda: subprocess.run(["tc", "qdisc", "del", "dev", "wire", "clsact"], check=True))
    file, journal = write(tmp_path, LINK + 'steering = "tc"\nqueues = 3\n')
    before = state_of(bed)
    assert bed.command("apply", "--yes", "--journal", journal, file) == 0
    assert bed.command("check", file) == 0
    messages_go_one_way_and_the_rest_the_other(bed, bridged=False)
    assert bed.command("undo", "--yes", "--journal", journal) == 0
    assert state_of(bed) == before


def test_queues_of_an_interface(bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, journal = write(tmp_path, '[[link]]\ninterface = "xts0"\nqueues = 5\n')
    before = state_of(bed)
    assert bed.inside(bed.device, lambda: ThisMachine().queues("xts0")) == (8, 8)
    assert bed.command("apply", "--yes", "--journal", journal, file) == 0
    assert bed.inside(bed.device, lambda: ThisMachine().queues("xts0")) == (5, 8)
    assert bed.command("undo", "--yes", "--journal", journal) == 0
    assert state_of(bed) == before
    file, journal = write(tmp_path, '[[link]]\ninterface = "xts0"\nqueues = 500\n')
    assert bed.command("apply", "--yes", "--journal", journal, file) == 1
    assert "step 1 of 1, queues xts0: xts0: 500 queues" in capsys.readouterr().err
    assert bed.command("undo", "--yes", "--journal", journal) == 0


def test_what_xdp_an_interface_can_do(bed: Bed) -> None:
    features = bed.inside(bed.device, lambda: ThisMachine().xdp_features("xts0"))
    if features is None:
        pytest.skip("this kernel does not tell an interface's XDP features (6.3 and later do)")
    assert describe_features(features).startswith("native XDP")
    nothing = bed.inside(bed.device, lambda: ThisMachine().xdp_features("lo"))
    assert nothing is not None and describe_features(nothing) == "no native XDP"


def test_an_interface_without_native_xdp_is_refused(
    bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if bed.inside(bed.device, lambda: ThisMachine().xdp_features("lo")) is None:
        pytest.skip("this kernel does not tell an interface's XDP features (6.3 and later do)")
    file, journal = write(tmp_path, '[[link]]\ninterface = "lo"\n')
    assert bed.command("plan", file) == 1
    assert bed.command("apply", "--yes", "--journal", journal, file) == 1
    assert "XDP_REDIRECT in the driver" in capsys.readouterr().err and not Path(journal).exists()


def connects(bed: Bed, namespace: str, to: tuple[str, int]) -> socket.socket:
    """A socket that has begun to connect."""
    sock = bed.inside(namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
    with suppress(BlockingIOError):
        sock.connect(to)
    return sock


def ready(sock: socket.socket, wait_s: float = _WAIT_S) -> bool:
    return writable(sock, wait_s) and not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


@pytest.mark.skipif(shutil.which("nft") is None, reason="nft is not installed (Debian's package nftables)")
def test_the_firewall_of_the_uplink(bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for namespace, name, address in ((bed.device, "uplink", "198.18.9.1"), (bed.net, "wire", "198.18.9.2")):
        with NetNS(namespace) as ns:
            ns.addr("add", index=ns.link_lookup(ifname=name)[0], address=address, prefixlen=24)
    table = "table inet others { chain c { tcp dport 1 drop; }; }"
    bed.inside(bed.device, lambda: subprocess.run(["nft", "-f", "-"], input=table, text=True, check=True))
    file, journal = write(tmp_path, '[firewall]\nuplink = "uplink"\ntcp_ports = [8080, 8081]\n')
    before = state_of(bed)
    assert bed.command("apply", "--yes", "--journal", journal, file) == 0 and bed.command("check", file) == 0
    with ExitStack() as stack:
        for namespace, place in ((bed.device, ("198.18.9.1", 8080)), (bed.device, ("198.18.9.1", 2222)),
                                 (bed.net, ("198.18.9.2", 80))):  # fmt: skip
            stack.enter_context(bed.inside(namespace, lambda place=place: socket.create_server(place)))
        denied = stack.enter_context(connects(bed, bed.net, ("198.18.9.1", 2222)))
        assert ready(stack.enter_context(connects(bed, bed.net, ("198.18.9.1", 8080))))
        assert not ready(denied, 0)  # it was asked before, and is not even refused
        assert ready(stack.enter_context(connects(bed, bed.device, ("198.18.9.2", 80))))  # answers come in
        for narrower in ("tcp_ports = [8080]\n", ""):
            file, _ = write(tmp_path, '[firewall]\nuplink = "uplink"\n' + narrower)
            assert bed.command("apply", "--yes", "--journal", journal, file) == 0 and bed.command("check", file) == 0
        assert bed.command("undo", "--yes", "--journal", journal) == 0
        assert ready(stack.enter_context(connects(bed, bed.net, ("198.18.9.1", 2222))))
    assert state_of(bed) == before
    with NetNS(bed.device) as ns:
        ns.link("add", ifname="bridge0", kind="bridge")
        ns.link("set", index=ns.link_lookup(ifname="uplink")[0], master=ns.link_lookup(ifname="bridge0")[0])
    capsys.readouterr()
    assert bed.command("apply", "--yes", "--journal", journal, file) == 1
    assert "is 'a port of bridge0'" in capsys.readouterr().err and not Path(journal).exists()


def test_a_tool_that_is_missing_is_said(bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("mlxconfig"):
        pytest.skip("mlxconfig is installed here")
    file, _ = write(tmp_path, '[card]\npci = "0000:03:00.0"\nmode = "dpu"\n')
    assert bed.command("plan", file) == 1
    assert "the command mlxconfig is not installed (package mft" in capsys.readouterr().err


def test_queues_that_cost_the_interface_its_xdp_are_noticed(
    bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A veth with fewer queues than its peer has no native XDP any more."""
    if bed.inside(bed.device, lambda: ThisMachine().xdp_features("lo")) is None:
        pytest.skip("this kernel does not tell an interface's XDP features (6.3 and later do)")
    with NetNS(bed.device) as ns:
        more = {"num_tx_queues": 8, "num_rx_queues": 8}
        ns.link("add", ifname="wide0", kind="veth", peer={"ifname": "wide1", **more}, **more)
    file, journal = write(tmp_path, '[[link]]\ninterface = "wide0"\nqueues = 2\n')
    before = state_of(bed)
    assert bed.command("apply", "--yes", "--journal", journal, file) == 1
    assert "xdp wide0 is 'none' now" in capsys.readouterr().err
    assert bed.command("undo", "--yes", "--journal", journal) == 0
    assert state_of(bed) == before
