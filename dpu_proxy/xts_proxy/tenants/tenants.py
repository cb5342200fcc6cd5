"""Tenants in Python: which one a channel belongs to, and its account in the workers (native/tenants/tenant.h).

A tenant of the configuration has one native account for the life of the process, found by its name: a reload changes
limits, and connections of a tenant that the file no longer names stay charged to its account.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from xts_proxy._native import ffi, lib
from xts_proxy.config.config import Config
from xts_proxy.config.config_limits import Limits
from xts_proxy.config.config_tenant import DEFAULT, Identity, Tenant, effective
from xts_proxy.tenants.guarantees import Machine, common_ports, guarantees, this_machine

#: enum xts_resource: number -> name, as in limits of the file and in figures.
RESOURCES = {
    number: name.removeprefix("XTS_USE_").lower() for number, name in ffi.typeof("enum xts_resource").elements.items()
}


#: The same for enum xts_pool.
POOLS = {
    number: name.removeprefix("XTS_POOL_").lower() for number, name in ffi.typeof("enum xts_pool").elements.items()
}
UNLIMITED = (1 << 64) - 1


def native_limits(limits: Limits) -> dict[str, int]:
    """The limits by the names of RESOURCES. Sockets that belong to no channel for a while have the limits of those that
    do."""
    return {
        "connections": limits.connections,
        "listeners": limits.listeners,
        "spill_bytes": limits.spill_mib << 20,
        "ulp_bytes": limits.ulp_mib << 20,
        "kept": limits.connections,
        "kept_bytes": limits.spill_mib << 20,
        "orphans": limits.orphans,
        "orphan_bytes": limits.orphan_mib << 20,
        "names": limits.listeners,
        "descriptors": limits.descriptors,
        "socket_bytes": UNLIMITED,
        "handshakes": limits.handshakes,
        "cpu_ns": UNLIMITED,
        "lookups": limits.lookups,
        "groups": limits.groups,
        "filters": limits.filters,
    }


@dataclass(slots=True, eq=False)
class Account:
    """A tenant as the workers know it."""

    name: str
    number: int
    native: Any  # struct xts_tenant *, released when Python forgets it

    def figures(self) -> dict[str, dict[str, int]]:
        """What the tenant uses now, and how often it was refused each resource, by the names of RESOURCES and POOLS."""
        out = ffi.new("struct xts_tenant_stats *")
        lib.xts_tenant_stats(self.native, out)
        return {
            "used": {name: int(out.used[i]) for i, name in RESOURCES.items()},
            "refused": {name: int(out.refused[i]) for i, name in RESOURCES.items()},
            "pool_used": {name: int(out.pool_used[i]) for i, name in POOLS.items()},
            "pool_guaranteed": {name: int(out.pool_guaranteed[i]) for i, name in POOLS.items()}
            | {"local_ports": int(out.ports_guaranteed)},
            "pool_refused": {name: int(out.pool_refused[i]) for i, name in POOLS.items()}
            | {"local_ports": int(out.ports_refused)},
        }


class Tenants:
    """The current table of tenants, their accounts, and the local ports that no tenant has for its own."""

    def __init__(self, config: Config, machine: Machine | None = None, *, promises: bool = True) -> None:
        """`machine`: the resources; None: those that this process finds. `promises`: guarantees are kept here. The
        supervisor's accounts promise nothing: the workers' process begins with a copy of them, and would keep back for
        them what nobody can use."""
        self.accounts: dict[str, Account] = {}
        self._promises = promises
        self.configure(config, machine)

    def configure(self, config: Config, machine: Machine | None = None) -> None:
        """Applies a (reloaded) configuration: open channels keep their tenant."""
        machine = machine or this_machine(config)
        lib.xts_pools_configure([machine.descriptors, machine.memory_mib << 20])
        self._limits = config.limits
        self._table = effective(config.tenant)
        promised = guarantees(self._table, machine)
        self.common_ports = common_ports(self._table, machine)
        if not self._promises:
            promised = {name: replace(one, descriptors=0, memory_mib=0) for name, one in promised.items()}
        for name, account in self.accounts.items():
            if name not in promised:  # what is left of it stays charged to it, but it is guaranteed nothing
                lib.xts_tenant_configure(
                    account.native, _native_config(Tenant(name=name), account.number, config.limits)
                )
        for tenant in self._table:
            native = _native_config(tenant, self.number(tenant.name), config.limits)
            native.guaranteed = [promised[tenant.name].descriptors, promised[tenant.name].memory_mib << 20]
            native.port_first, native.port_last = promised[tenant.name].ports
            if tenant.name in self.accounts:
                lib.xts_tenant_configure(self.accounts[tenant.name].native, native)
                continue
            made = ffi.gc(lib.xts_tenant_new(native), lib.xts_tenant_release)
            if made == ffi.NULL:
                raise MemoryError
            self.accounts[tenant.name] = Account(tenant.name, len(self.accounts), made)

    def limits(self, name: str) -> Limits:
        """The current limits of a tenant; the general ones for a tenant that is no longer named."""
        return next((t.limits_in_force(self._limits) for t in self._table if t.name == name), self._limits)

    def number(self, name: str) -> int:
        """The number of the account with this name, which exists or will be made next."""
        account = self.accounts.get(name)
        return account.number if account else len(self.accounts)

    def numbers(self, new: Config | None = None) -> dict[str, int]:
        """The numbers by which rules refer to tenants, including those that `new` will make."""
        numbers = {name: account.number for name, account in self.accounts.items()}
        for tenant in effective(new.tenant) if new else []:
            numbers.setdefault(tenant.name, len(numbers))
        return numbers

    def of_process(self, uid: int, cgroup: str) -> Account:
        """The tenant of a process that attaches (shm)."""
        return self.accounts[next(t.name for t in self._table if t.has_process(uid, cgroup))]

    def of_queue(self, interface: str, queue_id: int) -> Account:
        """The tenant of a queue of an interface (afxdp)."""
        return self.accounts[next(t.name for t in self._table if t.has_queue(interface, queue_id))]

    def identity_rules(self, interface: str) -> list[tuple[Identity, Account]]:
        """The rules that map a process named by a token to its tenant (afxdp); the first one that matches decides."""
        return [(found, self.accounts[t.name]) for t in self._table for found in t.identities(interface)]

    @property
    def default(self) -> Account:
        """The tenant of processes that no table names; it always exists."""
        return self.accounts[DEFAULT]


def _native_config(tenant: Tenant, number: int, default: Limits) -> Any:
    limits = tenant.limits_in_force(default)
    native = ffi.new("struct xts_tenant_config *")
    native.name, native.id, native.weight = tenant.name.encode(), number, tenant.weight
    native.window_bytes, native.window_bytes_max = limits.window_kib << 10, limits.window_max_kib << 10
    values = native_limits(limits)
    native.pacing_bytes_s = tenant.pacing_bytes_s
    native.marks, native.dscp = tenant.dscp is not None, tenant.dscp or 0
    native.orphan_timeout_ms = limits.orphan_timeout_s * 1000
    for index, name in RESOURCES.items():
        native.limit[index] = values[name]
    return native
