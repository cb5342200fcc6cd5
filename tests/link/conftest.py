"""The wire of the link tests (beds/veth_wire.py), one for each test that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from beds.veth_wire import Wire, make_wire


@pytest.fixture
def wire() -> Iterator[Wire]:
    yield from make_wire(62_000)
