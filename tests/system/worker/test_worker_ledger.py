"""What a worker believes of the ledger that a dead process has left: nothing that it has not checked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("programs") / "ledger.py"


_LINES = ("right", "ends", "parked", "lies", "written_over", "others", "places", "last_read")
_SOCKETS = (*_LINES, "named", "shared", "nobodys", "lost")


@pytest.mark.parametrize("case", [*_SOCKETS, "noise", "relayed", "swept", "one_after_the_other"])
def test_a_ledger(case: str) -> None:
    done = subprocess.run([sys.executable, str(PROGRAM), case], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
