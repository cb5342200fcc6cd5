"""Links over network cards with zero copy at both ends, driven by hypothesis: what holds of links over other queues
(tests/model/test_queued_links.py). In the machine of `tests/vm/run --nics`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from beds import card_queues
from beds.card_queues import CardLinks, Cards
from beds.examples import examples
from beds.kept_frames import KeptFrames
from hypothesis.stateful import invariant, run_state_machine_as_test
from xts_messages.queues.afxdp import NO_DROPS, drops_of
from xts_messages.queues.queue_kinds import QueueOptions


@pytest.fixture(scope="module")
def cards() -> Iterator[Cards]:
    if reason := card_queues.missing("virtio"):
        pytest.skip(reason)
    with card_queues.in_namespaces("virtio") as made:
        made.set_mtu(1500)
        yield made


def test_frames_and_credits(cards: Cards) -> None:
    class OverCards(KeptFrames):
        def opened(self, kind: int, options: QueueOptions) -> CardLinks:
            return CardLinks(cards, options)

        @invariant()
        def a_credit_finds_a_slot(self) -> None:
            """A card gives a slot back when it likes, which may be after the credit has come. The sender waits."""

    run_state_machine_as_test(OverCards, settings=examples(10, stateful_step_count=30))


@pytest.mark.parametrize("window", [4, 64])
def test_a_receiver_that_reads_nothing_is_never_overrun(cards: Cards, window: int) -> None:
    """Both send all that they may, as often as they may."""
    draw, number = random.Random(window), 0
    with CardLinks(cards, QueueOptions(window)) as links:
        links.settle()
        for _ in range(20):
            for end in links.ends:
                while end.send(number + 1):
                    number += 1
            links.settle()
            for end in links.ends:
                assert len(end.held) <= links.window
                end.recycle(draw.randrange(links.window + 1))
            links.settle()
        for end, other in (links.ends, links.ends[::-1]):
            assert end.up and end.delivered == other.sent and len(end.delivered) > links.window
            assert end.queue.stats.rx_invalid == end.queue.stats.tx_lost == 0
            assert drops_of(int(end.queue.native.wait_fd)) == NO_DROPS
