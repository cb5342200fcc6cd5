"""xts-agent and xts-proxy over RDMA, and unmodified programs of users under `xts run`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.rdma import Device
from beds.rdma_products import Products, products

CLIENT = str(Path(__file__).with_name("programs") / "plain_client.py")
NOBODY = 65534


@pytest.fixture
def both(device: Device) -> Iterator[Products]:
    with products(device) as made:
        yield made


def test_one_echo(both: Products, echo: tuple[int, int]) -> None:
    client = both.run(sys.executable, CLIENT, str(echo[0]), "100000", "0", user=NOBODY)
    said, told = client.communicate(timeout=120)
    assert client.returncode == 0, told + both.log_of_both()
    assert len(said.strip()) == 64
