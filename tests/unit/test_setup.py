"""deploy/setup: what it takes, and what its two lists are."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

SETUP = Path(__file__).resolve().parents[2] / "deploy" / "setup"


def test_its_options() -> None:
    told = subprocess.run([SETUP, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "deploy/setup --dev " in told
    assert "set -e" not in told
    wrong = subprocess.run([SETUP, "--develop"], capture_output=True, text=True, timeout=60, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, told)


def test_users_get_no_tools_of_developers() -> None:
    text = SETUP.read_text()
    lists = {
        name: re.search(rf"^{name}=\(([^)]*)\)", text, re.MULTILINE) for name in ("needed", "wanted", "of_developers")
    }
    words = {name: set(found[1].split()) for name, found in lists.items() if found}
    assert {"gcc", "clang"} <= words["needed"]
    assert {"nginx", "curl"} <= words["wanted"]
    assert {"clang-tidy", "tshark", "postgresql"} <= words["of_developers"]
    assert not words["of_developers"] & (words["needed"] | words["wanted"])
