"""`xts status --routes`: the device's routes, rules of policy routing and multicast groups, as the proxy tells them on
its control socket; and the route that one connection takes."""

from __future__ import annotations

import json

import msgspec
from xts_messages.terminal.printable import printable
from xts_messages.terminal.text_table import print_table

from . import proxy_side


def show(control: str | None, as_json: bool) -> int:
    """Prints them; returns the exit status. `control` None: the default socket. OSError as proxy_side.ask()."""
    control = control or proxy_side.control_path()
    network = proxy_side.ask(control).network
    if network is None:
        raise OSError(f"the proxy at {control} tells no routes: it is older")
    if as_json:
        print(json.dumps(msgspec.to_builtins(network), indent=2))
        return 0
    if network.rules:
        rules = [
            (str(one.priority), f"IPv{one.ip_version}", printable(one.conditions), printable(one.action))
            for one in network.rules
        ]
        print_table(("Priority", "Of", "Rule", "Action"), rules, ("Priority",))
        _more(network.rules_more, "rules")
        print()
    routes = [
        (
            *(printable(text) or "-" for text in (one.destination, one.gateway, one.interface, one.table)),
            str(one.metric),
        )
        for one in network.routes
    ]
    headings = ("Route", "Gateway", "Interface", "Table", "Metric")
    print_table(headings, routes, ("Metric",), empty="the device has no routes")
    _more(network.routes_more, "routes")
    print()
    groups = [(printable(one.group), printable(one.interface), str(one.members)) for one in network.groups]
    print_table(("Group", "Interface", "Members"), groups, ("Members",), empty="nobody has joined a multicast group")
    _more(network.groups_more, "groups")
    return 0


def _more(count: int, of_what: str) -> None:
    if count:
        print(f"… and {count} {of_what} more")


def route_text(control: str, local: str, peer: str) -> str:
    """The device's route of a connection in a few words, or why it is not known."""
    if peer == "*":
        return ""
    try:
        answer = proxy_side.ask_route(control, local, peer)
    except OSError as error:
        return f"not known: {printable(error.strerror or str(error))}"
    if answer.route is None:
        return f"none: {printable(answer.problem)}"
    via = f" via {answer.route.gateway}" if answer.route.gateway else ""
    table = "" if answer.route.table in ("main", "local") else f", table {answer.route.table}"
    return printable(f"{answer.route.interface}{via}{table}")
