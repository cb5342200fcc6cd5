"""The worker in C (cffi, API mode; dpu_proxy/native), for the packages above this one: `ffi` and `lib`."""

from __future__ import annotations

from xts_proxy._native import ffi, lib

__all__ = ["ffi", "lib"]
