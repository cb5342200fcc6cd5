"""deploy/setup: what it takes, and what its two lists are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[3] / "deploy" / "setup"


def test_its_options() -> None:
    told = subprocess.run([SETUP, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "deploy/setup --dev " in told
    assert "set -e" not in told
    wrong = subprocess.run([SETUP, "--develop"], capture_output=True, text=True, timeout=60, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, told)


def told(folder: Path, *arguments: str, **programs: str) -> str:
    """What it says where these programs are others, in a checkout of its own that has nothing built."""
    checkout, bin = folder / "checkout" / "deploy", folder / "bin"
    checkout.mkdir(parents=True)
    shutil.copy(SETUP, checkout)
    bin.mkdir()
    for name, text in programs.items():
        (bin / name.replace("_", "-")).write_text(f"#!/bin/sh\n{text}\n")
        (bin / name.replace("_", "-")).chmod(0o755)
    done = subprocess.run(
        [checkout / "setup", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PATH": f"{bin}:{os.environ['PATH']}"},
    )
    assert done.returncode == 1 and len(done.stderr.splitlines()) <= 2, done.stderr
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("system", ["Darwin", "MINGW64_NT-10.0"])
def test_elsewhere_than_on_linux_it_names_the_container(tmp_path: Path, system: str) -> None:
    line = told(tmp_path, uname=f"echo {system}")
    assert f"this is {system}" in line and "podman build -f deploy/Containerfile" in line


def test_without_root_and_compilers_it_names_the_wheel(tmp_path: Path) -> None:
    """An ordinary user for whom sudo asks, on a machine that has nothing installed."""
    line = told(tmp_path, id="echo 1000", sudo="exit 1", dpkg_query="exit 1", dpkg="exit 1")
    assert "cannot build without python3 " in line and "run as root once: sudo deploy/setup" in line
    assert "take the wheel or the container: deploy/docs/how-to/install.md" in line


def test_without_root_tests_name_what_installs_their_packages(tmp_path: Path) -> None:
    """As tests/run calls it. Without --dev root would install a third of them, and the tests then miss the others."""
    line = told(tmp_path, "--dev", id="echo 1000", sudo="exit 1", dpkg_query="exit 1", dpkg="exit 1")
    assert "run as root once: sudo deploy/setup --dev; " in line


@pytest.mark.skipif(os.getuid() != 0, reason="root gives files away")
@pytest.mark.parametrize("sudo", [{}, {"SUDO_UID": "1234", "SUDO_GID": "1235"}], ids=["root", "sudo"])
def test_what_root_makes_belongs_to_the_owner_of_the_checkout(tmp_path: Path, sudo: dict[str, str]) -> None:
    function = re.search(r"^give_to_owner\(\) \{\n.*?^\}\n", SETUP.read_text(), re.MULTILINE | re.DOTALL)
    assert function
    for name in (".venv", "build"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    os.chown(tmp_path, 4321, 4322)
    there = {name: value for name, value in os.environ.items() if not name.startswith("SUDO_")}
    command = ["bash", "-euc", f"{function[0]}\ngive_to_owner"]
    subprocess.run(command, cwd=tmp_path, env=there | sudo, timeout=60, check=True)
    found = {(path.stat().st_uid, path.stat().st_gid) for path in tmp_path.rglob("*")}
    assert found == {(1234, 1235) if sudo else (4321, 4322)}


def lists() -> dict[str, set[str]]:
    text = SETUP.read_text()
    found = {
        name: re.search(rf"^{name}=\(([^)]*)\)", text, re.MULTILINE) for name in ("needed", "wanted", "of_developers")
    }
    return {name: set(words[1].split()) for name, words in found.items() if words}


def test_the_readme_says_how_many_packages_there_are() -> None:
    words = lists()
    first, more = len(words["needed"] | words["wanted"]), len(words["of_developers"]) + 2  # headers, CPython's tests
    text = SETUP.parents[1].joinpath("README.md").read_text()
    assert f"| `deploy/demo` | {first} packages of Debian, " in text
    assert f"| `tests/run` | {more} more of Debian, " in text


def test_users_get_no_tools_of_developers() -> None:
    words = lists()
    assert {"gcc", "clang"} <= words["needed"]
    assert {"nginx", "curl"} <= words["wanted"]
    assert {"clang-tidy", "tshark", "postgresql"} <= words["of_developers"]
    assert not words["of_developers"] & (words["needed"] | words["wanted"])
