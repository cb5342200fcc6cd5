"""RDMA devices of the virtual machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from beds.rdma import Acceptor, Device


@pytest.fixture(scope="session", params=["rxe", "siw"])
def device(request: pytest.FixtureRequest) -> Device:
    """A software RDMA device: RoCE or iWARP."""
    if not os.environ.get("XTS_VM"):
        pytest.skip("this is not the virtual machine (tests/vm/run)")
    made = Device(str(request.param))
    if reason := made.missing():
        pytest.skip(reason)
    made.make()
    return made


@pytest.fixture(scope="session")
def acceptor(device: Device) -> Iterator[Acceptor]:
    """What accepts there."""
    with Acceptor(device.address) as made:
        yield made
