"""The Python examples say what they need when they are started without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
DEADLINE_S = 60
#: Started without arguments, these do something.
NEED_NOTHING = {"asyncio_echo.py", "trio_echo.py", "uvicorn_serve.py", "hypercorn_serve.py", "nic_device_memory.py"}
EXAMPLES = sorted(path for side in ("host_lib", "dpu_proxy") for path in (TOP / side / "examples").glob("*.py"))


@pytest.mark.parametrize(
    "path", [one for one in EXAMPLES if one.name not in NEED_NOTHING], ids=lambda path: str(path.name)
)
def test_it_says_what_it_needs(path: Path) -> None:
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1 and done.stderr.startswith(f"usage: python {path.name} "), done.stderr


def test_there_are_examples() -> None:
    assert {path.name for path in EXAMPLES} > NEED_NOTHING
