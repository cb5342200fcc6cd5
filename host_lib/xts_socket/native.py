"""The host library in C (cffi, API mode; host_lib/native), for the packages above this one: `ffi` and `lib`; and
FOLDER, where libxts.so and libxts-preload.so are."""

from __future__ import annotations

from pathlib import Path

from xts_socket import _native
from xts_socket._native import ffi, lib

__all__ = ["FOLDER", "ffi", "lib"]

FOLDER = Path(_native.__file__ or "").parent
