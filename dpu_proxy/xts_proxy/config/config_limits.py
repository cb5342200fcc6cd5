"""What a tenant may take from the device: `[limits]` and `[tenant.limits]` of the configuration file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

#: Identifiers have 20 bits for the index, and 0 is never one (messages/PROTOCOL.md).
SOCKETS_MAX = (1 << 20) - 1
#: Post credits held by one peer never exceed 1 GiB (XTS_CREDITS_MAX).
WINDOW_KIB_MAX = 1 << 20
#: As many as a process can have (NR_OPEN of Linux is 1048576 unless raised).
DESCRIPTORS_MAX = 1 << 20

Connections = Annotated[int, Meta(ge=1, le=SOCKETS_MAX)]
Listeners = Annotated[int, Meta(ge=0, le=SOCKETS_MAX)]
Mib = Annotated[int, Meta(ge=1, le=1 << 20)]
WindowKib = Annotated[int, Meta(ge=1, le=WINDOW_KIB_MAX)]
Orphans = Annotated[int, Meta(ge=0, le=SOCKETS_MAX)]
Lookups = Annotated[int, Meta(ge=0, le=65536)]
Groups = Annotated[int, Meta(ge=0, le=1 << 20)]
Filters = Annotated[int, Meta(ge=0, le=1 << 24)]
TimeoutS = Annotated[int, Meta(ge=1, le=86400)]
Descriptors = Annotated[int, Meta(ge=1, le=DESCRIPTORS_MAX)]
PerUser = Annotated[int, Meta(ge=0, le=65536)]
Clients = Annotated[int, Meta(ge=1, le=65536)]


class Limits(Struct, frozen=True, kw_only=True):
    """[limits]: what a tenant may take from the device, unless its own table says otherwise."""

    connections: Connections = 16384
    listeners: Listeners = 1024
    spill_mib: Mib = 1024
    window_kib: WindowKib = 160
    window_max_kib: WindowKib = 2048
    ulp_mib: Mib = 256
    handshakes: Connections = 4096
    orphans: Orphans = 4096
    orphan_mib: Mib = 128
    orphan_timeout_s: TimeoutS = 205
    lookups: Lookups = 256
    groups: Groups = 4096
    filters: Filters = 65536
    descriptors: Descriptors = DESCRIPTORS_MAX
    clients: Clients = 64
    clients_per_user: PerUser = 0


class TenantLimits(Struct, frozen=True, kw_only=True):
    """[tenant.limits]: the limits that differ from [limits] for this tenant."""

    connections: Connections | None = None
    listeners: Listeners | None = None
    spill_mib: Mib | None = None
    window_kib: WindowKib | None = None
    window_max_kib: WindowKib | None = None
    ulp_mib: Mib | None = None
    handshakes: Connections | None = None
    orphans: Orphans | None = None
    orphan_mib: Mib | None = None
    orphan_timeout_s: TimeoutS | None = None
    lookups: Lookups | None = None
    groups: Groups | None = None
    filters: Filters | None = None
    descriptors: Descriptors | None = None
    clients: Clients | None = None
    clients_per_user: PerUser | None = None


def limits_together(limits: Limits) -> Iterator[tuple[str, str]]:
    """Mistakes in the combination of several limits: key and problem."""
    if limits.window_kib > limits.window_max_kib:
        yield "window_kib", f"{limits.window_kib} is above window_max_kib = {limits.window_max_kib}"
    if limits.window_max_kib > limits.spill_mib * 1024:
        problem = f"{limits.window_max_kib} KiB is more than spill_mib = {limits.spill_mib} allows in all"
        yield "window_max_kib", problem
