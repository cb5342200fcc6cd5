"""SO_RCVTIMEO and SO_SNDTIMEO say how long a call waits, also where it then asks the proxy for what has not fitted in
the queue."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from beds.interposed_place import Place

PROGRAM = str(Path(__file__).with_name("programs") / "time_to_wait.py")
TIME_S = 0.5


@pytest.mark.parametrize("kind", ["recv", "accept", "send", "datagram"])
def test_a_call_waits_once(place: Place, kind: str) -> None:
    """A busy machine adds to it, and the second time would be as long again: the shortest of three."""
    waited = []
    for _ in range(3):
        with place.start([sys.executable, PROGRAM, kind]) as program:
            waited.append(float(program.communicate(timeout=60)[0].decode().splitlines()[-1]))
    assert TIME_S * 0.9 < min(waited) < TIME_S * 1.8, waited
