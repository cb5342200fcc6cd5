"""What the operator has configured for pushed protocols, for the workers: struct xts_ulp_config (native/ulp/config.h).

A configuration is made whole for each start and reload and never changed; connections keep theirs until they close.
Parser programs are loaded with the rights of the start and kept from then on: a reload can name them again, but it
loads others only if the proxy still may. A program whose object file has changed needs a restart.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from xts_proxy import ulp_tls
from xts_proxy._native import ffi, lib
from xts_proxy.config import Config
from xts_proxy.config_ulp import Parser, Ulp
from xts_proxy.toml_positions import dotted


class Protocols:
    """Makes configurations; holds the programs. A context manager."""

    def __init__(self) -> None:
        self._programs: dict[tuple[str, str], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the programs; connections and workers have descriptors of their own."""
        while self._programs:
            os.close(self._programs.popitem()[1])

    def build(self, config: Config) -> Any:
        """struct xts_ulp_config *, released when Python forgets it. OSError: something could not be had, and why."""
        native = ffi.gc(lib.xts_ulp_config_new(_limits(config.ulp)), lib.xts_ulp_config_release)
        if native == ffi.NULL:
            raise MemoryError
        for path, problem in ulp_tls.add(native, config.tls):
            raise OSError(errno.EINVAL, f"{dotted(path)}: {problem}")
        ulp_tls.add_of_this_machine(native, config.tls)
        for parser in config.ulp.parser:
            self._add(native, parser)
        return native

    def _add(self, native: Any, parser: Parser) -> None:
        key = (parser.object, parser.program)
        if key not in self._programs:
            from xts_bpf.parser import load_parser  # libbpf, which most do without

            try:
                self._programs[key] = load_parser(Path(parser.object), parser.program)
            except PermissionError as error:
                hint = "loading needs CAP_BPF and CAP_NET_ADMIN, which the proxy has, if at all, while it starts"
                raise OSError(error.errno, f"parser {parser.name}: {error.strerror}; {hint}") from error
            except OSError as error:
                raise OSError(error.errno, f"parser {parser.name}: {error.strerror}") from error
        descriptor = os.dup(self._programs[key])
        result = lib.xts_ulp_config_add_parser(native, parser.name.encode(), descriptor)
        if result:
            os.close(descriptor)
            raise OSError(-result, f"parser {parser.name}: {os.strerror(-result)}")


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
