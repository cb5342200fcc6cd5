"""Threads that race for one descriptor number: every call of theirs returns."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from beds.preload import PreloadBed

SOURCE = Path(__file__).with_name("programs") / "racing.c"
RACE_S = 3


@pytest.fixture(scope="module")
def racing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = tmp_path_factory.mktemp("racing") / "racing"
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", made, SOURCE], check=True)
    return made


def test_every_call_returns(racing: Path, bed: PreloadBed) -> None:
    """Without its waiters' counter kept over an entry's reuse, shutdown() waited for ever in each of three runs."""
    done = bed.run([str(racing), str(RACE_S)])
    lives = int(done.stdout.split()[0])
    assert lives > 20, "it was hardly tried"
