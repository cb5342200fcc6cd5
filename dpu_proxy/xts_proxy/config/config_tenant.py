"""The tables of the configuration file about tenants: `[[tenant]]`; config_limits.py has `[limits]`.

A tenant is who the device's resources are charged to. The proxy recognizes the tenant's processes by what it sees
itself: over shared memory, the user and the cgroup of a process; over an interface, the interface and its queues. Where
it shares a key with the agent of the host (`proxy.token_key`), it also uses the user and the cgroup that the agent
vouches for.
"""

from __future__ import annotations

import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from xts_messages.settings.toml_positions import Path as KeyPath
from xts_messages.wire.wire_table import TOKEN_CGROUP_BYTES_MAX

from xts_proxy.config.config_entries import repeated
from xts_proxy.config.config_limits import DESCRIPTORS_MAX, Limits, TenantLimits, limits_together
from xts_proxy.config.config_values import Queues

TENANTS_MAX = 1024
PACING_MBIT_S_MAX = 1_000_000
DSCP_MAX = 63
#: The tenant of processes that no table names. A table with this name sets its weight and limits.
DEFAULT = "default"
#: In a rule of the workers, stands for every tenant: XTS_TENANT_ANY of native/worker/worker.h.
ANY_TENANT = 0xFFFFFFFF

_A_NAME = 'a name of at most 63 letters, digits, ".", "_" and "-"'
_A_USER = "the name of a user, or a user number"
_A_CGROUP = 'the path of a cgroup such as "/system.slice/web.service"'
_AN_INTERFACE = "the name of a network interface (at most 15 characters)"
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,63}$", description=_A_NAME)]
User = Annotated[str, Meta(pattern=r"^[^:\s\x00]{1,64}$", description=_A_USER)]
Cgroup = Annotated[str, Meta(pattern=r"^/[^\x00\n]{0,4094}$", description=_A_CGROUP)]
Interface = Annotated[str, Meta(pattern=r"^[^/\s\x00]{0,15}$", description=_AN_INTERFACE)]


class Guarantees(Struct, frozen=True, kw_only=True):
    """[tenant.guaranteed]: what this tenant can have whatever others take. Without a number it is the tenant's share,
    by weight, of half of what the machine has."""

    descriptors: Annotated[int, Meta(ge=0, le=DESCRIPTORS_MAX)] | None = None
    memory_mib: Annotated[int, Meta(ge=0, le=1 << 24)] | None = None
    local_ports: Annotated[int, Meta(ge=0, le=65535)] | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Processes behind an interface: some of its queues, one user or any (None), one cgroup or any ("")."""

    queue_first: int
    queue_last: int
    uid: int | None
    cgroup: str


class Tenant(Struct, frozen=True, kw_only=True):
    """[[tenant]]: a process belongs to the first tenant that matches it."""

    name: Name
    users: list[User] = msgspec.field(default_factory=list)
    cgroups: list[Cgroup] = msgspec.field(default_factory=list)
    interface: Interface = ""
    queues: Queues | None = None
    weight: Annotated[int, Meta(ge=1, le=10_000)] = 100
    #: All its sockets together send no faster than this.
    pacing_mbit_s: Annotated[int, Meta(ge=1, le=PACING_MBIT_S_MAX)] | None = None
    #: All its packets have this mark (DSCP), whatever its programs set.
    dscp: Annotated[int, Meta(ge=0, le=DSCP_MAX)] | None = None
    limits: TenantLimits = TenantLimits()
    guaranteed: Guarantees = Guarantees()

    def has_process(self, uid: int, cgroup: str) -> bool:
        """Does a process of this user, in this cgroup, belong to this tenant?"""
        if self.users and uid not in map(user_id, self.users):
            return False
        if self.cgroups and not any(_within(cgroup, path) for path in self.cgroups):
            return False
        return not self.interface and self.queues is None and self._named_or_default(self.users or self.cgroups)

    def has_queue(self, interface: str, queue_id: int) -> bool:
        """Does this queue of an interface belong to this tenant?"""
        if self.interface and self.interface != interface:
            return False
        if self.queues is not None and queue_id not in self.queues:
            return False
        named = bool(self.interface) or self.queues is not None
        return not self.users and not self.cgroups and self._named_or_default(named)

    def _named_or_default(self, named: object) -> bool:
        return bool(named) or self.name == DEFAULT

    def identities(self, interface: str) -> Iterator[Identity]:
        """What a token must name for its process to belong to this tenant; nothing if the tenant is for another
        interface."""
        named = self.users or self.cgroups or self.interface or self.queues is not None
        if (self.interface and self.interface != interface) or not self._named_or_default(named):
            return
        for first, last in self.queues.pairs if self.queues is not None else ((0, Queues.highest),):
            for user in self.users or [""]:
                for cgroup in self.cgroups or [""]:
                    yield Identity(first, last, int(user) if user else None, cgroup)

    @property
    def pacing_bytes_s(self) -> int:
        """0: as fast as it can."""
        return (self.pacing_mbit_s or 0) * 125_000

    def limits_in_force(self, default: Limits) -> Limits:
        """The tenant's limits, with those of [limits] for the rest."""
        own = {f: v for f in self.limits.__struct_fields__ if (v := getattr(self.limits, f)) is not None}
        return msgspec.structs.replace(default, **own)


def user_id(user: str) -> int:
    """The number of a user, given by name or number; -1: no such user."""
    if user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return -1


def _within(cgroup: str, path: str) -> bool:
    return cgroup == path or cgroup.startswith(path.rstrip("/") + "/")


def effective(tenants: list[Tenant]) -> list[Tenant]:
    """The tenants in the order in which they are searched: `default` comes last, whether the file has it or not."""
    named = [tenant for tenant in tenants if tenant.name != DEFAULT]
    default = next((tenant for tenant in tenants if tenant.name == DEFAULT), Tenant(name=DEFAULT))
    return [*named, default]


def together(tenants: list[Tenant], limits: Limits, queue: str, tokens: bool) -> Iterator[tuple[KeyPath, str]]:
    """Mistakes in the combination of several values."""
    names = [tenant.name for tenant in tenants]
    if len(names) > TENANTS_MAX:
        yield ("tenant",), f"{len(names)} tenants; at most {TENANTS_MAX} are allowed"
    yield from repeated(("tenant",), names)
    for i, tenant in enumerate(tenants):
        yield from _who(i, tenant, queue, tokens)
        for key, problem in limits_together(tenant.limits_in_force(limits)):
            yield ("tenant", i, "limits", key), problem


def _who(i: int, tenant: Tenant, queue: str, tokens: bool) -> Iterator[tuple[KeyPath, str]]:
    over_interface: dict[str, object] = {"interface": tenant.interface, "queues": tenant.queues is not None}
    over = queue if queue != "shm" else "afxdp"
    of: dict[str, dict[str, object]] = {
        "shm": {"users": tenant.users, "cgroups": tenant.cgroups},
        over: over_interface,
    }
    for kind, keys in of.items():
        for key, value in keys.items():
            if value and tenant.name == DEFAULT:
                yield ("tenant", i, key), f"{DEFAULT} is for processes of no other tenant; expected nothing here"
            elif value and kind == "shm" != queue:
                if not tokens:
                    yield ("tenant", i, key), "cannot be known over an interface, unless the agent says so (token_key)"
            elif value and kind != queue:
                yield ("tenant", i, key), f'means queue = "{kind}", and proxy.queue is "{queue}"'
    if tenant.name != DEFAULT and not any(value for keys in of.values() for value in keys.values()):
        yield ("tenant", i, "name"), f"nobody belongs to {tenant.name}; expected {' or '.join(of[queue])}"
    yield from _processes(i, tenant, queue)


def _processes(i: int, tenant: Tenant, queue: str) -> Iterator[tuple[KeyPath, str]]:
    for j, cgroup in enumerate(tenant.cgroups):
        if queue != "shm" and len(cgroup.encode()) > TOKEN_CGROUP_BYTES_MAX:
            yield ("tenant", i, "cgroups", j), f"tokens have {TOKEN_CGROUP_BYTES_MAX} bytes of it: name one further up"
    for j, user in enumerate(tenant.users):
        if queue != "shm":
            if not user.isdecimal() or int(user) >= 1 << 32:
                problem = f"{user} is not a number, and only the host knows the names of its users"
                yield ("tenant", i, "users", j), problem
        elif user_id(user) < 0:
            yield ("tenant", i, "users", j), f"this machine has no user {user}"
