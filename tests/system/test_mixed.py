"""Waiting for XTS sockets and kernel descriptors at once, as the interposer does: host_lib/native/xts_private.h."""

from __future__ import annotations

import pytest
from mixed_scripts import SCRIPTS
from shm_proxy import ShmProxy, library


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_program(name: str, proxy: ShmProxy) -> None:
    proxy.run("mixed_scripts.py", library(), name)


@pytest.mark.parametrize("name", ["either_ends_the_sleep", "threads_wait_together"])
def test_without_spinning(name: str, proxy: ShmProxy) -> None:
    proxy.run("mixed_scripts.py", library(), name, XTS_SPIN_US="4294967295")
