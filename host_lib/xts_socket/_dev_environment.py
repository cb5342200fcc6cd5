"""The environment of a proxy of one's own (_dev_proxy.py).

Theory of operation. A proxy is started with the environment of the program that uses it, and much in there is meant for
that program: a library to preload, another allocator or clock, a sanitizer's options, the program's own copies of
libraries. In the proxy these would break its sandbox or change its timers. So what the loader, the C library and such
libraries read is left out. Directories of libraries are kept if this interpreter itself needs them, for the proxy is a
program of this interpreter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from xts_messages.native import lib

#: Of Python's variables, only those are kept that say where it and its packages are: others (PYTHONINSPECT,
#: PYTHONWARNINGS) are meant for the program that the user works on.
_PYTHON_KEPT = {"PYTHONHOME", "PYTHONPATH", "PYTHONPLATLIBDIR", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}
_NOT_OURS = (
    *("XTS_", "XLIO_", "VMA_"),  # it must not be offloaded itself
    *("LD_", "GLIBC_TUNABLES", "MALLOC_"),  # the loader and the C library; MALLOC_CONF: jemalloc
    *("TCMALLOC_", "MIMALLOC_", "HEAPPROFILE", "HEAPCHECK", "CPUPROFILE"),
    *("FAKETIME", "DONT_FAKE_", "FAKEROOT"),  # libfaketime, fakeroot
)
_SANITIZER = re.compile(r"([ALMTU]|UB|HWA|RT)SAN_(OPTIONS|SYMBOLIZER_PATH)")
_SANITIZER_LIBRARY = re.compile(r"lib([alt]|ub|hwa)san\.so|libclang_rt\.")


def for_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """What of the program's environment the proxy gets."""
    sanitized = bool(lib.xts_calls_sanitized())  # then the proxy needs the sanitizer, too
    result = {
        name: value
        for name, value in environment.items()
        if not name.startswith(_NOT_OURS)
        and (not name.startswith("PYTHON") or name in _PYTHON_KEPT)
        and (sanitized or not _SANITIZER.fullmatch(name))
    }
    preloaded = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    runtimes = [library for library in preloaded if _SANITIZER_LIBRARY.match(Path(library).name)]
    if sanitized and runtimes:
        result["LD_PRELOAD"] = ":".join(runtimes)
    if needed := list(_needed(environment.get("LD_LIBRARY_PATH", ""))):
        result["LD_LIBRARY_PATH"] = ":".join(needed)
    return result


def _needed(library_path: str) -> Iterator[str]:
    """The directories from which this interpreter has libraries."""
    if library_path:
        lines = Path("/proc/self/maps").read_bytes().splitlines()
        files = {os.fsdecode(fields[5]) for line in lines if len(fields := line.split(maxsplit=5)) == 6}
        used = {os.path.realpath(Path(file).parent) for file in files if file.startswith("/")}
        for directory in re.split("[:;]", library_path):
            if directory and os.path.realpath(directory) in used:
                yield str(Path(directory).absolute())
