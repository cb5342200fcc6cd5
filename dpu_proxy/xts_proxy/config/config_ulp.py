"""The table of the configuration file about pushed protocols: `[ulp]`, `[[ulp.parser]]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from xts_messages.settings.toml_positions import Path as KeyPath

from xts_proxy.config.config_entries import of_programs, repeated
from xts_proxy.config.config_tls import File, Name

_A_PROGRAM = "the name of a program in the object, as in C"
ProgramName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", description=_A_PROGRAM)]


class Parser(Struct, frozen=True, kw_only=True):
    """[[ulp.parser]]: an eBPF program that finds PDUs; hosts ask for it by name."""

    name: Name
    object: File
    program: ProgramName


class Ulp(Struct, frozen=True, kw_only=True):
    """[ulp]: limits for the protocols of one connection, and which of the optional protocols are on."""

    handshake_timeout_ms: Annotated[int, Meta(ge=1, le=3_600_000)] = 10_000
    first_byte_timeout_ms: Annotated[int, Meta(ge=1, le=3_600_000)] = 2000
    pdu_mib_max: Annotated[int, Meta(ge=1, le=4095)] = 64
    buffered_mib_max: Annotated[int, Meta(ge=1, le=1024)] = 4
    #: The protocols that xts_messages.wire.ulps marks `optional`; a test checks that they are the same.
    optional: list[Literal["grpc", "mpa"]] = msgspec.field(default_factory=list)
    parser: list[Parser] = msgspec.field(default_factory=list)


def together(ulp: Ulp) -> Iterator[tuple[KeyPath, str]]:
    """Mistakes in the combination of several values."""
    if ulp.first_byte_timeout_ms > ulp.handshake_timeout_ms:
        text = f"{ulp.first_byte_timeout_ms} is longer than the whole handshake, handshake_timeout_ms = "
        yield ("ulp", "first_byte_timeout_ms"), f"{text}{ulp.handshake_timeout_ms}"
    yield from repeated(("ulp", "parser"), [parser.name for parser in ulp.parser])


def of_files(ulp: Ulp) -> Iterator[tuple[KeyPath, str]]:
    """Mistakes in the object files that are named. Needs no privilege."""
    if not ulp.parser:
        return
    from xts_bpf.parser import check_parser  # this imports libbpf, which most configurations do not need

    yield from of_programs(("ulp", "parser"), ulp.parser, check_parser)
