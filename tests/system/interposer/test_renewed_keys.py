"""The key of a listener is renewed when a process has left it. Children that come meanwhile, and later, join it."""

from __future__ import annotations

import sys
from pathlib import Path

from beds.interposed_place import Place

PROGRAM = str(Path(__file__).with_name("programs") / "renewed_keys.py")


def test_a_member_is_killed_before_the_proxy_hears_of_its_key(place: Place) -> None:
    """Then the others say it."""
    with place.start([sys.executable, PROGRAM]) as program:
        said = program.communicate(timeout=120)[0].decode()
    assert said.splitlines()[-1:] == ["2"]
