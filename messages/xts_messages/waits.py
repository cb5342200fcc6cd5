"""Why a socket waits (native/waits.h): what each end has counted, for people and programs to read."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from xts_messages._native import ffi, lib

from .status_page import WAITS_BYTES, WAITS_OFFSET

#: By number - 1, of the end that measures. `post_credits` is for the host a wait to send; for the proxy it is one to
#: pass on what has come, as the application does not read.
HOST_REASONS = ("post_credits", "frame_credits", "application", "peer")
PROXY_REASONS = ("post_credits", "frame_credits", "tcp", "turn")
_DIRECTIONS = ("sending", "receiving")


@dataclass(frozen=True, slots=True)
class Wait:
    """One reason: how often a wait for it has begun, and how long all of them have lasted, that of now included."""

    times: int
    ns: int


@dataclass(frozen=True, slots=True)
class Waits:
    """Of one end of a socket. `sending`, `receiving`: the reason it waits for now; None: it does not wait."""

    by_reason: Mapping[str, Wait]
    sending: str | None
    receiving: str | None

    @classmethod
    def read(cls, native: Any, reasons: tuple[str, ...], now_ns: int) -> Self:
        """From a `struct xts_waits` in private memory, which may say anything."""
        ns, now = list(native.ns), dict.fromkeys(_DIRECTIONS, "")
        for direction, number, since_ns in zip(_DIRECTIONS, native.now, native.since_ns, strict=True):
            if 0 < number <= len(reasons):
                now[direction] = reasons[number - 1]
                ns[number - 1] += max(0, now_ns - since_ns)
        return cls(
            {name: Wait(int(native.times[i]), int(ns[i])) for i, name in enumerate(reasons)},
            now["sending"] or None,
            now["receiving"] or None,
        )


def read_waits(fd: int, entries: int, now_ns: int | None = None) -> dict[tuple[int, int], Waits]:
    """Of the first so many entries of a status page, by index and number of the socket; those that are known."""
    now_ns = time.monotonic_ns() if now_ns is None else now_ns
    data = os.pread(fd, min(entries, int(lib.XTS_STATUS_ENTRIES)) * WAITS_BYTES, WAITS_OFFSET)
    rows = ffi.from_buffer("struct xts_status_waits[]", data[: len(data) // WAITS_BYTES * WAITS_BYTES])
    return {
        (i, int(row.xts_socket)): Waits.read(row.waits, HOST_REASONS, now_ns)
        for i, row in enumerate(rows)
        if row.magic == lib.XTS_WAITS_MAGIC
    }
