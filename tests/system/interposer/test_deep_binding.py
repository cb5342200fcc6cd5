"""Libraries that a program loads with RTLD_DEEPBIND, as PHP does with its extensions and Apache with its modules: the
loader looks for functions in the C library before it looks at the interposer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from beds.interposed_place import Place
from beds.preload import PreloadBed

SOURCE = Path(__file__).with_name("programs") / "bound_deeply.c"
FLAGS = ("-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")

LOAD = """
import ctypes, os, socket, struct, sys
path, mode, address = sys.argv[1], int(sys.argv[2]), sys.argv[3]
library = ctypes.CDLL(path, mode=mode)
host = struct.unpack("=I", socket.inet_aton(address))[0]
for own_calls in 1, 2:
    print(library.bound_deeply(host))
    ctypes.c_int.in_dll(library, "own_calls").value = 0
"""

#: The program has no path for the library. The library that loads it has one.
FINDS = """
#include <dlfcn.h>
int find(void) { return dlopen("libfound.so", RTLD_NOW) ? 0 : 1; }
"""


def build(source: Path, made: Path, *flags: str) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    subprocess.run([compiler, *FLAGS, *flags, "-o", made, source], check=True)
    return made


@pytest.mark.parametrize("mode", [os.RTLD_LAZY, os.RTLD_NOW], ids=["lazy", "now"])
@pytest.mark.parametrize("linked", ["lazy", "now"])
def test_its_sockets_are_offloaded(linked: str, mode: int, place: Place, tmp_path: Path) -> None:
    """Its own functions come first nevertheless, which is what the program has asked for."""
    library = build(SOURCE, tmp_path / "deep.so", f"-Wl,-z,{linked}", "-Wl,-z,relro")
    command = [sys.executable, "-c", LOAD, str(library), str(mode | os.RTLD_DEEPBIND), place.here]
    with place.start(command, {"XTS_LOG": "1"}) as program:
        said = program.communicate(timeout=60)[0].decode()
    assert said.splitlines().count("0") == 2, said
    assert said.count(": offloaded") >= 4, said


def test_paths_are_those_of_the_library_that_loads(bed: PreloadBed, tmp_path: Path) -> None:
    """The C library looks at who calls dlopen()."""
    found = tmp_path / "found"
    found.mkdir()
    build(SOURCE, found / "libfound.so")
    source = tmp_path / "finds.c"
    source.write_text(FINDS)
    library = build(source, tmp_path / "finds.so", "-Wl,-rpath,$ORIGIN/found", "-Wl,--enable-new-dtags")
    done = bed.run([sys.executable, "-c", f"import ctypes; print(ctypes.CDLL({str(library)!r}).find())"])
    assert done.stdout == b"0\n"
