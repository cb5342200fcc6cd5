"""Links over real queues, driven by hypothesis: frames kept longer than their credit, and faults that take time.

A frame that is kept costs the link nothing: whoever has a frame credit finds a slot and the receiver a buffer, whatever
is kept. A delay changes when frames come and nothing else. A frame that comes twice ends the link, and is never
delivered twice.
"""

from __future__ import annotations

import errno

import pytest
from beds.examples import examples
from beds.kept_frames import KeptFrames
from beds.queued_links import QueuedLinks
from beds.third_kind import KINDS
from hypothesis.stateful import invariant
from xts_messages._native import lib
from xts_messages.queues.queue import Faults, Queue
from xts_messages.queues.queue_kinds import QueueOptions


class DelayedFrames(KeptFrames):
    """Frames are late. Nothing else changes."""

    def decorate(self, queue: Queue) -> Queue:
        late = Faults(seed=7, delay_ppm=200_000, delay_us=700)
        return queue.with_faults(late, late)


class RepeatedFrames(KeptFrames):
    """Frames come again later. That ends the link, by name, and nothing is delivered twice."""

    def decorate(self, queue: Queue) -> Queue:
        return queue.with_faults(Faults(seed=3, repeat_ppm=20_000, delay_us=300, skip_frames=4))

    @invariant()
    def a_credit_finds_a_slot(self) -> None:
        """A slot that is retained is none that a frame finds."""

    @invariant()
    def faults_end_a_link_by_name(self) -> None:
        for end in self.links.ends:
            if end.link.state == lib.XTS_LINK_DOWN:
                assert end.link.error in (errno.EPROTO, errno.ETIMEDOUT)

    def teardown(self) -> None:
        if not hasattr(self, "links"):
            return
        try:
            self.come_to_rest()
            self.only_what_was_sent_in_order()
            self.faults_end_a_link_by_name()
        finally:
            self.links.close()


TestKeptFrames = KeptFrames.TestCase
TestKeptFrames.settings = examples(40, stateful_step_count=40)
TestDelayedFrames = DelayedFrames.TestCase
TestDelayedFrames.settings = examples(40, stateful_step_count=40)
TestRepeatedFrames = RepeatedFrames.TestCase
TestRepeatedFrames.settings = examples(40, stateful_step_count=40)


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_that_comes_twice_ends_the_link_and_is_delivered_once(kind: int) -> None:
    twice = Faults(seed=1, repeat_ppm=1_000_000, delay_us=500, skip_frames=1)
    with QueuedLinks(kind, QueueOptions(16), lambda queue: queue.with_faults(twice)) as links:
        links.settle()
        assert links.host.up
        for number in (1, 2, 3):
            assert links.host.send(number)
        links.settle()
        links.advance(1)
        links.settle()
        assert links.proxy.link.error == errno.EPROTO
        assert links.proxy.delivered == [1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_over_a_slow_queue_is_as_any_other(kind: int) -> None:
    slow = Faults(seed=1, delay_ppm=1_000_000, delay_us=3_000)
    with QueuedLinks(kind, QueueOptions(4), lambda queue: queue.with_faults(slow, slow)) as links:
        links.settle()
        begun_ns = links.now_ns
        for number in range(1, 41):
            while not links.host.send(number):
                links.settle()
                links.proxy.recycle(4)
        links.settle()
        assert links.host.up and links.proxy.delivered == list(range(1, 41))
        assert links.now_ns - begun_ns >= 40 * 3_000_000, "each frame was late, and held up the next"
