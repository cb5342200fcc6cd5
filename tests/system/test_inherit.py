"""Sockets that are kept over fork and exec: shared listeners, connections that move to the process that uses them."""

from __future__ import annotations

import pytest
from inherit_scripts import SCRIPTS
from shm_proxy import ShmProxy, library

PROGRAM = "inherit_scripts.py"


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_program(name: str, proxy: ShmProxy) -> None:
    proxy.run(PROGRAM, library(), name)
