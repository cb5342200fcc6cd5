"""The firewall of the proxy's uplink: an nftables table of our own.

It looks only at what comes in on the uplink. Answers to the device's own connections pass (those of the hosts are
among them), ICMP passes, and the TCP ports on which hosts may listen. The rest is dropped, among it whatever else the
device serves. A table of our own leaves the tables of others as they are; what one table drops no other brings back.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from typing import Any

from . import sources
from .look import View
from .model import Action, Run, Setting, Source, Value
from .steering_ovs import bridge_of
from .wanted import Firewall as WantedFirewall
from .wanted import Wanted

_PLACE = {"family": "inet", "table": "xts_bluefield"}
_TABLE = {"family": "inet", "name": "xts_bluefield"}

#: It is in Debian's package netbase, which a small system may lack.
_PROTOCOLS = "/etc/protocols"
_IN_NO_BRIDGE = "in no bridge"


def _match(left: dict[str, Any], right: Any, operator: str = "==") -> dict[str, Any]:
    return {"match": {"op": operator, "left": left, "right": right}}


def _plain(match: Any) -> Any:
    """As newer nft shows it, whatever this one does: a set of one element is that element."""
    inner = match.get("match", {}) if isinstance(match, dict) else {}
    right = inner.get("right")
    one: list[Any] = right.get("set", []) if isinstance(right, dict) else []
    return {"match": {**inner, "right": one[0]}} if len(one) == 1 else match


def table(wanted: WantedFirewall) -> list[Any]:
    """The table, its chain and its rules, as `nft -j list` shows them."""
    chain = {**_PLACE, "name": "uplink", "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}
    rules: list[list[Any]] = [
        [_match({"meta": {"key": "iifname"}}, wanted.uplink, "!="), {"accept": None}],
        [_match({"ct": {"key": "state"}}, ["established", "related"], "in"), {"accept": None}],
        [_match({"meta": {"key": "l4proto"}}, {"set": ["icmp", "ipv6-icmp"]}), {"accept": None}],
    ]
    if wanted.tcp_ports:
        ports = {"set": sorted(set(wanted.tcp_ports))}
        rules.append([_plain(_match({"payload": {"protocol": "tcp", "field": "dport"}}, ports)), {"accept": None}])
    rules.append([{"drop": None}])
    made = [{"rule": {**_PLACE, "chain": "uplink", "expr": rule}} for rule in rules]
    return [{"table": dict(_TABLE)}, {"chain": chain}, *made]


class Uplink:
    """Setting("uplink", INTERFACE): "in no bridge", or what it is a port of. Nothing here changes it.

    The rules look at the interface on which a packet reaches this machine. Of a bridge that is the bridge's own
    interface and never a port, so rules for a port would let everything pass.
    """

    name = "uplink"
    source: Source = sources.OVS_PORT

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        if wanted.firewall:
            yield Setting(self.name, wanted.firewall.uplink), _IN_NO_BRIDGE

    def read(self, setting: Setting, view: View) -> Value:
        bridge = bridge_of(view, setting.place)
        if not bridge and view.machine.has_interface(setting.place):
            [shown] = view.json("ip", "-j", "link", "show", "dev", setting.place)
            bridge = shown.get("master", "")
        return f"a port of {bridge}" if bridge else _IN_NO_BRIDGE

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        return ()

    def what(self, setting: Setting, new: Value) -> str:
        return f"{setting.place} is {new}"

    def why(self, setting: Setting) -> str:
        return (
            "what comes in on a port reaches this machine on the bridge's own interface, where rules for the port do "
            "not see it: name that one as firewall.uplink"
        )

    def check(self, setting: Setting) -> str:
        return f"ovs-vsctl port-to-br {setting.place}; ip link show {setting.place}"


class FirewallTable:
    """Setting("firewall", "inet xts_bluefield"): the table as JSON, without handles; None: none."""

    name = "firewall"
    source: Source = sources.FIREWALL

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        if wanted.firewall:
            yield Setting(self.name, "inet xts_bluefield"), table(wanted.firewall)

    def read(self, setting: Setting, view: View) -> Value:
        names = view.json("nft", "-j", "list", "tables")["nftables"]
        if view.machine.read(_PROTOCOLS) is None:  # nft reads it, and says "Could not resolve protocol name"
            raise OSError(errno.ENOENT, f"there is no {_PROTOCOLS}, which nft needs (package netbase)")
        if not any(one.get("table", {}).get("name") == _TABLE["name"] for one in names):
            return None
        shown = view.json("nft", "-j", "list", "table", "inet", _TABLE["name"])["nftables"]
        return [_without_handles(one) for one in shown if "metainfo" not in one]

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        """One transaction: there is no moment without the old rules or the new ones."""
        delete = [{"add": {"table": _TABLE}}, {"delete": {"table": _TABLE}}]
        commands = delete + [{"add": one} for one in new or ()]
        lines = ",\n".join(json.dumps(command) for command in commands)
        return (Run(("nft", "-j", "-f", "-"), f'{{"nftables": [\n{lines}\n]}}\n'),)

    def what(self, setting: Setting, new: Value) -> str:
        rules = [one["rule"]["expr"] for one in new or () if "rule" in one]
        right: Any = next((expr[0]["match"]["right"] for expr in rules if _is_ports(expr)), {"set": []})
        ports: list[int] = right["set"] if isinstance(right, dict) else [right]
        uplink = rules[0][0]["match"]["right"] if rules else ""
        return (
            f"on {uplink} only answers, ICMP"
            + (f" and TCP ports {', '.join(map(str, ports))}" if ports else "")
            + " come in"
        )

    def why(self, setting: Setting) -> str:
        return "what the device serves itself is not for the network on which it speaks for hosts"

    def check(self, setting: Setting) -> str:
        return "nft list table inet xts_bluefield"


def _is_ports(expr: list[Any]) -> bool:
    return "payload" in expr[0].get("match", {}).get("left", {})


def _without_handles(one: dict[str, Any]) -> dict[str, Any]:
    return {kind: _shown(inner) if isinstance(inner, dict) else inner for kind, inner in one.items()}


def _shown(inner: dict[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in inner.items() if key != "handle"}
    return {**found, "expr": [_plain(expr) for expr in found["expr"]]} if "expr" in found else found
