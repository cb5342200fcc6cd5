"""Servers with several processes that are killed (test_killed_group.py): behind the agent's relay, where frames have
heads, and where lost frames are repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from beds.interposed_place import UDP, InLab
from beds.lab import raise_or_skip
from system.interposer import test_killed_group as group
from system.interposer.test_killed_group import Connect
from xts_lab.wire import Wire

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

KINDS: dict[str, dict[str, Any]] = {
    "relay": {"queues": 1, "relayed_max": 64},
    "heads": {"wire": Wire.SWITCH},
    "repeated": {"wire": Wire.SWITCH, "reliable": True},
}


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InLab]:
    lab = raise_or_skip("afxdp", "killed", **KINDS[request.param])
    rules = tmp_path_factory.mktemp("rules") / "udp.rules"
    rules.write_text(UDP)
    try:
        yield InLab(lab, rules)
    finally:
        lab.down()


@pytest.fixture
def connect(place: InLab) -> Iterator[Connect]:
    with ExitStack() as undo:
        yield lambda port: undo.enter_context(place.client(port))


def test_all_are_killed_at_once(place: InLab, connect: Connect) -> None:
    group.test_all_are_killed_at_once(place, connect)


def test_one_is_killed_just_after_the_other_has_closed(place: InLab, connect: Connect) -> None:
    group.test_one_is_killed_just_after_the_other_has_closed(place, connect)


def test_a_survivor_keeps_all(place: InLab, connect: Connect) -> None:
    group.test_a_survivor_keeps_all(place, connect)
