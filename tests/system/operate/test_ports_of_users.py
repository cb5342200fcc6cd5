"""Users of a host have the ports that the kernel would let them have, and share them with whom it would."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.lab import raise_or_skip
from beds.patience import SLOWER
from xts_lab.lab import Lab

pytestmark = pytest.mark.root
PROGRAM = str(Path(__file__).with_name("programs") / "ports_of_users.py")


@pytest.fixture(scope="module", params=["shm", pytest.param("afxdp", marks=pytest.mark.afxdp)])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    raised = raise_or_skip(request.param, "ports", queues=16)
    try:
        yield raised
    finally:
        assert not raised.down()


def outcomes(lab: Lab, how: str) -> dict[str, list[str]]:
    done = lab.run(
        "host",
        [sys.executable, PROGRAM, how],
        capture_output=True,
        text=True,
        timeout=100 * SLOWER,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_as_the_kernel_decides(lab: Lab) -> None:
    kernel, ours = outcomes(lab, "std"), outcomes(lab, "xts")
    assert kernel["low ports"][:3] == ["EACCES", "EACCES", "ok"]
    assert kernel["SO_REUSEPORT, listening"][:3] == ["ok", "ok", "EADDRINUSE"]
    assert ours == kernel
