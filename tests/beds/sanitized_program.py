"""A C program of a test, with files of the proxy, under a sanitizer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from beds.native_core import TOP, compiler
from beds.patience import SLOWER

_NATIVE = TOP / "dpu_proxy" / "native"
_LONGEST_S = 120 * SLOWER


def said_under(sanitizer: str, folder: Path, program: str, *files: str) -> tuple[int, str, str]:
    """What the program says, built from its text and these files of dpu_proxy/native: exit status, output, and errors.
    Skips the test where there is no compiler."""
    if shutil.which(compiler()) is None:
        pytest.skip("no C compiler is installed")
    source, made = folder / "program.c", folder / "program"
    source.write_text(program)
    command = [compiler(), "-std=gnu11", "-O1", "-g", f"-fsanitize={sanitizer}", "-D_GNU_SOURCE", f"-I{_NATIVE}"]
    command += [str(source), *(str(_NATIVE / file) for file in files), "-lpthread", "-o", str(made)]
    built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONGEST_S)
    assert built.returncode == 0, built.stderr
    # An environment of its own: the sanitizer that this process may run under is loaded by LD_PRELOAD.
    run = subprocess.run([str(made)], capture_output=True, text=True, check=False, timeout=_LONGEST_S, env={})
    return run.returncode, run.stdout, run.stderr
