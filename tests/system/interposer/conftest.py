"""Where programs run that give each other sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from beds.interposed_place import UDP, InLab, OnThisMachine, Place
from beds.lab import raise_or_skip


@pytest.fixture(scope="package")
def in_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InLab]:
    lab = raise_or_skip("afxdp", "given")
    rules = tmp_path_factory.mktemp("rules") / "udp.rules"
    rules.write_text(UDP)
    try:
        yield InLab(lab, rules)
    finally:
        lab.down()


@pytest.fixture(
    params=[
        pytest.param("shm"),
        pytest.param("afxdp", marks=[pytest.mark.root, pytest.mark.afxdp]),
    ]
)
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "shm":
        return OnThisMachine(request.getfixturevalue("bed"))
    made: Place = request.getfixturevalue("in_lab")
    return made
