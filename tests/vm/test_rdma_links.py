"""Links over RDMA, driven by hypothesis: what holds of links over other queues (tests/model/test_queued_links.py)."""

from __future__ import annotations

import random

import pytest
from beds.examples import examples
from beds.kept_frames import KeptFrames
from beds.rdma import Acceptor, Device, RdmaLinks
from hypothesis.stateful import run_state_machine_as_test
from xts_messages.queues.queue_kinds import QueueOptions

#: Not tried on iWARP yet.
pytestmark = pytest.mark.parametrize("device", ["rxe"], indirect=True)


def test_frames_and_credits(device: Device, acceptor: Acceptor) -> None:
    class OverRdma(KeptFrames):
        def opened(self, kind: int, options: QueueOptions) -> RdmaLinks:
            return RdmaLinks(device, acceptor, options)

    run_state_machine_as_test(OverRdma, settings=examples(25, stateful_step_count=40))


@pytest.mark.parametrize("window", [4, 128])
def test_a_receiver_that_reads_nothing_is_never_overrun(device: Device, acceptor: Acceptor, window: int) -> None:
    """Both send all that they may, as often as they may."""
    draw, number = random.Random(window), 0
    with RdmaLinks(device, acceptor, QueueOptions(window)) as links:
        links.settle()
        for _ in range(60):
            for end in links.ends:
                while end.send(number + 1):
                    number += 1
            links.settle()
            for end in links.ends:
                assert len(end.held) <= window
                end.recycle(draw.randrange(window + 1))
            links.settle()
        for end, other in (links.ends, links.ends[::-1]):
            assert end.up and end.delivered == other.sent
            assert end.queue.stats.rx_invalid == 0
