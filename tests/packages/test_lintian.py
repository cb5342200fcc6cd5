"""Debian's own checker has nothing to say of the packages, beyond what their overrides explain."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.timeout(1800)]


def test_lintian_finds_nothing(packages: Path) -> None:
    if shutil.which("lintian") is None:
        pytest.skip("not installed: lintian")
    found = sorted(packages.glob("*.deb"))
    command = ["lintian", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0", *found]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert len(found) >= 6 and done.returncode == 0, done.stdout + done.stderr
