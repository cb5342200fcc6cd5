"""C programs of tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FLAGS = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]


def compile_program(source: Path, folder: Path, *more: str) -> str:
    """Compiles the source, with the sources or flags `more`, to a program in `folder`: its path. Skips the test without
    a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = folder / source.stem
    subprocess.run([compiler, *FLAGS, "-o", made, source, *more], check=True)
    return str(made)
