"""Pushed protocols from libxts to the wire: programs, the proxy, and peers of the kernel's."""

from __future__ import annotations

import pytest
from beds.script_outcomes import Outcomes
from beds.shm_proxy import ShmProxy, library
from system.protocols.programs.ulp_scripts import SCRIPTS

PROGRAM = "protocols/programs/ulp_scripts.py"


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, proxy: ShmProxy) -> Outcomes:
    return Outcomes(request, lambda names, _: proxy.run(PROGRAM, library(), names))


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_program(name: str, outcomes: Outcomes) -> None:
    outcomes.check("test_program", name)


@pytest.mark.parametrize(
    "settings",
    [
        {"XTS_WINDOW_BYTES": "4096", "XTS_WINDOW_BYTES_MAX": "4096", "SEED": "3"},
        {"XTS_FRAME_WINDOW": "4", "XTS_WINDOW_BYTES": "5000", "XTS_WINDOW_BYTES_MAX": "20000", "SEED": "4"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", [name for name in SCRIPTS if "application" in name])
def test_small_windows(name: str, settings: dict[str, str], proxy: ShmProxy) -> None:
    proxy.run(PROGRAM, library(), name, **settings)
