"""Waiting for XTS sockets and kernel descriptors at once, as the interposer does: host_lib/native/xts_private.h."""

from __future__ import annotations

import pytest
from beds.script_outcomes import Outcomes
from beds.shm_proxy import ShmProxy, library
from system.waiting.programs.mixed_scripts import SCRIPTS

PROGRAM = "waiting/programs/mixed_scripts.py"


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, proxy: ShmProxy) -> Outcomes:
    return Outcomes(request, lambda names, _: proxy.run(PROGRAM, library(), names))


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_program(name: str, outcomes: Outcomes) -> None:
    outcomes.check("test_program", name)


@pytest.mark.parametrize("name", ["either_ends_the_sleep", "threads_wait_together"])
def test_without_spinning(name: str, proxy: ShmProxy) -> None:
    proxy.run(PROGRAM, library(), name, XTS_SPIN_US="4294967295")
