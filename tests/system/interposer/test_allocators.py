"""Programs with an allocator of their own: it starts within our calls, we within its, and both watch fork()."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from beds.preload import PreloadBed, preloaded

PROGRAM = Path(__file__).with_name("programs") / "forks_while_allocating.py"


@pytest.mark.parametrize("library", ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"])
def test_children_end(bed: PreloadBed, library: str) -> None:
    """jemalloc takes its locks over fork() by a handler, and a child of redis waited for them for ever. tcmalloc has an
    mmap() that calls syscall(), and no program with it got as far as its first line."""
    if "asan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("the sanitizer is the allocator")
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    if f"{library} (" not in known:
        pytest.skip(f"{library} is not installed")
    env = {"LD_PRELOAD": f"{preloaded()}:{library}", "XTS_LOG": "1"}
    done = bed.run([sys.executable, str(PROGRAM)], env=env, timeout_s=100)
    assert done.stdout == b"done\n", done.stderr.decode()
    assert b": offloaded" in done.stderr
