"""Policy in Python: the file's rules as the workers take them, and the same decision explained to people.

`decide()` reads the rules as they stand in the file and asks `ipaddress`; the workers match the flattened rules
of `flatten()` bit by bit (native/policy.c). The tests hold one against the other. What both do with IPv4-mapped
and unspecified addresses is explained in native/policy.h.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from xts_proxy.config import Policy, Rule

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class Action(IntEnum):
    """enum xts_policy_action."""

    CONNECT = 1
    LISTEN = 2
    BOTH = 3


@dataclass(frozen=True, slots=True)
class FlatRule:
    """struct xts_policy_rule, and the rule of the file it comes from."""

    source: int
    allow: bool
    action: Action
    ip_version: int
    prefix_bits: int
    address: bytes
    ports: tuple[int, int]
    queues: tuple[int, int]


def flatten(policy: Policy) -> list[FlatRule]:
    """The rules with one range of ports and one of queues each, in order."""
    flat = []
    for source, rule in enumerate(policy.rule):
        network = rule.network.network
        for queues in rule.queues.pairs:
            for ports in rule.ports.pairs:
                flat.append(
                    FlatRule(
                        source=source,
                        allow=rule.action == "allow",
                        action=Action[rule.what.upper()],
                        ip_version=network.version if network else 0,
                        prefix_bits=network.prefixlen if network else 0,
                        address=(network.network_address.packed if network else b"").ljust(16, b"\0"),
                        ports=ports,
                        queues=queues,
                    )
                )
    return flat


def to_native(ffi: Any, flat: list[FlatRule]) -> Any:
    """`struct xts_policy_rule[]`; the caller keeps it alive while C reads it."""
    rules = ffi.new("struct xts_policy_rule[]", max(1, len(flat)))
    for rule, target in zip(flat, rules, strict=False):
        target.allow = rule.allow
        target.action = rule.action
        target.ip_version = rule.ip_version
        target.prefix_bits = rule.prefix_bits
        ffi.memmove(target.address, rule.address, 16)
        target.port_first, target.port_last = rule.ports
        target.queue_first, target.queue_last = rule.queues
    return rules


@dataclass(frozen=True, slots=True)
class Decision:
    """`rule`: index in the file of the rule that decides; None when it is the default."""

    allow: bool
    rule: int | None


def decide(policy: Policy, action: Action, queue_id: int, address: IPAddress, port: int) -> Decision:
    """What the policy says to queue `queue_id` that connects to, or listens on, address and port."""
    for index, rule in enumerate(policy.rule):
        if (
            Action[rule.what.upper()] & action
            and queue_id in rule.queues
            and port in rule.ports
            and _covers(rule, address)
        ):
            return Decision(rule.action == "allow", index)
    return Decision(policy.default == "allow", None)


def _covers(rule: Rule, address: IPAddress) -> bool:
    network = rule.network.network
    if network is None:
        return True
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_unspecified and rule.action == "deny":
        return address.version == 6 or network.version == 4
    if address.is_unspecified:
        return address.version == network.version and network.prefixlen == 0
    return address in network


def parse_endpoint(text: str) -> tuple[IPAddress, int]:
    """ "198.18.0.2:80" or "[fd18::2]:80". ValueError says what is wrong."""
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]+)):(\d{1,5})", text, re.ASCII)
    if not match:
        raise ValueError(f'{text!r} is no endpoint; expected one such as "198.18.0.2:80" or "[fd18::2]:80"')
    port = int(match[3])
    if port > 65535:
        raise ValueError(f"port {port} is above 65535")
    return ipaddress.ip_address(match[1] or match[2]), port


def describe(rule: Rule) -> str:
    """A rule in one line."""
    what = "connect and listen" if rule.what == "both" else rule.what
    return f"{rule.action} {what}, network {rule.network}, ports {rule.ports}, queues {rule.queues}"
