"""The environment as it was when this package was imported: what the program does to it later changes nothing
(messages/native/environment.h)."""

from __future__ import annotations

import os

from ._native import ffi, lib


def setting(name: str) -> str | None:
    """A variable (XTS_…, XLIO_…, VMA_…) as it was then; None: it was not set, or this program is privileged."""
    found = lib.xts_environment(name.encode())
    return os.fsdecode(ffi.string(found)) if found else None
