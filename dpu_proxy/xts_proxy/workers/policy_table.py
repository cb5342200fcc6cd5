"""The policy's rules in the form for the workers, which decide by them (native/tenants/policy.c)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from xts_proxy.config.config import Policy
from xts_proxy.config.config_tenant import ANY_TENANT


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
    tenant: int
    own: bool


def flatten(policy: Policy, numbers: Mapping[str, int]) -> list[FlatRule]:
    """The rules in order, each split so that it has one tenant, one range of ports and one range of queues. `numbers`:
    the tenants' numbers by name."""
    flat = []
    for source, rule in enumerate(policy.rule):
        network = rule.network.network
        tenants = [numbers[name] for name in rule.tenants] or [ANY_TENANT]
        for tenant, queues in itertools.product(tenants, rule.queues.pairs):
            for ports in rule.ports.pairs:
                flat.append(
                    FlatRule(
                        tenant=tenant,
                        own=rule.network.own,
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
        target.tenant, target.own = rule.tenant, rule.own
    return rules


def listen_default(policy: Policy, tenants: int) -> str:
    """The default for bind and listen: where there are tenants, rules have to name what they may listen on."""
    if policy.listen != "auto":
        return policy.listen
    return "deny" if tenants else policy.default
