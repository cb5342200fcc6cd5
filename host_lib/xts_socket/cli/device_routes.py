"""`xts status --routes`: the device's routes and multicast groups, as the proxy tells them on its control socket; and
which route a peer's address takes."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence

import msgspec
from xts_messages.printable import printable

from . import proxy_side
from .text_table import print_table


def show(control: str | None, as_json: bool) -> int:
    """Prints them; returns the exit status. `control` None: the default socket. OSError as proxy_side.ask()."""
    control = control or proxy_side.control_path()
    network = proxy_side.ask(control).network
    if network is None:
        raise OSError(f"the proxy at {control} tells no routes: it is older")
    if as_json:
        print(json.dumps(msgspec.to_builtins(network), indent=2))
        return 0
    routes = [
        (printable(one.destination), printable(one.gateway) or "-", printable(one.interface), str(one.metric))
        for one in network.routes
    ]
    print_table(("Route", "Gateway", "Interface", "Metric"), routes, ("Metric",), empty="the device has no routes")
    _more(network.routes_more, "routes")
    print()
    groups = [(printable(one.group), printable(one.interface), str(one.members)) for one in network.groups]
    print_table(("Group", "Interface", "Members"), groups, ("Members",), empty="nobody has joined a multicast group")
    _more(network.groups_more, "groups")
    return 0


def _more(count: int, of_what: str) -> None:
    if count:
        print(f"… and {count} {of_what} more")


def route_of(routes: Sequence[proxy_side.Route], peer: str) -> proxy_side.Route | None:
    """The route that the device's kernel uses to "address:port", from its main table: the longest prefix, and of these
    the smallest metric. None: there is none, or the address is invalid."""
    try:
        address = ipaddress.ip_address(peer.rpartition(":")[0].strip("[]").partition("%")[0])
    except ValueError:
        return None
    best: tuple[int, int] | None = None
    found = None
    for route in routes:
        try:
            network = ipaddress.ip_network(route.destination)
        except ValueError:
            continue  # answers of a proxy are not trusted
        rank = (-network.prefixlen, route.metric)
        if network.version == address.version and address in network and (best is None or rank < best):
            best, found = rank, route
    return found
