"""Name lookups: the configuration in the form for the workers (struct xts_names_config of native/worker/worker.h).

The supervisor reads the device's own name servers and addresses, because workers open no files. It does so when it
starts, with each reload, and when interfaces or addresses change (device_watch.py).
"""

from __future__ import annotations

import ipaddress
import itertools
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xts_messages.wire.wire_table import FAMILY_IPV4, FAMILY_IPV6

from xts_proxy.config.config import Config
from xts_proxy.config.config_names import RESOLVERS_MAX, NameRule, Resolver
from xts_proxy.config.config_tenant import ANY_TENANT
from xts_proxy.device.interfaces import Address, Interface, read_interfaces

_RESOLV_CONF = Path("/etc/resolv.conf")


@dataclass(frozen=True, slots=True)
class Server:
    """A name server, with its address in the form for sockets; `scope`: the interface of a link-local address."""

    address: str
    port: int
    scope: int = 0


@dataclass(frozen=True, slots=True)
class Device:
    """What the workers need to know of the device: its name servers, the families of its addresses, its interfaces."""

    servers: tuple[Server, ...] = ()
    families: int = 0
    interfaces: tuple[Interface, ...] = ()


def of_device(config: Config) -> Device:
    """Reads all of this, for this configuration."""
    interfaces = read_interfaces()
    addresses = [address for interface in interfaces for address in interface.addresses]
    servers = tuple(_servers(config.names.resolvers))[:RESOLVERS_MAX]
    return Device(servers, _families(addresses), interfaces)


def _servers(resolvers: list[Resolver]) -> Iterator[Server]:
    for resolver in resolvers:
        for one in [resolver] if resolver.address else resolv_conf(_read(_RESOLV_CONF)):
            with suppress(OSError):  # without its interface there is no such server
                yield _server(one)


def _server(resolver: Resolver) -> Server:
    assert resolver.address
    address, _, scope = str(resolver.address).partition("%")
    return Server(address, resolver.port, _scope(scope))


def _scope(name: str) -> int:
    if not name:
        return 0
    return int(name) if name.isdecimal() else socket.if_nametoindex(name)


def resolv_conf(text: str) -> list[Resolver]:
    """The servers of a resolv.conf(5). Lines that name none are skipped, as in the C library."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver":
            with suppress(ValueError):
                found.append(Resolver(ipaddress.ip_address(words[1])))
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _families(addresses: list[Address]) -> int:
    """The address families in which the device has addresses beyond loopback and link-local ones."""
    versions = {address.version for address in addresses if not address.is_loopback and not address.is_link_local}
    return (FAMILY_IPV4 if 4 in versions else 0) | (FAMILY_IPV6 if 6 in versions else 0)


def _allows(config: Config) -> bool:
    names = config.names
    return (config.policy.default if names.default == "auto" else names.default) == "allow"


def _flat(rules: list[NameRule], numbers: Mapping[str, int]) -> list[tuple[bool, int, bytes]]:
    """For each rule: whether it allows, its tenant, its domain."""
    flat = []
    for rule in rules:
        tenants = [numbers[name] for name in rule.tenants] or [ANY_TENANT]
        for tenant, domain in itertools.product(tenants, [domain.wire for domain in rule.domains] or [b""]):
            flat.append((rule.action == "allow", tenant, domain))
    return flat


def to_native(ffi: Any, config: Config, device: Device, numbers: Mapping[str, int]) -> tuple[dict[str, Any], Any]:
    """The fields of struct xts_names_config, and the objects that must live as long as they do."""
    flat = _flat(config.names.rule, numbers)
    rules = ffi.new("struct xts_name_rule[]", max(1, len(flat)))
    for (allow, tenant, domain), target in zip(flat, rules, strict=False):
        target.allow, target.tenant, target.domain_bytes = allow, tenant, len(domain)
        ffi.memmove(target.domain, domain, len(domain))
    return {
        "default_allow": _allows(config),
        "resolver_count": len(device.servers),
        "resolvers": [_endpoint(server) for server in device.servers],
        "timeout_ms": config.names.timeout_ms,
        "attempts": config.names.attempts,
        "families": device.families,
        "rules": rules,
        "rule_count": len(flat),
    }, rules


def _endpoint(server: Server) -> dict[str, Any]:
    address = ipaddress.ip_address(server.address)
    return {
        "port": server.port,
        "ip_version": address.version,
        "scope_id": server.scope,
        "address": list(address.packed.ljust(16, b"\0")),
    }
