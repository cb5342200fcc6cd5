"""The checks of `xts doctor`: a file each area, each with `checks()`, which never raises and needs no
privilege.

A check looks and reports; it changes nothing. Level "fail" is only for faults that keep offloaded sockets from working
here; faults that make them slower, or remove an option, are "warn".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Check:
    """One item: what was found, and what to do about it ("" for nothing)."""

    name: str
    level: Literal["ok", "warn", "fail"]
    found: str
    mend: str = ""


def read_text(path: str) -> str | None:
    """The content of a small file of /proc or /sys; None if it cannot be read."""
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def capabilities() -> int:
    """The effective capabilities of this process, as bits."""
    for line in (read_text("/proc/self/status") or "").splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0
