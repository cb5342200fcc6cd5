"""The configuration of pushed protocols for the workers: struct xts_ulp_config (native/ulp/config.h).

A new configuration is made for each start and reload, and never changes; connections keep theirs until they close. It
is made in the workers' process (`build`), from what the supervisor has read and loaded (`Protocols.gather`).

Parser programs are loaded with the initial privileges and kept from then on. A reload can name them again, but can load
others only if the proxy still has the privilege. A program whose object file has changed needs a restart.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from xts_messages.settings.toml_positions import dotted
from xts_messages.wire.ulps import BY_NAME

from xts_proxy._native import ffi, lib
from xts_proxy.config.config import Config
from xts_proxy.config.config_filter import Filter
from xts_proxy.config.config_tenant import ANY_TENANT
from xts_proxy.config.config_ulp import Parser, Ulp
from xts_proxy.tenants.guarantees import Machine, this_machine
from xts_proxy.tls import tls_files, ulp_tls
from xts_proxy.tls.keys import Key
from xts_proxy.tls.tls_files import TlsFiles
from xts_proxy.workers.name_servers import Device, of_device
from xts_proxy.workers.workers import allowed_congestion_controls


@dataclass(frozen=True, slots=True)
class Material:
    """What a configuration needs in addition to its text."""

    tls: TlsFiles
    machine: Machine  # for tenants
    congestion_controls: bytes = b""  # that hosts may choose
    device: Device = field(default_factory=Device)  # its name servers
    programs: list[int] = field(default_factory=list)  # descriptors of parsers, then of filters, as configured


class Protocols:
    """Reads and loads what a configuration names, and holds the programs. A context manager."""

    def __init__(self, load_key: Callable[[int], Key] | None = None) -> None:
        """load_key: see tls_files.gather()."""
        self._load_key = load_key
        self._programs: dict[tuple[str, str, str], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the programs; connections and workers have descriptors of their own."""
        while self._programs:
            os.close(self._programs.popitem()[1])

    def gather(self, config: Config, tls: TlsFiles | None = None) -> Material:
        """`tls`: what is in its files, if it was read already. OSError: a program could not be loaded, and why."""
        programs = [self._program("parser", parser) for parser in config.ulp.parser]
        programs += [self._program("filter", one) for one in config.filter]
        tls = tls or tls_files.gather(config.tls, self._load_key)
        return Material(tls, this_machine(config), allowed_congestion_controls(), of_device(config), programs)

    def _program(self, kind: Literal["parser", "filter"], wanted: Parser | Filter) -> int:
        key = (kind, wanted.object, wanted.program)
        if key not in self._programs:
            from xts_bpf import parser  # this imports libbpf, which most configurations do not need

            load = parser.load_parser if kind == "parser" else parser.load_filter
            try:
                self._programs[key] = load(Path(wanted.object), wanted.program)
            except PermissionError as error:
                hint = "loading needs CAP_BPF and CAP_NET_ADMIN, which the proxy has, if at all, while it starts"
                raise OSError(error.errno, f"{kind} {wanted.name}: {error.strerror}; {hint}") from error
            except OSError as error:
                raise OSError(error.errno, f"{kind} {wanted.name}: {error.strerror}") from error
        return self._programs[key]


def build(config: Config, material: Material) -> tuple[Any, list[tuple[int, str]]]:
    """Makes a struct xts_ulp_config *, released when Python frees it, and lines to log, with their levels. OSError:
    something failed, and why."""
    native = ffi.gc(lib.xts_ulp_config_new(_limits(config.ulp)), lib.xts_ulp_config_release)
    if native == ffi.NULL:
        raise MemoryError
    for path, problem in ulp_tls.add(native, config.tls, material.tls):
        raise OSError(errno.EINVAL, f"{dotted(path)}: {problem}")
    notes = list(ulp_tls.add_of_this_machine(native, config.tls, material.tls))
    for name in config.ulp.optional:
        lib.xts_ulp_config_offer(native, BY_NAME[name.upper()].number)
    _add_programs(native, config, material)
    return native, notes


def look_at_machine(config: Config) -> None:
    """Has the C library remember what takes system calls that are forbidden later, for processes that are made of this
    one."""
    native = ffi.gc(lib.xts_ulp_config_new(_limits(config.ulp)), lib.xts_ulp_config_release)
    if native != ffi.NULL:
        lib.xts_tls_probe_kernel(native, ffi.new("char[]", 256), 256)


def _add_programs(native: Any, config: Config, material: Material) -> None:
    """Adds the programs; the C configuration gets its own descriptors."""
    parsers = len(config.ulp.parser)
    for parser, program in zip(config.ulp.parser, material.programs[:parsers], strict=True):
        descriptor = os.dup(program)
        if result := lib.xts_ulp_config_add_parser(native, parser.name.encode(), descriptor):
            os.close(descriptor)
            raise OSError(-result, f"parser {parser.name}: {os.strerror(-result)}")
    for one, program in zip(config.filter, material.programs[parsers:], strict=True):
        for tenant in [material.tls.numbers[name] for name in one.tenants] or [ANY_TENANT]:
            descriptor = os.dup(program)
            if result := lib.xts_ulp_config_add_filter(native, one.name.encode(), tenant, descriptor):
                os.close(descriptor)
                raise OSError(-result, f"filter {one.name}: {os.strerror(-result)}")


def filter_totals() -> dict[str, dict[str, int]]:
    """struct xts_filter_totals since the process started, by the name of the filter."""
    count = int(lib.xts_filter_totals(ffi.NULL, 0))
    rows = ffi.new("struct xts_filter_totals[]", count)
    found = min(count, int(lib.xts_filter_totals(rows, count)))
    return {
        ffi.string(row.name).decode(errors="replace"): {"sockets": int(row.sockets), "dropped": int(row.dropped)}
        for row in rows[0:found]
    }


def _limits(ulp: Ulp) -> Any:
    return ffi.new(
        "struct xts_ulp_limits *",
        {
            "handshake_timeout_ms": ulp.handshake_timeout_ms,
            "first_byte_timeout_ms": ulp.first_byte_timeout_ms,
            "pdu_bytes_max": ulp.pdu_mib_max << 20,
            "buffered_bytes_max": ulp.buffered_mib_max << 20,
        },
    )
