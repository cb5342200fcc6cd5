"""The environment as it was when this package was imported: what the program does to it later changes nothing
(messages/native/settings/environment.h)."""

from __future__ import annotations

import os

from ._native import ffi, lib

#: For XTS_ENDPOINT. (The declaration itself takes too long to import for programs.)
DEFAULT_ENDPOINT = "/run/xts/endpoint.sock"


def setting(name: str) -> str | None:
    """The value that a declared variable had then; None: it was not set, or is empty, or this program is privileged."""
    variable = lib.xts_environment_find(name.encode())
    if variable < 0:
        raise LookupError(f"{name} is not declared in xts_messages/settings/environment.py")
    found = lib.xts_environment(variable)
    return os.fsdecode(ffi.string(found)) if found else None
