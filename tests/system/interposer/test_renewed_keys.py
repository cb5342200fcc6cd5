"""The key of a socket is renewed when a process has left it. Children that come meanwhile, and later, join it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from beds.interposed_place import Place

PROGRAM = str(Path(__file__).with_name("programs") / "renewed_keys.py")


SERVED = {
    "listener": 2,
    "reuseport": 10,
    "datagrams": 10,
    "reuseaddr_datagrams": 10,
    "reuseport_datagrams": 10,
    "answers": 10,
    "answers_from_chosen": 10,
    "bound": 1,
}


@pytest.mark.parametrize("kind", SERVED)
def test_a_member_is_killed_before_the_proxy_hears_of_its_key(place: Place, kind: str) -> None:
    """Then the others say it, and a child that comes meanwhile waits for that. It never makes a second socket."""
    with place.start([sys.executable, PROGRAM, kind]) as program:
        said = program.communicate(timeout=120)[0].decode()
    assert said.splitlines()[-1:] == [str(SERVED[kind])], said
