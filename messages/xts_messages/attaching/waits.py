"""What a socket waits for (native/attaching/waits.h): the counts of each end, for people and programs to read."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from xts_messages._native import ffi, lib

from .status_page import WAITS_BYTES, WAITS_OFFSET

#: By number - 1, for the end that measures. `post_credits` is, for the host, a wait to send; for the proxy, a wait to
#: pass on bytes from TCP while the application does not read.
HOST_REASONS = ("post_credits", "frame_credits", "application", "peer")
PROXY_REASONS = ("post_credits", "frame_credits", "tcp", "turn")
_DIRECTIONS = ("sending", "receiving")


@dataclass(frozen=True, slots=True)
class Wait:
    """One reason: how many waits for it have begun, and how long all of them have lasted, including the present one."""

    times: int
    ns: int


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of one end of a socket. `sending`, `receiving`: the reason of the present wait; None: no wait."""

    by_reason: Mapping[str, Wait]
    sending: str | None
    receiving: str | None

    @classmethod
    def read(cls, native: Any, reasons: tuple[str, ...], now_ns: int) -> Self:
        """From a `struct xts_waits` in private memory, whose content is not trusted."""
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
    """For the first `entries` entries of a status page, by index and number of the socket; only sockets with known
    waits."""
    now_ns = time.monotonic_ns() if now_ns is None else now_ns
    data = os.pread(fd, min(entries, int(lib.XTS_STATUS_ENTRIES)) * WAITS_BYTES, WAITS_OFFSET)
    rows = ffi.from_buffer("struct xts_status_waits[]", data[: len(data) // WAITS_BYTES * WAITS_BYTES])
    return {
        (i, int(row.xts_socket)): Waits.read(row.waits, HOST_REASONS, now_ns)
        for i, row in enumerate(rows)
        if row.magic == lib.XTS_WAITS_MAGIC
    }
