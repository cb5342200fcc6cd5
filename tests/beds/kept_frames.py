"""What the owners of two channels do with frames, driven by hypothesis, and what must always hold.

A frame that is kept costs the link nothing: whoever has a frame credit finds a slot and the receiver a buffer, whatever
is kept.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import QueueOptions

from beds.queued_links import HOST, PROXY, QueuedLinks
from beds.third_kind import KINDS

ends = st.sampled_from([HOST, PROXY])
windows = st.sampled_from([4, 5, 16, 128])


class KeptFrames(RuleBasedStateMachine):
    """No faults."""

    links: QueuedLinks

    def decorate(self, queue: Queue) -> Queue:
        return queue

    def opened(self, kind: int, options: QueueOptions) -> QueuedLinks:
        """Two links over a new queue."""
        return QueuedLinks(kind, options, self.decorate)

    @initialize(kind=st.sampled_from(KINDS), window=windows, kept_max=st.sampled_from([0, 1, 3, 40, 96]))
    def start(self, kind: int, window: int, kept_max: int) -> None:
        self.kept_max, self.number = kept_max, 0
        self.links = self.opened(kind, QueueOptions(window, kept_max=kept_max))
        self.window = self.links.window  # a queue may have room for less
        self.links.settle()

    # --- what the owners of two channels do ---------------------------------------------------------

    @rule(who=ends, count=st.integers(1, 140))
    def send(self, who: int, count: int) -> None:
        for _ in range(count):
            self.number += 1
            if not self.links.ends[who].send(self.number):
                break

    @rule(who=ends, count=st.integers(1, 40))
    def receive(self, who: int, count: int) -> None:
        for _ in range(count):
            if not self.links.ends[who].receive(self.links.now_ns):
                break

    @rule(who=ends, count=st.integers(1, 130))
    def recycle(self, who: int, count: int) -> None:
        self.links.ends[who].recycle(count)

    @rule(who=ends, count=st.integers(1, 100))
    def keep(self, who: int, count: int) -> None:
        end = self.links.ends[who]
        for _ in range(count):
            if not end.keep():
                assert not end.held or len(end.kept) == self.kept_max
                break

    @rule(who=ends)
    def keep_all_there_is_room_for(self, who: int) -> None:
        """Then the other end sends its whole window, unread."""
        end, other = self.links.ends[who], self.links.ends[1 - who]
        for _ in range(2 * self.kept_max + 4):
            self.send(1 - who, 1)
            other.pump(self.links.now_ns)
            while end.receive(self.links.now_ns):
                self.keep(who, 1)
            end.pump(self.links.now_ns)
            while other.receive(self.links.now_ns):
                pass
        self.send(1 - who, self.window)

    @precondition(lambda self: any(end.kept for end in self.links.ends))
    @rule(who=ends, at=st.integers(0, 95), count=st.integers(1, 10))
    def let_go(self, who: int, at: int, count: int) -> None:
        for _ in range(min(count, len(self.links.ends[who].kept))):
            self.links.ends[who].let_go(at)

    @rule(who=ends)
    def pump(self, who: int) -> None:
        self.links.ends[who].pump(self.links.now_ns)

    @rule(ms=st.sampled_from([0.05, 1, 10, 25]))
    def wait(self, ms: float) -> None:
        self.links.advance(ms)

    # --- what must always hold ----------------------------------------------------------------------

    @invariant()
    def a_credit_finds_a_slot(self) -> None:
        assert [end.no_slot for end in self.links.ends] == [0, 0]

    @invariant()
    def nothing_is_lost_or_refused_by_a_queue(self) -> None:
        for end in self.links.ends:
            assert end.queue.stats.rx_invalid == end.queue.stats.rx_dropped == end.queue.stats.tx_lost == 0

    @invariant()
    def only_what_was_sent_in_order(self) -> None:
        for end, other in (self.links.ends, self.links.ends[::-1]):
            assert end.delivered == other.sent[: len(end.delivered)]

    @invariant()
    def kept_frames_have_a_limit(self) -> None:
        assert all(len(end.kept) <= self.kept_max for end in self.links.ends)

    def come_to_rest(self) -> None:
        """Everything that is held goes back, what is kept stays."""
        for _ in range(8):
            self.links.settle()
            for end in self.links.ends:
                end.recycle(len(end.held))
            self.links.settle()
            self.links.advance(60)

    def teardown(self) -> None:
        if not hasattr(self, "links"):
            return
        try:
            self.come_to_rest()
            self.only_what_was_sent_in_order()
            for end, other in (self.links.ends, self.links.ends[::-1]):
                assert end.up and end.link.error == 0
                assert end.delivered == other.sent
                assert end.credits == self.window, "what is kept holds no credit"
                while end.kept:
                    end.let_go(0)
        finally:
            self.links.close()
