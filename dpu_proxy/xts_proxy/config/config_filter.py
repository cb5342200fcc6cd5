"""The table of the configuration file about filters of datagram sockets: `[[filter]]`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct
from xts_messages.settings.toml_positions import Path as KeyPath

from xts_proxy.config.config_entries import of_programs, repeated
from xts_proxy.config.config_tenant import Name as TenantName
from xts_proxy.config.config_tls import File, Name
from xts_proxy.config.config_ulp import ProgramName


class Filter(Struct, frozen=True, kw_only=True):
    """[[filter]]: an eBPF program that drops datagrams on the device; hosts ask for it by name."""

    name: Name
    object: File
    program: ProgramName
    #: who may name it; empty: everybody
    tenants: list[TenantName] = msgspec.field(default_factory=list)


def together(filters: Sequence[Filter]) -> Iterator[tuple[KeyPath, str]]:
    """Mistakes in the combination of several values."""
    yield from repeated(("filter",), [one.name for one in filters])


def of_files(filters: Sequence[Filter]) -> Iterator[tuple[KeyPath, str]]:
    """Mistakes in the object files that are named. Needs no privilege."""
    if not filters:
        return
    from xts_bpf.parser import check_filter  # this imports libbpf, which most configurations do not need

    yield from of_programs(("filter",), filters, check_filter)
