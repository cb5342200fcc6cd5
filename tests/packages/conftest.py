"""The packages under test, and older ones to upgrade from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from beds import debian_root

BUILD_S = 1500


def _packages(variable: str, name: str, *build: str) -> Path:
    """Those of the variable's folder, or built from what is committed."""
    if os.environ.get(variable):
        return Path(os.environ[variable])
    folder = debian_root.TOP / "build/packages" / name
    command = [debian_root.TOP / "deploy/build-packages", *build, "--output", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def packages() -> Path:
    missing = debian_root.missing_programs()
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (tests/packages/run installs what is needed)")
    return _packages("XTS_TEST_PACKAGES", "tested")


@pytest.fixture(scope="session")
def older(packages: Path) -> Path:
    """Packages of a lower version: of the same sources, as long as there is no release."""
    return _packages("XTS_TEST_OLDER_PACKAGES", "older", "--version", "0.1.9")
