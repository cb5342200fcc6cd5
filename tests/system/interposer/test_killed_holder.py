"""A connection of which bytes are missing, since the process that had them was killed, ends for all that have it."""

from __future__ import annotations

import sys
from pathlib import Path

from beds.interposed_place import Place

PROGRAM = str(Path(__file__).with_name("programs") / "killed_holder.py")
RESET = "Connection reset by peer"


def test_none_goes_on_without_the_missing_bytes(place: Place) -> None:
    """Neither another process, after the first has been told, nor the peer, for which that is no orderly end."""
    with place.start([sys.executable, PROGRAM]) as program:
        said = program.communicate(timeout=60)[0].decode()
    assert said.splitlines()[-1:] == [f"{RESET}, {RESET}, {RESET}"], said
