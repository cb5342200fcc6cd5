"""The tables of the configuration file about name lookups: `[names]`, `[[names.rule]]`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import msgspec
from msgspec import Meta, Struct
from xts_messages.settings.toml_positions import Path as KeyPath

from xts_proxy.config.config_tenant import Name as TenantName

#: XTS_RESOLVERS_MAX of native/worker/worker.h.
RESOLVERS_MAX = 8
#: Each rule counts once for each pair of its domains and tenants; they are searched in order.
NAME_RULES_MAX = 4096
DEVICE = "device"
PORT = 53


@dataclass(frozen=True, slots=True)
class Resolver:
    """A name server; without an address, those of the device's resolv.conf. A scope is the name of an interface."""

    expected: ClassVar[str] = '"device", or an address such as "198.18.0.53" or "[fd18::53]:5353"'
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None = None
    port: int = PORT

    @classmethod
    def parse(cls, text: str) -> Self:
        if text.strip() == DEVICE:
            return cls()
        match = re.fullmatch(r"\s*(?:\[([^\]]+)\]:(\d{1,5})|([0-9.]+):(\d{1,5})|(\S+))\s*", text, re.ASCII)
        if not match:
            raise ValueError("this is no address")
        port = int(match[2] or match[4] or PORT)
        if not 0 < port <= 65535:
            raise ValueError(f"there is no port {port}")
        address = ipaddress.ip_address(match[1] or match[3] or match[5])
        if address.is_unspecified or address.is_multicast:
            raise ValueError(f"{address} is not the address of a server")
        return cls(address, port)

    def __str__(self) -> str:
        if self.address is None:
            return DEVICE
        if self.port == PORT:
            return str(self.address)
        return f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain and everything below it, in DNS wire format and in lower case."""

    expected: ClassVar[str] = 'a domain such as "example.com"'
    wire: bytes

    @classmethod
    def parse(cls, text: str) -> Self:
        labels = [label.encode() for label in text.strip().rstrip(".").lower().split(".")]
        if not text.isascii():
            raise ValueError("letters beyond ASCII are written as in the DNS (xn--…)")
        if not all(0 < len(label) < 64 for label in labels):
            raise ValueError("each part of a name has 1 to 63 bytes")
        wire = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
        if len(wire) > 255:
            raise ValueError("a name has 253 bytes at most")
        return cls(wire)

    def __str__(self) -> str:
        labels, left = [], self.wire
        while left[0]:
            labels.append(left[1 : 1 + left[0]].decode())
            left = left[1 + left[0] :]
        return ".".join(labels)


class NameRule(Struct, frozen=True, kw_only=True):
    """[[names.rule]]: the first rule that matches decides."""

    action: Literal["allow", "deny"]
    domains: list[Domain] = msgspec.field(default_factory=list)
    tenants: list[TenantName] = msgspec.field(default_factory=list)


class Names(Struct, frozen=True, kw_only=True):
    """[names]: which servers the proxy asks for hosts, and who may look up what."""

    resolvers: list[Resolver] = msgspec.field(default_factory=lambda: [Resolver()])
    default: Literal["auto", "allow", "deny"] = "auto"
    timeout_ms: Annotated[int, Meta(ge=10, le=60_000)] = 2000
    attempts: Annotated[int, Meta(ge=1, le=10)] = 2
    rule: list[NameRule] = msgspec.field(default_factory=list)


def together(names: Names) -> Iterator[tuple[KeyPath, str]]:
    """Mistakes in the combination of several values."""
    if len(names.resolvers) > RESOLVERS_MAX:
        yield ("names", "resolvers"), f"{len(names.resolvers)} servers; at most {RESOLVERS_MAX} are allowed"
    flat = sum(max(1, len(rule.domains)) * max(1, len(rule.tenants)) for rule in names.rule)
    if flat > NAME_RULES_MAX:
        yield ("names", "rule"), f"{flat} combinations of domains and tenants; at most {NAME_RULES_MAX} are allowed"
