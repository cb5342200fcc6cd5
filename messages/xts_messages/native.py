"""The native message core (cffi, API mode; messages/native) for the packages above this one: `ffi` and `lib`."""

from __future__ import annotations

from xts_messages._native import ffi, lib

__all__ = ["ffi", "lib"]
