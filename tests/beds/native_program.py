"""A C program of a test, with files of the proxy."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from beds.native_core import PROXY_INCLUDES, TOP, compiler
from beds.patience import SLOWER

_NATIVE = TOP / "dpu_proxy" / "native"
_LONGEST_S = 120 * SLOWER
#: The pool of handshake threads, without the worker.
POOL = ("ulp/handshake_pool.c", "ulp/job_bell.c")


def program_of(folder: Path, text: str, *files: str, options: tuple[str, ...] = ()) -> Path:
    """Where it is, built from its text and these files of dpu_proxy/native. `options` are the compiler's, such as
    libraries. Skips the test where there is no compiler."""
    if shutil.which(compiler()) is None:
        pytest.skip("no C compiler is installed")
    source, made = folder / "program.c", folder / "program"
    source.write_text(text)
    command = [compiler(), "-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE", *PROXY_INCLUDES, str(source)]
    command += [*(str(_NATIVE / file) for file in files), *options, "-lpthread", "-o", str(made)]
    built = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONGEST_S)
    assert built.returncode == 0, built.stderr
    return made


def said_under(sanitizer: str, folder: Path, text: str, *files: str) -> tuple[int, str, str]:
    """What such a program says under a sanitizer: exit status, output, and errors."""
    made = program_of(folder, text, *files, options=(f"-fsanitize={sanitizer}",))
    # An environment of its own: the sanitizer that this process may run under is loaded by LD_PRELOAD.
    run = subprocess.run([str(made)], capture_output=True, text=True, check=False, timeout=_LONGEST_S, env={})
    return run.returncode, run.stdout, run.stderr
