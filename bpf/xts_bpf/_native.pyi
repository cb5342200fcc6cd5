"""libxdp and libbpf (cffi, API mode): what bpf/build_cffi.py declares."""

from typing import Any

ffi: Any
lib: Any
