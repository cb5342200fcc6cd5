"""Values that the configuration file writes as strings: ranges, networks, addresses.

Each type parses its string (ValueError says what is wrong), describes what it expects, and prints in the form that it
parses.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import ClassVar, Self

from xts_messages.machine import mac_address
from xts_messages.metrics.metrics_address import MetricsAddress

ALL = "all"
LOOPBACK = "loopback"


@dataclass(frozen=True, slots=True)
class Ranges:
    """Numbers and ranges of numbers: "80,443,1000-2000", or "all"."""

    expected: ClassVar[str] = ""
    highest: ClassVar[int] = 0
    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        if text.strip() == ALL:
            return cls(((0, cls.highest),))
        pairs = []
        for part in text.split(","):
            match = re.fullmatch(r"\s*(\d{1,10})\s*(?:-\s*(\d{1,10})\s*)?", part, re.ASCII)
            if not match:
                raise ValueError(f"{part.strip()!r} is neither a number nor a range")
            first = int(match[1])
            last = int(match[2]) if match[2] else first
            if last < first:
                raise ValueError(f"the range {part.strip()} runs backwards")
            if last > cls.highest:
                raise ValueError(f"{last} is above {cls.highest}")
            pairs.append((first, last))
        return cls(tuple(pairs))

    def __contains__(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self.pairs)

    def __str__(self) -> str:
        if self.pairs == ((0, self.highest),):
            return ALL
        return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in self.pairs)


class Ports(Ranges):
    """TCP ports; 0 means "chosen by the kernel", for listeners."""

    expected = 'ports such as "80,443,1000-2000", or "all"'
    highest = 65535
    __slots__ = ()


class Queues(Ranges):
    """Numbers of queues."""

    expected = 'queue numbers such as "0-3", or "all"'
    highest = (1 << 32) - 1
    __slots__ = ()


def _unmapped(
    network: ipaddress.IPv4Network | ipaddress.IPv6Network,
) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Turns a network of IPv4-mapped addresses into the IPv4 network, as such addresses are matched as IPv4."""
    if network.version == 6 and network.prefixlen >= 96 and network.network_address.ipv4_mapped is not None:
        return ipaddress.IPv4Network((network.network_address.ipv4_mapped, network.prefixlen - 96))
    return network


@dataclass(frozen=True, slots=True)
class Network:
    """An IPv4 or IPv6 network in prefix notation, or None for "all"; `own`: the device's loopback and link-local.

    The host's rules (host_lib/RULES.md) take the same texts, with the same meaning.
    """

    expected: ClassVar[str] = 'a network such as "198.18.0.0/15" or "fd18::/64", or "all", or "loopback"'
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None
    own: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        if text.strip() == ALL:
            return cls(None)
        if text.strip() == LOOPBACK:
            return cls(None, own=True)
        _, slash, prefix = text.strip().partition("/")
        if slash and not re.fullmatch(r"0|[1-9]\d{0,2}", prefix, re.ASCII):
            raise ValueError("a prefix is the number of bits")
        if "%" in text:
            raise ValueError("a network has no scope")
        interface = ipaddress.ip_interface(text.strip())
        if interface.ip != interface.network.network_address:
            raise ValueError(f"{text} has bits set after its prefix; did you mean {interface.network}?")
        return cls(_unmapped(interface.network))

    def __str__(self) -> str:
        if self.own:
            return LOOPBACK
        return ALL if self.network is None else str(self.network)


@dataclass(frozen=True, slots=True)
class Mac:
    """An Ethernet address; None when not given."""

    expected: ClassVar[str] = mac_address.EXPECTED
    octets: bytes | None

    @classmethod
    def parse(cls, text: str) -> Self:
        if text == "":
            return cls(None)
        return cls(mac_address.station(text))

    def __str__(self) -> str:
        return "" if self.octets is None else self.octets.hex(":")


PARSED = (Ports, Queues, Network, Mac, MetricsAddress)
