"""The device's routes, rules of policy routing and multicast groups, for `xts top` and `xts status --routes`: they
decide which interface a host's socket uses. They are the kernel's, for all sockets of the device. They are read when
somebody asks: routes by netlink (routing.py), groups from /proc.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from xts_proxy.device import routing
from xts_proxy.device.routing import Row

#: For each IP version.
ROUTES_MAX = 256
RULES_MAX = 256
GROUPS_MAX = 256
_LINES_MAX = 4096
_NET = Path("/proc/net")
#: Groups that every interface joins by itself.
_ALL_NODES = {"224.0.0.1", "ff01::1", "ff02::1"}


def read() -> Row:
    """`routes`, `rules` and `groups`, and how many more were seen (`routes_more` and so on)."""
    routes: list[Row] = []
    rules: list[Row] = []
    more = 0
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):  # the kernel does not have the protocol, or policy routing
            found = routing.routes(family)
            routes += islice(found, ROUTES_MAX)
            more += sum(1 for _ in found)
        with suppress(OSError):
            rules += routing.rules(family)
    groups = [*_groups_ipv4(_lines("igmp")), *_groups_ipv6(_lines("igmp6"))]
    groups = [row for row in groups if row["group"] not in _ALL_NODES]
    return {
        "routes": routes,
        "routes_more": more,
        "rules": rules[:RULES_MAX],
        "rules_more": max(0, len(rules) - RULES_MAX),
        "groups": groups[:GROUPS_MAX],
        "groups_more": max(0, len(groups) - GROUPS_MAX),
    }


def route_of(local: str, peer: str) -> Row:
    """`route`: that of a connection between two such endpoints ("198.18.0.1:80", "[fd18::1]:80"; an empty `local` is
    any); None with `problem`: there is none, or the device rejects it. OSError EINVAL: `peer` is not an endpoint."""
    to = _endpoint(peer)
    if to is None:
        raise OSError(errno.EINVAL, "not an endpoint: an address and a port")
    source = _endpoint(local)
    try:
        return {"route": routing.route_of(source, *to)}
    except OSError as error:
        return {"route": None, "problem": os.strerror(error.errno or errno.EIO)}


def _endpoint(text: str) -> tuple[routing.Address, int] | None:
    address, _, port = text.rpartition(":")
    try:
        return ipaddress.ip_address(address.strip("[]")), int(port) & 0xFFFF
    except ValueError:
        return None


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
