"""The device's routes and multicast groups, for `xts top` and `xts status --routes`: they decide which interface a
host's socket uses. They are the kernel's, for all sockets of the device. They are read from /proc when somebody asks,
and shown as by ip(8).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

#: For each IP version.
ROUTES_MAX = 256
GROUPS_MAX = 256
#: How many lines of a table are read: a router may have a million routes, and a client may ask every second.
_LINES_MAX = 4096
_NET = Path("/proc/net")
#: linux/route.h, linux/ipv6_route.h: the route is up; it rejects; it is for a local address.
_RTF_UP, _RTF_REJECT, _RTF_LOCAL = 0x1, 0x200, 0x80000000
#: Groups that every interface joins by itself.
_ALL_NODES = {"224.0.0.1", "ff01::1", "ff02::1"}

Row = dict[str, Any]


def read() -> Row:
    """`routes` and `groups`, and how many more were seen (`routes_more`, `groups_more`)."""
    routes: list[Row] = []
    more = 0
    for name, parse in (("route", _routes_ipv4), ("ipv6_route", _routes_ipv6)):
        lines = _lines(name)
        found = parse(lines)
        routes += islice(found, ROUTES_MAX)
        more += sum(1 for _ in found)
    groups = [*_groups_ipv4(_lines("igmp")), *_groups_ipv6(_lines("igmp6"))]
    groups = [row for row in groups if row["group"] not in _ALL_NODES]
    return {
        "routes": routes,
        "routes_more": more,
        "groups": groups[:GROUPS_MAX],
        "groups_more": max(0, len(groups) - GROUPS_MAX),
    }


def _lines(name: str) -> Iterator[str]:
    """The lines of one of the kernel's tables; none if the kernel does not have the protocol."""
    try:
        with (_NET / name).open(encoding="ascii", errors="replace") as file:
            yield from islice(file, _LINES_MAX)
    except OSError:
        return


def _ipv4(text: str) -> ipaddress.IPv4Address:
    """The address of a number as the kernel prints it, in the machine's byte order."""
    return ipaddress.IPv4Address(int(text, 16).to_bytes(4, "little"))


def _ipv6(text: str) -> ipaddress.IPv6Address:
    return ipaddress.IPv6Address(bytes.fromhex(text))


def _route(destination: str, gateway: Any, interface: str, metric: str) -> Row:
    via = str(gateway) if int(gateway) else ""
    return {"destination": destination, "gateway": via, "interface": interface, "metric": int(metric)}


def _routes_ipv4(lines: Iterator[str]) -> Iterator[Row]:
    for line in islice(lines, 1, None):
        words = line.split()
        if len(words) < 8 or not int(words[3], 16) & _RTF_UP or int(words[3], 16) & _RTF_REJECT:
            continue
        prefix = int(words[7], 16).bit_count()
        yield _route(f"{_ipv4(words[1])}/{prefix}", _ipv4(words[2]), words[0], words[6])


def _routes_ipv6(lines: Iterator[str]) -> Iterator[Row]:
    for line in lines:
        words = line.split()
        if len(words) < 10 or not (flags := int(words[8], 16)) & _RTF_UP or flags & (_RTF_REJECT | _RTF_LOCAL):
            continue
        destination = _ipv6(words[0])
        if destination.is_multicast:
            continue  # each interface has one
        metric = str(int(words[5], 16))
        yield _route(f"{destination}/{int(words[1], 16)}", _ipv6(words[4]), words[9], metric)


def _groups_ipv4(lines: Iterator[str]) -> Iterator[Row]:
    """An interface's line is followed by those of its groups."""
    interface = ""
    for line in islice(lines, 1, None):
        words = line.split()
        if line[0].isdigit():
            interface = words[1].rstrip(":")
        elif len(words) >= 2:
            yield {"interface": interface, "group": str(_ipv4(words[0])), "members": int(words[1])}


def _groups_ipv6(lines: Iterator[str]) -> Iterator[Row]:
    for line in lines:
        words = line.split()
        if len(words) >= 4:
            yield {"interface": words[1], "group": str(_ipv6(words[2])), "members": int(words[3])}
