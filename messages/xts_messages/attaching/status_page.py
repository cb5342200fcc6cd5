"""Status pages (native/attaching/status.h): made by an endpoint, written by the process, read by every holder of a
duplicate.

What a process wrote is read once into private memory. Every field is either checked, or a number for which any value is
legal.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from xts_messages._native import ffi, lib
from xts_messages.terminal.printable import printable

_HEAD_BYTES = int(ffi.sizeof("struct xts_status_page"))
_ENTRY_BYTES = int(ffi.sizeof("struct xts_status_entry"))
_FIGURES_OFFSET = _HEAD_BYTES + int(lib.XTS_STATUS_ENTRIES) * _ENTRY_BYTES
_FIGURES_BYTES = int(ffi.sizeof("struct xts_status_figures"))
_CLOCK_OFFSET = _FIGURES_OFFSET + _FIGURES_BYTES
_CLOCK_BYTES = int(ffi.sizeof("struct xts_status_clock"))
WAITS_OFFSET = _CLOCK_OFFSET + _CLOCK_BYTES
WAITS_BYTES = int(ffi.sizeof("struct xts_status_waits"))
_POLLING_OFFSET = WAITS_OFFSET + int(lib.XTS_STATUS_ENTRIES) * WAITS_BYTES
_POLLING_BYTES = int(ffi.sizeof("struct xts_status_polling"))
_FILTERS_OFFSET = _POLLING_OFFSET + _POLLING_BYTES
_FILTER_BYTES = int(ffi.sizeof("struct xts_status_filter"))
_F_ADD_SEALS = 1033
_SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
_U64 = (1 << 64) - 1


def create_status_page(link_state: int = 0) -> int:
    """An empty status page: a sealed memfd."""
    fd = os.memfd_create("xts-status", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, _FILTERS_OFFSET + int(lib.XTS_STATUS_ENTRIES) * _FILTER_BYTES)
    head = (lib.XTS_STATUS_MAGIC, lib.XTS_STATUS_VERSION, lib.XTS_STATUS_ENTRIES, 0, link_state)
    os.pwrite(fd, struct.pack("=IIIII", *head), 0)
    fcntl.fcntl(fd, _F_ADD_SEALS, _SEALS)
    return fd


def read_status_page(fd: int) -> bytes:
    """A copy of the used part of a status page that another process writes, limited to the legal size."""
    with mmap.mmap(fd, _FIGURES_OFFSET, prot=mmap.PROT_READ) as page:
        magic, version, _, used = struct.unpack_from("=IIII", page)
        if magic != lib.XTS_STATUS_MAGIC or version != lib.XTS_STATUS_VERSION:
            raise OSError(errno.EPROTO, "not a status page of this version")
        return page[: _HEAD_BYTES + min(used, int(lib.XTS_STATUS_ENTRIES)) * _ENTRY_BYTES]


@dataclass(frozen=True, slots=True)
class Figures:
    """Totals of a process: `struct xts_status_figures`. `sockets`: by reason, [0] offloaded; None: not counted."""

    stack: int
    program: int
    closed: bool
    sent_bytes: int
    received_bytes: int
    user_us: int
    system_us: int
    sockets: tuple[int, ...] | None

    @classmethod
    def read(cls, native: Any) -> Self:
        """From the struct, which must be in private memory."""
        return cls(
            stack=int(native.stack),
            program=int(native.program),
            closed=bool(native.closed),
            sent_bytes=int(native.sent_bytes),
            received_bytes=int(native.received_bytes),
            user_us=int(native.user_us),
            system_us=int(native.system_us),
            sockets=tuple(native.sockets) if native.counted else None,
        )

    @classmethod
    def sum(cls, stacks: Iterable[Self]) -> Self:
        """The sum for the stacks of one process (at least one): bytes are added; everything else is for the whole
        process."""
        every = list(stacks)
        counted = [figures.sockets for figures in every if figures.sockets is not None]
        return cls(
            stack=every[0].stack,
            program=every[0].program,
            closed=all(figures.closed for figures in every),
            sent_bytes=sum(figures.sent_bytes for figures in every) & _U64,
            received_bytes=sum(figures.received_bytes for figures in every) & _U64,
            user_us=max(figures.user_us for figures in every),
            system_us=max(figures.system_us for figures in every),
            sockets=tuple(map(max, zip(*counted, strict=True))) if counted else None,
        )

    def write(self, native: Any) -> None:
        """Writes them into the struct."""
        native.magic = lib.XTS_FIGURES_MAGIC
        native.stack, native.program, native.closed = self.stack, self.program, self.closed
        native.sent_bytes, native.received_bytes = self.sent_bytes, self.received_bytes
        native.user_us, native.system_us = self.user_us, self.system_us
        native.counted = self.sockets is not None
        native.sockets = self.sockets or ()


def read_figures(fd: int) -> Figures | None:
    """The figures of a status page; None: its process has written none."""
    data = os.pread(fd, _FIGURES_BYTES, _FIGURES_OFFSET)
    if len(data) != _FIGURES_BYTES:
        return None
    native = ffi.from_buffer("struct xts_status_figures *", data)
    return Figures.read(native) if native.magic == lib.XTS_FIGURES_MAGIC else None


@dataclass(frozen=True, slots=True)
class Clock:
    """The device's clock, as a process has measured it: `struct xts_status_clock`. It is `ahead_ns` ahead of this
    host's clock, with an error of `error_ns` in either direction, at `measured_ns` of CLOCK_MONOTONIC. `follows_ns`:
    how far the device's clock may be from its time source (PTP, NTP), according to its kernel; None: it has none."""

    ahead_ns: int
    error_ns: int
    measured_ns: int
    follows_ns: int | None


def read_clock(fd: int) -> Clock | None:
    """The clock in a status page; None: its process has measured none."""
    data = os.pread(fd, _CLOCK_BYTES, _CLOCK_OFFSET)
    if len(data) != _CLOCK_BYTES:
        return None
    native = ffi.from_buffer("struct xts_status_clock *", data)
    if native.magic != lib.XTS_CLOCK_MAGIC:
        return None
    return Clock(
        ahead_ns=int(native.ahead_ns),
        error_ns=int(native.error_ns),
        measured_ns=int(native.measured_ns),
        follows_ns=None if native.follows_ns == _U64 else int(native.follows_ns),
    )


@dataclass(frozen=True, slots=True)
class Polling:
    """What spinning has cost a process, and how often it failed: `struct xts_status_polling`. `spin_ns`: processor time
    of all spins, and of waits that poll instead of sleeping (XTS_POLLING=always)."""

    spin_misses: int
    spin_ns: int


def read_polling(fd: int) -> Polling | None:
    """None: the process has written nothing here, because its library is older."""
    data = os.pread(fd, _POLLING_BYTES, _POLLING_OFFSET)
    if len(data) != _POLLING_BYTES:
        return None
    native = ffi.from_buffer("struct xts_status_polling *", data)
    if native.magic != lib.XTS_POLLING_MAGIC:
        return None
    return Polling(int(native.spin_misses), int(native.spin_ns))


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter of a datagram socket: `struct xts_status_filter`. `name`: the operator's filter that the program has
    named; None: it is the program's own, with `instructions` instructions."""

    name: str | None
    instructions: int


def read_filters(fd: int, entries: int) -> dict[tuple[int, int], Filter]:
    """The filters of the first `entries` entries of a status page, by index and number of the socket, for sockets that
    have one."""
    data = os.pread(fd, min(entries, int(lib.XTS_STATUS_ENTRIES)) * _FILTER_BYTES, _FILTERS_OFFSET)
    rows = ffi.from_buffer("struct xts_status_filter[]", data[: len(data) // _FILTER_BYTES * _FILTER_BYTES])
    return {
        (i, int(row.xts_socket)): Filter(
            None if row.instructions else printable(ffi.string(row.name).decode(errors="replace")),
            int(row.instructions),
        )
        for i, row in enumerate(rows)
        if row.magic == lib.XTS_FILTERS_MAGIC
    }
