"""Links over network cards with zero copy at both ends, driven by hypothesis: what holds of links over other queues
(tests/model/test_queued_links.py). In the machine of `tests/vm/run --nics`."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from beds import card_queues
from beds.card_queues import ENDS, WAIT_MS, CardLinks, Cards
from beds.examples import examples
from beds.kept_frames import KeptFrames
from beds.slots import submit_when_free
from hypothesis.stateful import invariant, run_state_machine_as_test
from xts_lab import netns
from xts_messages.queues.afxdp import NO_DROPS, drops_of
from xts_messages.queues.queue_kinds import QueueOptions

#: xts_parts_wrap(): packets of a frame.
PARTS_MAX = 8
BURSTS = 20


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


def asked_for_buffers(cards: Cards, end: str) -> int:
    """How often the card has asked the driver to say when there are buffers again, as it had none for what came."""
    with netns.inside(end):
        command = ["ethtool", "-S", cards.names[end]]
        told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.search(r"rx_kicks: (\d+)", told) or re.search(r"rx0_kicks: (\d+)", told)
    assert found, told
    return int(found[1])


def test_the_card_has_buffers_for_all_that_may_come(cards: Cards) -> None:
    """Its driver takes them when frames arrive, and so has not noticed yet which were given back since. One that runs
    out of them drops frames; this one has them wait in the wire, and be overtaken."""
    with ExitStack() as stack:
        host, device = (cards.opened(end, stack, "on", True) for end in ENDS)
        burst, asked = host.frame_window * PARTS_MAX, 0
        for turn in range(BURSTS):
            numbers = range(turn * burst, (turn + 1) * burst)
            for number in numbers:
                submit_when_free(host, host.peer_mac + host.local_mac + b"\x85\x5b\7\0" + number.to_bytes(1200, "big"))
            while not host.kick():
                pass
            frames = [device.wait(WAIT_MS) for _ in numbers]
            assert [int.from_bytes(bytes(frame)[16:], "big") for frame in frames] == list(numbers)
            for frame in frames:  # only now, as a sender may have used up its window
                frame.recycle()
            asked = asked or asked_for_buffers(cards, "dpu")
        assert asked_for_buffers(cards, "dpu") == asked
