"""Sockets that are kept over fork and exec: shared listeners, connections that move to the process that uses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.authority import Authority, tls_tables
from beds.script_outcomes import Outcomes
from beds.shm_proxy import ShmProxy, library
from system.processes.programs.inherit_scripts import SCRIPTS

PROGRAM = "processes/programs/inherit_scripts.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the proxy's identity "localhost" is, and whom it trusts."""
    return tmp_path_factory.mktemp("proxy")


@pytest.fixture(scope="module")
def proxy(folder: Path, xts_authority: Authority) -> Iterator[ShmProxy]:
    with ShmProxy(folder, tls_tables(folder, xts_authority)) as made:
        yield made


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, proxy: ShmProxy, folder: Path) -> Outcomes:
    return Outcomes(request, lambda names, _: proxy.run(PROGRAM, library(), names, TLS_FOLDER=str(folder)))


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_program(name: str, outcomes: Outcomes) -> None:
    outcomes.check("test_program", name)
