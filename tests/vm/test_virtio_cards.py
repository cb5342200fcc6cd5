"""Queues on virtio network cards, whose driver says that it has zero copy: in the machine of `tests/vm/run --nics`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from beds import card_queues
from beds.card_queues import ENDS, Cards

#: MTU -> whether virtio-net has zero copy with it (Linux 7.3): a packet has to fit into a buffer.
MTUS = {1280: True, 1500: True, 3804: True, 3826: False}


@pytest.fixture(scope="module")
def cards() -> Iterator[Cards]:
    if reason := card_queues.missing("virtio"):
        pytest.skip(reason)
    with card_queues.in_namespaces("virtio") as made:
        yield made


@pytest.mark.parametrize("mtu", MTUS)
def test_frames_cross_whatever_the_driver_does(cards: Cards, mtu: int) -> None:
    """With zero copy, or in copy mode after the driver has refused it."""
    cards.set_mtu(mtu)
    with ExitStack() as stack:
        host, device = (cards.opened(end, stack, "auto", MTUS[mtu]) for end in ENDS)
        card_queues.cross(host, device, (60, 600, 1000, mtu + 14) * 8)
