"""The packages under test, and older ones to upgrade from: made once in a run, also where pytest-xdist has several
processes for these files (.ci/release)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from beds import debian_root

BUILD_S = 1500


def _packages(run: str, variable: str, name: str, *build: str) -> Path:
    """Those of the variable's folder, or built from what is committed, unless this run has."""
    if os.environ.get(variable):
        return Path(os.environ[variable])
    folder, built = debian_root.PLACE / name, debian_root.PLACE / f"{name}.run"
    with debian_root.alone():
        if not built.exists() or built.read_text() != run:
            command = [debian_root.TOP / "deploy/build-packages", *build, "--output", folder]
            done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
            assert done.returncode == 0, done.stderr
            built.write_text(run)
    return folder


@pytest.fixture(scope="session")
def packages(testrun_uid: str) -> Path:
    missing = debian_root.missing_programs()
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (tests/packages/run installs what is needed)")
    return _packages(testrun_uid, "XTS_TEST_PACKAGES", "tested")


@pytest.fixture(scope="session")
def older(packages: Path, testrun_uid: str) -> Path:
    """Packages of a lower version: of the same sources, as long as there is no release."""
    return _packages(testrun_uid, "XTS_TEST_OLDER_PACKAGES", "older", "--version", "0.1.9")
