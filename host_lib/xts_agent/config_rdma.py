"""What queue = "rdma" needs of the agent's configuration, and what has no meaning with it, or without."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import structs

if TYPE_CHECKING:
    from xts_agent.config import AgentConfig

#: Of queues that processes have for themselves, and of Ethernet.
_OF_AFXDP = (
    "peer_mac",
    "queues",
    "raise_queues",
    "spares",
    "single_chunk",
    "exclusive",
    "steering",
    "flow_rules",
    "reliable",
    "zero_copy",
    "huge_pages",
    "chunk_bytes",
    "prove_every_s",
)
_OF_RDMA = ("rdma_peer", "rdma_port", "rdma_queue", "rdma_ack_timeout")


def mistakes(config: AgentConfig) -> Iterator[tuple[str, str]]:
    """Mistakes in the combination of several keys: at which, and what."""
    if config.queue != "rdma":
        yield from (
            (name, f'means queue = "rdma", and queue is "{config.queue}"') for name in _changed(config, _OF_RDMA)
        )
        return
    yield from ((name, 'means nothing with queue = "rdma"') for name in _changed(config, _OF_AFXDP))
    if not isinstance(config.interface, str) and len(config.interface) != 1:
        yield "interface", 'expected one with queue = "rdma": run an agent for each, with an endpoint of its own'
    if not config.rdma_peer:
        yield "rdma_peer", 'is needed with queue = "rdma": the address at which the proxy waits'
    if config.rdma_port + config.rdma_queue > 65535:
        yield "rdma_port", f"leaves no port for queue {config.rdma_queue}"
    if config.relayed_max == 0:
        yield "relayed_max", 'is how many processes are served with queue = "rdma", and 0 leaves none'
    if config.per_uid_max:
        yield "per_uid_max", 'counts queues, and with queue = "rdma" there is none for a process; 0 lifts the limit'
    if config.pods:
        yield "pods", 'cannot be served with queue = "rdma": pods are allocated queues, and there is none'


def check_peer(text: str) -> None:
    """ValueError: that is no address at which a proxy can wait. Empty: none is given."""
    address = ipaddress.ip_address(text) if text else None
    if address and (address.is_unspecified or address.is_multicast):
        raise ValueError("no proxy can be reached there")


def _changed(config: AgentConfig, names: tuple[str, ...]) -> list[str]:
    """Those of these keys that have not their defaults."""
    defaults = {field.name: field.default for field in structs.fields(type(config))}
    return [name for name in names if getattr(config, name) != defaults[name]]
