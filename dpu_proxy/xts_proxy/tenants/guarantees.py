"""What each tenant is guaranteed of what the machine has, whatever others take; the rest goes to who needs it.

Descriptors and memory are counted by the workers (native/tenants/resource_pool.h). Local ports, which the kernel picks
for who connects, cannot be: a closed connection keeps its port for a minute. So each tenant has a part of their range
for its own (native/addresses/local_ports.h). The parts are next to each other, in the order of the table, and the rest
is behind them. A tenant that is alone needs none.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from xts_proxy.config.config import Config
from xts_proxy.config.config_tenant import Tenant, effective

#: Descriptors of the proxy that are nobody's: its own sockets, workers, files.
OWN_DESCRIPTORS = 256
#: Fewer local ports than that, which is not nine connections a second to one address, are warned of.
FEW_PORTS = 512
TIME_WAIT_S = 60
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_IP_LOCAL_PORT_RANGE = 51  # linux/in.h


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is for all tenants together, or for one."""

    descriptors: int
    memory_mib: int
    #: How many local ports, from the first on. 0: they are not known, or cannot be divided.
    local_ports: int = 0
    first_port: int = 0
    #: Has it swap space? Without, memory that is not locked is no worse.
    swaps: bool = True

    @property
    def ports(self) -> tuple[int, int]:
        """The first and the last, or (0, 0)."""
        return (self.first_port, self.first_port + self.local_ports - 1) if self.local_ports else (0, 0)


def machine_of(config: Config, descriptors: int) -> Machine:
    """What there is for tenants, when a process may have so many descriptors."""
    memory_mib = config.proxy.memory_mib or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 21
    return Machine(max(1, descriptors - OWN_DESCRIPTORS), memory_mib, *_local_ports(), swaps=_swaps())


def _swaps(table: Path = Path("/proc/swaps")) -> bool:
    """Is there swap space? Below a line of titles is a line for each. Where that cannot be read there may be."""
    try:
        return len(table.read_text().splitlines()) > 1
    except OSError:
        return True


def this_machine(config: Config) -> Machine:
    """The same, with the descriptors that the hard limit of this process allows."""
    return machine_of(config, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def _local_ports() -> tuple[int, int]:
    """How many, and the first."""
    with suppress(OSError, ValueError), socket.socket() as sock:
        sock.setsockopt(socket.IPPROTO_IP, _IP_LOCAL_PORT_RANGE, 0)  # has the kernel this option?
        first, last = map(int, _PORT_RANGE.read_text().split())
        return last - first + 1, first
    return 0, 0


def guarantees(tenants: list[Tenant], machine: Machine) -> dict[str, Machine]:
    """What each tenant of the effective table is guaranteed."""
    weights = sum(tenant.weight for tenant in tenants)
    ports = _fitting(_wanted_ports(tenants, machine), machine.local_ports) if len(tenants) > 1 else [0]
    return {
        tenant.name: Machine(
            _share(tenant.guaranteed.descriptors, machine.descriptors, tenant.weight, weights),
            _share(tenant.guaranteed.memory_mib, machine.memory_mib, tenant.weight, weights),
            ports[i],
            machine.first_port + sum(ports[:i]),
        )
        for i, tenant in enumerate(tenants)
    }


def _share(given: int | None, whole: int, weight: int, weights: int) -> int:
    return whole // 2 * weight // weights if given is None else given


def _wanted_ports(tenants: list[Tenant], machine: Machine) -> list[int]:
    weights = sum(tenant.weight for tenant in tenants)
    return [_share(t.guaranteed.local_ports, machine.local_ports, t.weight, weights) for t in tenants]


def _fitting(wanted: list[int], ports: int) -> list[int]:
    """Made less in proportion where there are not so many; one at least is left for all."""
    together = sum(wanted)
    return wanted if together < ports else [one * max(0, ports - 1) // max(1, together) for one in wanted]


def common_ports(tenants: list[Tenant], machine: Machine) -> tuple[int, int]:
    """The first and the last of the local ports that are guaranteed to nobody; (0, 0): they are not known."""
    guaranteed = sum(one.local_ports for one in guarantees(tenants, machine).values())
    return Machine(0, 0, machine.local_ports - guaranteed, machine.first_port + guaranteed).ports


def warnings(config: Config, machine: Machine) -> Iterator[str]:
    """What is promised to tenants and not there."""
    tenants = effective(config.tenant)
    promised = guarantees(tenants, machine).values()
    descriptors, memory_mib = sum(one.descriptors for one in promised), sum(one.memory_mib for one in promised)
    if descriptors > machine.descriptors:
        yield (
            f"tenants are guaranteed {descriptors} descriptors together, and there are {machine.descriptors}: "
            "raise RLIMIT_NOFILE (LimitNOFILE= of the unit) or lower guaranteed.descriptors"
        )
    if memory_mib > machine.memory_mib:
        yield (
            f"tenants are guaranteed {memory_mib} MiB together, and there are {machine.memory_mib}: "
            "raise proxy.memory_mib, if the machine has more, or lower guaranteed.memory_mib"
        )
    if len(tenants) > 1:
        yield from _port_warnings(tenants, machine)


def _port_warnings(tenants: list[Tenant], machine: Machine) -> Iterator[str]:
    """Of more than one tenant."""
    if not machine.local_ports:
        yield (
            "this kernel cannot divide local ports among tenants (Linux 6.3 can): one that connects to an address "
            "again and again can leave none for others there"
        )
        return
    wanted = sum(_wanted_ports(tenants, machine))
    if wanted >= machine.local_ports:
        yield (
            f"tenants are guaranteed {wanted} local ports together, and there are {machine.local_ports}: "
            "widen net.ipv4.ip_local_port_range or lower guaranteed.local_ports"
        )
    promised = guarantees(tenants, machine)
    few = [t.name for t in tenants if t.guaranteed.local_ports is None and promised[t.name].local_ports < FEW_PORTS]
    if few:
        least = min(few, key=lambda name: promised[name].local_ports)
        yield (
            f"{len(few)} of {len(tenants)} tenants are guaranteed fewer than {FEW_PORTS} local ports, {least} "
            f"{promised[least].local_ports}: a closed connection keeps its port for {TIME_WAIT_S} s, so it can count "
            "on no more connections a minute to one address; widen net.ipv4.ip_local_port_range or set "
            "guaranteed.local_ports"
        )
