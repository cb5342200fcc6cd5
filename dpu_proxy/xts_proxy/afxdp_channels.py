"""Channels over an interface: a fixed set of AF_XDP queues, opened at the start and spread over the workers.

The process at the other end attaches by HELLO. Its end is reported by the host's agent, or found by pings.

The host's processes hold descriptors with which they can send any frame. On an interface that carries only messages
(`exclusive`), the XDP program drops everything else, before this machine's network stack sees it.

After the sandbox has closed, the program on the interface cannot be detached any more: it stays, drops the host's
frames while no proxy runs, and is replaced at the next start. `ip link set dev INTERFACE xdp off` removes it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Any

from pyroute2 import IPRoute
from xts_bpf.device import receive_queues
from xts_bpf.program import interface_index
from xts_messages import attach_token

from xts_proxy.config import Config
from xts_proxy.config_values import ALL, Queues
from xts_proxy.log import LOG
from xts_proxy.stored_queues import Settings, store, take
from xts_proxy.tenants import Tenants
from xts_proxy.worker_process import RemoteWorker

#: How long we wait for a queue that the proxy before us has just closed.
_PATIENCE_S = 2.0


class DeviceChannels:
    """The queues of an interface, until they are given to workers."""

    def __init__(self, config: Config, tenants: Tenants) -> None:
        """Opens program and queues, or takes those that were opened for us. OSError says which one could not be opened
        and why; nothing is left open then."""
        self.config = config
        self.tenants = tenants
        proxy = config.proxy
        self._told = False
        self._key = attach_token.load_key(proxy.token_key) if proxy.token_key else b""
        if proxy.exclusive and (found := _addresses(proxy.interface)):
            LOG.warning(
                "%s has the addresses %s: what is sent to them over it is dropped (proxy.exclusive)",
                proxy.interface,
                ", ".join(found),
            )
        settings = _settings(config)
        self.queue_ids = list(settings.queue_ids)
        self._opened = take(settings) or settings.open(_PATIENCE_S)

    def give_to(self, workers: list[RemoteWorker]) -> None:
        """Gives the queues to the workers in turn."""
        self.reconfigure(workers)
        for i, xsk in enumerate(self._opened.sockets):
            tenant = self.tenants.of_queue(self.config.proxy.interface, xsk.queue_id)
            workers[i % len(workers)].add_afxdp_channel(xsk, tenant)
            xsk.close()

    def reconfigure(self, workers: list[RemoteWorker]) -> None:
        """Gives the workers the table that maps the identities in tokens to tenants."""
        rules = self.tenants.identity_rules(self.config.proxy.interface) if self._key else []
        for worker in workers:
            worker.trust(self._key, rules)

    def programs(self) -> dict[int, tuple[int, str]]:
        """The processes are on another machine: nothing is known here."""
        return {}

    def counters(self) -> dict[str, int]:
        """For metrics."""
        try:
            found = self._opened.counters()
        except OSError as error:
            if not self._told:
                LOG.warning("no metrics of the XDP program: %s", error)
            self._told = True
            return {}
        return {name: getattr(found, name) for name in found.__slots__}

    def close(self) -> None:
        self._opened.close()


def open_ahead(config: Config) -> None:
    """Opens the queues for the service that systemd starts next. OSError says what could not be opened."""
    store(_settings(config), _PATIENCE_S)


def _settings(config: Config) -> Settings:
    proxy = config.proxy
    assert proxy.peer_mac.octets is not None
    return Settings(
        proxy.interface,
        tuple(queue_ids(config)),
        proxy.peer_mac.octets,
        proxy.frame_window,
        proxy.single_chunk,
        proxy.ethertype,
        proxy.exclusive,
    )


def queue_ids(config: Config) -> list[int]:
    """The queues to open. OSError ENODEV: no such interface; EINVAL: it does not have all that were requested."""
    interface = config.proxy.interface
    count = receive_queues(interface)
    if config.proxy.queues == Queues.parse(ALL):
        return list(range(count))
    highest = max(last for _, last in config.proxy.queues.pairs)
    if highest >= count:
        problem = f"{interface} has queues 0-{count - 1}, not {config.proxy.queues} (see ethtool -l {interface})"
        raise OSError(errno.EINVAL, problem)
    return [number for number in range(count) if number in config.proxy.queues]


def _outside(query: Callable[[str], Any], interface: str) -> Any:
    """Runs a query of pyroute2 outside our event loop, because pyroute2 runs its own."""
    with ThreadPoolExecutor(1) as outside:
        return outside.submit(query, interface).result()


def _addresses(interface: str) -> list[str]:
    """The addresses assigned to an interface, without the link-local one that every interface gives itself."""
    return [found for found in _outside(_all_addresses, interface) if not ip_address(found).is_link_local]


def _all_addresses(interface: str) -> list[str]:
    with IPRoute() as route:
        return [str(a.get_attr("IFA_ADDRESS")) for a in route.get_addr(index=interface_index(interface))]
