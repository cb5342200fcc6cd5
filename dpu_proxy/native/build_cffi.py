"""Writes the C source of `xts_proxy._native` (cffi, API mode) to the path given as the only argument."""

from __future__ import annotations

import sys
from pathlib import Path

from cffi import FFI

CDEF = """
"""

PRELUDE = """
#include "worker.h"
"""


def main(output: str) -> None:
    """Generates the module's C source; compiling it is CMake's."""
    ffi = FFI()
    ffi.cdef(CDEF)
    ffi.set_source("xts_proxy._native", PRELUDE)
    ffi.emit_c_code(output)
    assert Path(output).exists()


if __name__ == "__main__":
    main(sys.argv[1])
