"""libxdp and libbpf (cffi, API mode), for the packages above this one: `ffi` and `lib`; and FOLDER, where the compiled
programs are."""

from __future__ import annotations

from pathlib import Path

from xts_bpf import _native
from xts_bpf._native import ffi, lib

__all__ = ["FOLDER", "ffi", "lib"]

FOLDER = Path(_native.__file__).parent
