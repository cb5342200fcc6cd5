"""Copies of payload by the kernel on virtio network cards, counted by probes: none with zero copy at both ends, and one
at each end in copy mode, which shows that the probes see them. In the machine of `tests/vm/run --nics`.

What is counted are the kernel's functions that copy for AF_XDP (beds/counted_copies.py), and packets of its own that
the kernel made of frames, to send them or to receive them as others do. What the emulated card does, that is QEMU and
its hub, is the wire's part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from beds import card_queues, counted_copies
from beds.card_queues import ENDS, Cards

SIZE, FRAMES = 1000, 64


@pytest.fixture(scope="module")
def cards() -> Iterator[Cards]:
    if reason := card_queues.missing("virtio"):
        pytest.skip(reason)
    with card_queues.in_namespaces("virtio") as made:
        made.set_mtu(1500)
        yield made


@pytest.mark.parametrize(("wanted", "copies"), [("on", 0), ("off", 2)], ids=["zero copy", "copy mode"])
def test_copies_of_a_frame(cards: Cards, wanted: str, copies: int) -> None:
    with ExitStack() as stack:
        host, device = (cards.opened(end, stack, wanted, wanted == "on") for end in ENDS)
        card_queues.cross(host, device, (SIZE,) * 4)  # whatever is done at first
        with counted_copies.counted(counted_copies.CARD) as copied:
            card_queues.cross(host, device, (SIZE,) * FRAMES)
    of_a_frame = copied.bytes / (FRAMES * SIZE)
    print(f"{wanted}: {of_a_frame:.2f} copies of each frame, {copied.packets} packets of the kernel's own")
    assert copies == pytest.approx(of_a_frame, abs=0.05)
    assert bool(copied.packets) == bool(copies)
