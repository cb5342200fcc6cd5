"""Each libFuzzer target builds and finds nothing in a few seconds; `tests/fuzz/run --seconds N` goes on for longer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

RUN = Path(__file__).with_name("run")


def runner() -> ModuleType:
    """The script as a module; its name has no suffix."""
    spec = spec_from_loader("fuzz_run", SourceFileLoader("fuzz_run", str(RUN)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")
@pytest.mark.parametrize("target", sorted(runner().TARGETS))
def test_target_finds_nothing(target: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(RUN), "--seconds", "5", "--target", target, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "nothing found" in run.stdout
