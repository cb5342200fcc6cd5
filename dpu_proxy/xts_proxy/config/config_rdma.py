"""[rdma]: where the proxy waits for agents over RDMA, and whom it lets in."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct, structs
from xts_messages.queues.queue_kinds import RDMA_PORT, RDMA_QUEUES_MAX
from xts_messages.settings.toml_positions import Path as KeyPath

from xts_proxy.config.config_values import Network

if TYPE_CHECKING:
    from xts_proxy.config.config import Proxy

_AN_ADDRESS = 'an IPv4 or IPv6 address such as "192.168.100.2"'
#: Keys of [proxy] about the queues of an interface, and the wire between them.
_OF_AFXDP = (
    *("peer_mac", "queues", "single_chunk", "steering", "flow_rules", "reliable"),
    *("zero_copy", "huge_pages", "chunk_bytes"),
)
#: Of both protocols, roughly; address_problem() looks closer.
_FORM = r"^[0-9A-Fa-f:.]{0,45}$"


class Rdma(Struct, frozen=True, kw_only=True):
    """[rdma]. Changes need a restart. `port`: of queue 0; each queue is one agent's, and has the next port."""

    address: Annotated[str, Meta(pattern=_FORM, description=_AN_ADDRESS)] = ""
    port: Annotated[int, Meta(ge=1, le=65535)] = RDMA_PORT
    queues: Annotated[int, Meta(ge=1, le=RDMA_QUEUES_MAX)] = 1
    hosts: list[Network] = msgspec.field(default_factory=list)
    ack_timeout: Annotated[int, Meta(ge=0, le=31)] | None = None

    def admits(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        """May a host with this address connect?"""
        networks = [host.network for host in self.hosts if not host.own]
        return any(network is None or address in network for network in networks)


def together(rdma: Rdma, proxy: Proxy) -> Iterator[tuple[KeyPath, str]]:
    """Mistakes in the combination of several values."""
    if proxy.queue != "rdma":
        if rdma != Rdma():
            yield ("rdma",), f'means queue = "rdma", and proxy.queue is "{proxy.queue}"'
        return
    defaults = type(proxy)()
    for field in structs.fields(proxy):
        if field.name in _OF_AFXDP and getattr(proxy, field.name) != getattr(defaults, field.name):
            yield ("proxy", field.name), 'means nothing with queue = "rdma"'
    if not proxy.relayed_max:
        yield (
            ("proxy", "relayed_max"),
            "is how many processes an agent may bring, and 0 leaves none",
        )
    if not proxy.interface:
        yield ("proxy", "interface"), 'is needed with queue = "rdma": the interface with the RDMA device'
    if not rdma.address:
        yield ("rdma", "address"), f'is needed with queue = "rdma"; expected {_AN_ADDRESS}'
    elif problem := _address_problem(rdma.address):
        yield ("rdma", "address"), f"expected {_AN_ADDRESS}, found {rdma.address!r}: {problem}"
    if not rdma.hosts:
        yield ("rdma", "hosts"), 'is needed with queue = "rdma": who may connect, such as ["192.168.100.1"]'
    for i, host in enumerate(rdma.hosts):
        if host.own:
            yield ("rdma", "hosts", i), "expected addresses of hosts, not those of this device"
    if rdma.port + rdma.queues - 1 > 65535:
        yield ("rdma", "port"), f"leaves no ports for {rdma.queues} queues"


def _address_problem(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        return str(error)
    return "agents cannot connect to it" if address.is_unspecified or address.is_multicast else ""
