"""deploy/release and what it calls: options, and what they refuse before anything is made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
RELEASE = TOP / "deploy" / "release"


def run(*arguments: str | Path, command: Path = RELEASE) -> subprocess.CompletedProcess[str]:
    return subprocess.run([command, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["release", "build-wheel", "docs/screenshots"])
def test_help(name: str) -> None:
    told = run("--help", command=TOP / "deploy" / name)
    assert told.returncode == 0 and f"Usage: deploy/{name}" in told.stdout and "set -e" not in told.stdout
    wrong = run("--nonsense", command=TOP / "deploy" / name)
    assert wrong.returncode != 0 and "--nonsense is not an option (see --help)" in wrong.stderr


def test_what_cannot_be_made_is_said_at_once(tmp_path: Path) -> None:
    assert "wheel, packages or image" in run("--only", "everything").stderr
    assert "is not a commit" in run("--commit", "no-such-commit").stderr
    assert "wants a value" in run("--output").stderr
    (tmp_path / "of-before").touch()
    full = run("--only", "wheel", "--output", tmp_path)
    assert full.returncode != 0 and "has files already" in full.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["of-before"]


@pytest.mark.skipif(os.geteuid() != 0, reason="asks what an ordinary user hears, as root")
def test_without_root_it_says_what_can_be_made(tmp_path: Path) -> None:
    """As a user who may read the checkout, which git has to be told."""
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "GIT_CONFIG_COUNT=1"]
    command += ["GIT_CONFIG_KEY_0=safe.directory", f"GIT_CONFIG_VALUE_0={TOP}", str(RELEASE), "--output", str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode != 0 and "deploy/release --only wheel" in told.stderr, told.stderr
