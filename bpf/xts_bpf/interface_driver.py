"""The driver of an interface."""

from __future__ import annotations

from xts_bpf import _native

ffi, lib = _native.ffi, _native.lib


def driver_of(interface: str) -> str:
    """The name of an interface's driver; "": it does not say."""
    name = ffi.new("char[32]")
    return ffi.string(name).decode(errors="replace") if lib.xts_bpf_driver(interface.encode(), name) == 0 else ""
