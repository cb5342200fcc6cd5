"""The device's routes, rules and multicast groups, as the proxy reads them: against what ip(8) was told, and odd
tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from xts_proxy.device import device_network, routing

#: In a network namespace of its own: makes routes and joins groups, and prints what is read.
SCRIPT = """
import json, socket, struct, subprocess
from xts_proxy.device import device_network
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
plain = device_network.read()["rules"]
ip("route", "add", "203.0.113.128/25", "nexthop", "via", "198.18.0.7", "nexthop", "via", "198.18.0.8")
ip("route", "add", "default", "via", "198.18.0.77", "table", "100")
ip("rule", "add", "from", "198.18.0.1", "dport", "443", "table", "100", "priority", "50")
ip("rule", "add", "fwmark", "0x1/0xff", "uidrange", "5-7", "blackhole", "priority", "51")
ip("rule", "add", "not", "from", "198.18.0.0/15", "table", "100", "priority", "52")
ip("-6", "rule", "add", "to", "2001:db8:7::/48", "unreachable", "priority", "52")
def takes(local, peer): return device_network.route_of(local, peer)
taken = {
    "by the rule": takes("198.18.0.1:5", "192.0.2.1:443"),
    "not by the rule": takes("198.18.0.1:5", "203.0.113.3:80"),
    "rejected": takes("198.18.0.1:5", "192.0.2.1:80"),
    "refused": takes("", "[2001:db8:7::1]:80"),
    "nothing local": takes("*", "[2001:db9::1]:80"),
}
with socket.socket(type=socket.SOCK_DGRAM) as a, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as b:
    index = socket.if_nametoindex("d0")
    on = struct.pack("=i", index)
    a.setsockopt(socket.SOL_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("239.1.2.3") + bytes(4) + on)
    b.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(10, "ff15::7") + on)
    print(json.dumps(device_network.read() | {"plain": plain, "taken": taken}))
"""

#: In a network namespace of its own: a router with many routes.
ROUTER = """
import json, subprocess
from xts_proxy.device import device_network
ip = ["ip", "-batch", "-"]
lines = ["link add d0 type veth peer name d1", "link set d0 up"]
lines += [f"route add 10.{i >> 8}.{i & 255}.0/24 dev d0" for i in range(6000)]
subprocess.run(ip, input="\\n".join(lines), text=True, check=True)
print(json.dumps(device_network.read()))
"""


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")


def said_in_a_network(script: str) -> Any:
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.root
@needs_root
def test_what_the_kernel_was_told() -> None:
    found = said_in_a_network(SCRIPT)
    routes = {(r["destination"], r["gateway"], r["interface"], r["metric"], r["table"]) for r in found["routes"]}
    assert {
        ("198.18.0.0/24", "", "d0", 0, "main"),
        ("203.0.113.0/25", "198.18.0.9", "d0", 7, "main"),
        ("203.0.113.128/25", "198.18.0.7", "d0", 0, "main"),
        ("203.0.113.128/25", "198.18.0.8", "d0", 0, "main"),
        ("0.0.0.0/0", "198.18.0.77", "d0", 0, "100"),
        ("2001:db8::/64", "", "d0", 256, "main"),
        ("::/0", "2001:db8::9", "d0", 11, "main"),
    } <= routes
    assert not [route for route in routes if route[0].startswith("192.0.2.") or route[0].startswith("ff00")]
    groups = {(g["group"], g["interface"]): g["members"] for g in found["groups"]}
    assert groups["239.1.2.3", "d0"] == 1 and groups["ff15::7", "d0"] == 1
    assert ("224.0.0.1", "d0") not in groups and ("ff02::1", "d0") not in groups
    assert (found["routes_more"], found["rules_more"], found["groups_more"]) == (0, 0, 0)
    assert found["plain"] == [], "those that every kernel begins with"
    rules = [(r["ip_version"], r["priority"], r["conditions"], r["action"]) for r in found["rules"]]
    assert rules[:5] == [
        (4, 0, "all", "table local"),
        (4, 50, "from 198.18.0.1/32 dport 443", "table 100"),
        (4, 51, "fwmark 0x1/0xff uidrange 5-7", "blackhole"),
        (4, 52, "not from 198.18.0.0/15", "table 100"),
        (4, 32766, "all", "table main"),
    ]
    assert (6, 52, "to 2001:db8:7::/48", "unreachable") in rules


@pytest.mark.root
@needs_root
def test_the_route_of_a_connection() -> None:
    """As the kernel decides, by its rules."""
    taken = said_in_a_network(SCRIPT)["taken"]
    by_rule, other = taken["by the rule"]["route"], taken["not by the rule"]["route"]
    assert (by_rule["gateway"], by_rule["table"]) == ("198.18.0.77", "100")
    assert (other["gateway"], other["interface"], other["table"]) == ("198.18.0.9", "d0", "main")
    assert taken["rejected"] == {"route": None, "problem": "No route to host"}
    assert taken["refused"]["route"] is None and taken["refused"]["problem"]
    assert taken["nothing local"]["route"]["gateway"] == "2001:db8::9"


@pytest.mark.parametrize("peer", ["", "198.18.0.1", "nobody:80", "198.18.0.1:http", "*"])
def test_what_is_no_endpoint(peer: str) -> None:
    with pytest.raises(OSError, match="not an endpoint"):
        device_network.route_of("", peer)


@pytest.mark.root
@needs_root
def test_a_router() -> None:
    """The first routes, and the number of more as far as was looked."""
    found = said_in_a_network(ROUTER)
    assert len(found["routes"]) == device_network.ROUTES_MAX
    assert 3000 < found["routes_more"] < routing.MESSAGES_MAX


def test_more_groups_than_anybody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = "".join(f"\t\t\t\t{0x000001EF | i << 16:08X}     1 0:00000000\t\t0\n" for i in range(300))
    (tmp_path / "igmp").write_text("Idx\n1\teth0      :   300      V3\n" + groups)
    monkeypatch.setattr(device_network, "_NET", tmp_path)
    found = device_network.read()
    assert (len(found["groups"]), found["groups_more"]) == (device_network.GROUPS_MAX, 300 - 256)
    assert found["groups"][1] == {"interface": "eth0", "group": "239.1.1.0", "members": 1}


def test_no_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_network, "_NET", tmp_path)
    found = device_network.read()
    assert (found["groups"], found["groups_more"]) == ([], 0)
