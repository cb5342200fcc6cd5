"""The device's routes and multicast groups, as the proxy reads them: against what ip(8) was told, and odd tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from xts_proxy import device_network

#: In a network namespace of its own: makes routes and joins groups, and prints what is read.
SCRIPT = """
import json, socket, struct, subprocess
from xts_proxy import device_network
def ip(*words): subprocess.run(["ip", *words], check=True)
ip("link", "set", "lo", "up")
ip("link", "add", "d0", "type", "veth", "peer", "name", "d1")
ip("link", "set", "d1", "up")
ip("link", "set", "d0", "up")
ip("address", "add", "198.18.0.1/24", "dev", "d0")
ip("address", "add", "2001:db8::1/64", "dev", "d0", "nodad")
ip("route", "add", "203.0.113.0/25", "via", "198.18.0.9", "metric", "7")
ip("route", "add", "default", "via", "2001:db8::9", "metric", "11")
ip("route", "add", "unreachable", "192.0.2.0/24")
with socket.socket(type=socket.SOCK_DGRAM) as a, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as b:
    index = socket.if_nametoindex("d0")
    on = struct.pack("=i", index)
    a.setsockopt(socket.SOL_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("239.1.2.3") + bytes(4) + on)
    b.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(10, "ff15::7") + on)
    print(json.dumps(device_network.read()))
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
def test_what_the_kernel_was_told() -> None:
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    routes = {(r["destination"], r["gateway"], r["interface"], r["metric"]) for r in found["routes"]}
    assert {
        ("198.18.0.0/24", "", "d0", 0),
        ("203.0.113.0/25", "198.18.0.9", "d0", 7),
        ("2001:db8::/64", "", "d0", 256),
        ("::/0", "2001:db8::9", "d0", 11),
    } <= routes
    assert not [route for route in routes if route[0].startswith("192.0.2.") or route[0].startswith("ff00")]
    groups = {(g["group"], g["interface"]): g["members"] for g in found["groups"]}
    assert groups["239.1.2.3", "d0"] == 1 and groups["ff15::7", "d0"] == 1
    assert ("224.0.0.1", "d0") not in groups and ("ff02::1", "d0") not in groups
    assert (found["routes_more"], found["groups_more"]) == (0, 0)


def test_more_than_anybody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A router's table: the first ones, and the number of more as far as was looked."""
    line = "eth0 {:08X} 00000000 0001 0 0 0 00FFFFFF 0 0 0\n"
    (tmp_path / "route").write_text("Iface ...\n" + "".join(line.format(i) for i in range(100_000)))
    groups = "".join(f"\t\t\t\t{0x000001EF | i << 16:08X}     1 0:00000000\t\t0\n" for i in range(300))
    (tmp_path / "igmp").write_text("Idx\n1\teth0      :   300      V3\n" + groups)
    monkeypatch.setattr(device_network, "_NET", tmp_path)
    found = device_network.read()
    assert len(found["routes"]) == device_network.ROUTES_MAX and 3000 < found["routes_more"] < 5000
    assert (len(found["groups"]), found["groups_more"]) == (device_network.GROUPS_MAX, 300 - 256)
    assert found["groups"][1] == {"interface": "eth0", "group": "239.1.1.0", "members": 1}


def test_no_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_network, "_NET", tmp_path)
    assert device_network.read() == {"routes": [], "routes_more": 0, "groups": [], "groups_more": 0}
