"""What the children of a test find: Python programs that tests start import beds and oracles as the tests do."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def share_import_path() -> None:
    """Puts tests/ on the import path of all processes that this one starts from now on."""
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), *(one for one in before if one not in ("", str(TESTS)))])
