"""The sans-I/O core (wire.h, credit.h, link/*.c) as a library of plain functions, for tests that play both ends of it.

It is compiled from the headers themselves: inline functions become ordinary ones, and what cffi is told is cut out of
the same text, so that a test never has a declaration of its own that could be wrong.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from cffi import FFI

TOP = Path(__file__).resolve().parents[2]
NATIVE = TOP / "messages" / "native"
_PROXY = TOP / "dpu_proxy" / "native"
#: For a file of the proxy that is compiled by itself.
PROXY_INCLUDES = (f"-I{NATIVE}", f"-I{_PROXY}")
_HEADERS = ("wire/wire.h", "link/credit.h", "link/link.h")

#: Headers of the C library come first, so that only our own inline functions lose their `static inline`.
_SHIM = """
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#define static
#define inline
""" + "".join(f'#include "{name}"\n' for name in _HEADERS)


def declarations(text: str) -> str:
    """What cffi needs of a header: constants, enums, structs and functions, inline ones included."""
    constants = re.findall(r"^#define XTS_\w+ +(?:0x)?[0-9A-Fa-f]+u\b", text, re.M)
    types = re.findall(r"^(?:struct|enum) xts_(?!wire_)\w+ \{.*?^\};", text, re.M | re.S)
    inline = re.findall(r"^static inline ([^{;]*?\))(?:\s*\{)", text, re.M)
    functions = re.findall(r"^(?:\w+ )+\*?xts_\w+\([^{]*?\);", text, re.M)
    return "\n".join([*(c[:-1] for c in constants), *types, *(f"{f};" for f in inline), *functions])


def compiler() -> str:
    """The C compiler of the tests."""
    return os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or "cc"


@lru_cache
def load() -> tuple[Any, Any]:
    """Compiles the core once a test session; returns (ffi, library)."""
    counted = os.environ.get("CORE_COVERAGE")  # where tests/coverage wants it, with counters
    directory = Path(tempfile.mkdtemp(prefix="xts-core-", dir=counted))
    if not counted:
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    shim, library = directory / "shim.c", directory / "core.so"
    shim.write_text(_SHIM)
    subprocess.run(
        [
            compiler(),
            "-std=gnu11",
            *(["-O0", "--coverage"] if counted else ["-O1"]),
            "-g",
            "-shared",
            "-fPIC",
            "-D_GNU_SOURCE",
            f"-I{NATIVE}",
            str(shim),
            *(str(source) for source in sorted((NATIVE / "link").glob("*.c"))),
            "-o",
            str(library),
        ],
        check=True,
    )
    ffi = FFI()
    for name in _HEADERS:
        ffi.cdef(declarations((NATIVE / name).read_text()))
    return ffi, ffi.dlopen(str(library))
