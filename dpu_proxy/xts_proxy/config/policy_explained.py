"""The policy's decision, explained to people: which rule decides, for `xts-proxy --check`, `--explain` and notes.

Workers do not use it: they match the rules of policy_table.py bit by bit (native/tenants/policy.c). `decide()` uses the
rules as they are in the file, and `ipaddress`, so that the tests can compare the two. native/tenants/policy.h explains
what both do with IPv4-mapped and unspecified addresses and with the device's own.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from xts_proxy.config.config import Policy, Rule
from xts_proxy.config.config_tenant import DEFAULT
from xts_proxy.workers.policy_table import Action, listen_default

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Decision:
    """`rule`: index in the file of the rule that decides; None when it is the default."""

    allow: bool
    rule: int | None


@dataclass(frozen=True, slots=True)
class Who:
    """Who asks: the tenant, the queue it comes over, and how many tables of tenants there are."""

    tenant: str = DEFAULT
    queue_id: int = 0
    tenants: int = 0


def decide(policy: Policy, action: Action, who: Who, address: IPAddress, port: int) -> Decision:
    """The policy's decision about `who` connecting to, or listening on, an address and port."""
    for index, rule in enumerate(policy.rule):
        if (
            Action[rule.what.upper()] & action
            and (not rule.tenants or who.tenant in rule.tenants)
            and who.queue_id in rule.queues
            and port in rule.ports
            and _covers(rule, action, address)
        ):
            return Decision(rule.action == "allow", index)
    default = policy.default if action == Action.CONNECT else listen_default(policy, who.tenants)
    return Decision(default == "allow" and not is_own(action, address), None)


def _plain(address: IPAddress) -> IPAddress:
    """Turns an IPv4-mapped address into the IPv4 address."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _embedded(address: IPAddress) -> ipaddress.IPv4Address | None:
    """The IPv4 address that a translator or tunnel turns this IPv6 address into."""
    if address.version == 4 or address.is_unspecified or _is_own(address):
        return None
    for prefix in _NAT64:
        if address in prefix:
            return ipaddress.IPv4Address(address.packed[12:])
    if address.sixtofour:
        return address.sixtofour
    if address.teredo:
        return address.teredo[1]
    if address.packed[8:12] in _ISATAP or address in _COMPATIBLE:
        return ipaddress.IPv4Address(address.packed[12:])
    return None


_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_ISATAP = (bytes.fromhex("00005efe"), bytes.fromhex("02005efe"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_OWN = tuple(
    ipaddress.ip_network(text) for text in ("127.0.0.0/8", "169.254.0.0/16", "0.0.0.0/8", "::1/128", "fe80::/10")
)


def _is_own(address: IPAddress) -> bool:
    return any(address in network for network in _OWN if network.version == address.version)


def is_own(action: Action, address: IPAddress) -> bool:
    """Is it one of the device's own addresses, loopback or link-local, which only a rule that names them allows?"""
    address = _plain(address)
    if address.is_unspecified:
        return action == Action.CONNECT
    embedded = _embedded(address)
    return _is_own(address) or (embedded is not None and _is_own(embedded))


def means_own(rule: Rule) -> bool:
    """Does the rule name a network of the device's own addresses?"""
    network = rule.network.network
    if network is None:
        return False
    if network.version == 6 and network == ipaddress.IPv6Network("::/128"):
        return True
    return any(network.version == own.version and network.subnet_of(own) for own in _OWN)  # type: ignore[arg-type]


def _covers(rule: Rule, action: Action, address: IPAddress) -> bool:
    network, own = rule.network.network, is_own(action, address)
    if rule.network.own:
        return own
    if network is None:
        return rule.action == "deny" or not own
    address = _plain(address)
    if address.is_unspecified and rule.action == "deny":
        return address.version == 6 or network.version == 4
    if own and rule.action == "allow" and not means_own(rule):
        return False
    if address.is_unspecified and not own:
        return address.version == network.version and network.prefixlen == 0
    embedded = _embedded(address)
    through = embedded is not None and embedded in network and (rule.action == "deny" or own)
    return address in network or through


def parse_endpoint(text: str) -> tuple[IPAddress, int]:
    """ "198.18.0.2:80" or "[fd18::2]:80". ValueError says what is wrong."""
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]+)):(\d{1,5})", text, re.ASCII)
    if not match:
        raise ValueError(f'{text!r} is not an address and port such as "198.18.0.2:80" or "[fd18::2]:80"')
    port = int(match[3])
    if port > 65535:
        raise ValueError(f"port {port} is above 65535")
    return ipaddress.ip_address(match[1] or match[2]), port


def describe(rule: Rule) -> str:
    """A rule in one line."""
    what = "connect and listen" if rule.what == "both" else rule.what
    whose = f", tenants {', '.join(rule.tenants)}" if rule.tenants else ""
    return f"{rule.action} {what}, network {rule.network}, ports {rule.ports}, queues {rule.queues}{whose}"
