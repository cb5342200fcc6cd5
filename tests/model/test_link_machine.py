"""Two links back to back, driven by hypothesis: any order of sending, delivering, recycling and waiting, and any fault.

Without faults everything arrives, in order, and the frame credits come back. With faults a link either goes on
correctly or goes down; it never delivers a wrong, repeated or reordered message, and a loss does not stay hidden.
"""

from __future__ import annotations

import errno
from collections import deque

from beds.examples import examples
from beds.link_pair import HOST, PROXY, Pair, config, core, is_sequenced
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from xts_messages.wire import wire_table as table

ends = st.sampled_from([HOST, PROXY])
windows = st.integers(table.FRAME_WINDOW_MIN, table.FRAME_WINDOW_MAX) | st.sampled_from([4, 5, 7, 8])


class LinkMachine(RuleBasedStateMachine):
    """No faults."""

    faulty = False

    @initialize(host_window=windows, proxy_window=windows)
    def start(self, host_window: int, proxy_window: int) -> None:
        made = {"ping_ms": 20, "dead_ms": 3_600_000}
        self.pair = Pair(
            config(HOST, frame_window=host_window, **made), config(PROXY, frame_window=proxy_window, **made)
        )
        self.window = min(host_window, proxy_window)
        self.number = 0
        self.faults = 0
        for end in self.pair.ends:
            core.xts_link_watch(end.link, True, self.pair.now_ns)

    # --- what the owners of two channels do -------------------------------------------------------

    @rule(who=ends, count=st.integers(1, 200))
    def send(self, who: int, count: int) -> None:
        for _ in range(count):
            self.number += 1
            if not self.pair.ends[who].send(self.number):
                break

    @rule(who=ends, count=st.integers(1, 40))
    def receive(self, who: int, count: int) -> None:
        for _ in range(min(count, len(self.pair.ends[who].inbox))):
            self.pair.ends[who].receive(self.pair.now_ns)

    @rule(who=ends, count=st.integers(1, 130))
    def recycle(self, who: int, count: int) -> None:
        self.pair.ends[who].recycle(count)

    @rule(who=ends)
    def pump(self, who: int) -> None:
        self.pair.ends[who].pump(self.pair.now_ns)

    @rule(ms=st.sampled_from([1, 10, 20, 60]))
    def wait(self, ms: int) -> None:
        self.pair.advance(ms)

    # --- what must always hold --------------------------------------------------------------------

    @invariant()
    def windows_hold(self) -> None:
        for end, other in (self.pair.ends, self.pair.ends[::-1]):
            assert end.credits <= self.window
            if end.up and other.up and not self.faults:
                out = sum(map(is_sequenced, end.outbox))
                assert out + other.held <= self.window - end.credits, "credits and frames out, of one window"

    @invariant()
    def control_frames_are_bounded(self) -> None:
        """Once open, whatever a peer leaves unread fits into what it keeps buffers for."""
        for end in self.pair.ends:
            if end.up and not self.faults:
                control = [f for f in end.inbox if not is_sequenced(f) and f[table.ETH_BYTES] not in (16, 17)]
                assert len(control) <= table.CONTROL_RESERVE

    @invariant()
    def only_what_was_sent_in_order(self) -> None:
        for end, other in (self.pair.ends, self.pair.ends[::-1]):
            assert end.delivered == other.sent[: len(end.delivered)]

    @invariant()
    def faults_alone_end_a_link(self) -> None:
        for end in self.pair.ends:
            if not self.faults:
                assert end.error == 0
            elif end.link.state == core.XTS_LINK_DOWN:
                assert end.error in (errno.EPROTO, errno.ETIMEDOUT)
                assert end.credits == 0

    def teardown(self) -> None:
        """Everything is read and recycled, and a ping crosses each way: now nothing may be missing."""
        if not hasattr(self, "pair"):
            return
        for _ in range(6):
            self.pair.settle()
            for end in self.pair.ends:
                end.recycle(end.held)
            self.pair.settle()
            self.pair.advance(60)
        self.only_what_was_sent_in_order()
        self.faults_alone_end_a_link()
        if not self.faults:
            assert all(end.up for end in self.pair.ends)
        if all(end.up for end in self.pair.ends):
            for end, other in (self.pair.ends, self.pair.ends[::-1]):
                assert end.delivered == other.sent, "a loss stayed hidden"
                assert other.credits == self.window, "a ping brings home the last acknowledgements"


class FaultyLinkMachine(LinkMachine):
    """The queues lose, repeat, exchange, delay and cut frames."""

    faulty = True

    def _some_inbox(self, who: int) -> deque[bytes]:
        return self.pair.ends[who].inbox

    @precondition(lambda self: any(e.inbox for e in self.pair.ends))
    @rule(who=ends, at=st.integers(0, 127), count=st.sampled_from([1, 1, 1, 2, 17, 128]))
    def lose(self, who: int, at: int, count: int) -> None:
        inbox = self._some_inbox(who)
        for _ in range(count):
            if at < len(inbox):
                del inbox[at]
                self.faults += 1

    @precondition(lambda self: any(e.inbox for e in self.pair.ends))
    @rule(who=ends, at=st.integers(0, 127), later=st.integers(0, 127))
    def repeat(self, who: int, at: int, later: int) -> None:
        inbox = self._some_inbox(who)
        if at < len(inbox):
            inbox.insert(min(len(inbox), at + 1 + later), inbox[at])
            self.faults += 1

    @precondition(lambda self: any(e.inbox for e in self.pair.ends))
    @rule(who=ends, at=st.integers(0, 127), later=st.integers(1, 127))
    def delay(self, who: int, at: int, later: int) -> None:
        inbox = self._some_inbox(who)
        if at < len(inbox):
            frame = inbox[at]
            del inbox[at]
            inbox.insert(min(len(inbox), at + later), frame)
            self.faults += 1

    @precondition(lambda self: any(e.inbox for e in self.pair.ends))
    @rule(who=ends, at=st.integers(0, 127), left=st.integers(0, 31))
    def cut(self, who: int, at: int, left: int) -> None:
        inbox = self._some_inbox(who)
        if at < len(inbox):
            inbox[at] = inbox[at][:left]
            self.faults += 1

    @precondition(lambda self: any(e.inbox for e in self.pair.ends))
    @rule(who=ends, at=st.integers(0, 127), where=st.sampled_from([14, 15]), value=st.integers(0, 255))
    def scribble(self, who: int, at: int, where: int, value: int) -> None:
        """On what the link itself reads; no checksum protects the rest, as memory needs none."""
        inbox = self._some_inbox(who)
        if at >= len(inbox) or len(inbox[at]) <= where or not is_sequenced(inbox[at]) or inbox[at][where] == value:
            return
        if where == 15 or (core.xts_type_sequenced(value) and not core.xts_type_bytes(value)):
            inbox[at] = inbox[at][:where] + bytes([value]) + inbox[at][where + 1 :]
            self.faults += 1


TestLink = LinkMachine.TestCase
TestLink.settings = examples(60, stateful_step_count=60)
TestFaultyLink = FaultyLinkMachine.TestCase
TestFaultyLink.settings = examples(150, stateful_step_count=50)
