"""Functions that a program looks up in the C library itself (ctypes.CDLL("libc.so.6"), JNA, DllImport("libc"))."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from beds.interposed_place import OnTheKernel, Place
from beds.preload import PreloadBed

PROGRAMS = Path(__file__).with_name("programs")
OLDEST = "GLIBC_2.2.5" if platform.machine() == "x86_64" else "GLIBC_2.17"
PATIENCE_S = 60


def said(place: Place, **env: str) -> list[str]:
    with place.start([sys.executable, str(PROGRAMS / "looked_up.py"), OLDEST], env) as program:
        return program.communicate(timeout=PATIENCE_S)[0].decode().splitlines()


def test_they_are_the_interposers(place: Place) -> None:
    lines = said(place, XTS_LOG="1")
    assert [line for line in lines if not line.startswith("libxts")] == said(OnTheKernel()), lines
    # three connections of two ends, and one that is not accepted
    assert sum(": offloaded" in line for line in lines) >= 7, lines


@pytest.mark.parametrize("where", ["RTLD_NEXT", 'dlopen("libc.so.6", RTLD_NOW)'])
@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_another_library_that_wraps_calls(where: str, first: bool, bed: PreloadBed, tmp_path: Path) -> None:
    """It is asked for the call once, in whichever order they are preloaded, and calls the C library's."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path / "wraps.so"
    flags = ["-O2", "-D_GNU_SOURCE", f"-DFROM={where}", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", library, PROGRAMS / "wraps_write.c"], check=True)
    environment = bed.environment()
    order = [str(library), environment["LD_PRELOAD"]] if first else [environment["LD_PRELOAD"], str(library)]
    program = (
        "import os, socket; a, b = socket.socketpair(); os.write(a.fileno(), b'data'); print(b.recv(9), flush=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, "LD_PRELOAD": os.pathsep.join(order)},
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout.split() == [b"b'data'", b"counted"], done
