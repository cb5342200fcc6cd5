"""Post credits: the C accounts of both ends, against a Python oracle and the conservation law."""

from __future__ import annotations

import errno
from collections import deque
from dataclasses import dataclass, field

import pytest
from beds.examples import examples
from beds.native_core import load
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from xts_messages.wire import wire_table as table

ffi, core = load()
EPROTO = -errno.EPROTO


@dataclass
class Oracle:
    """One direction of a connection, with every byte of credit in exactly one place."""

    held: int  # with the sender
    in_flight: deque[int] = field(default_factory=deque)  # messages on their way
    buffered: int = 0
    unadvertised: int = 0
    adverts: deque[int] = field(default_factory=deque)  # on their way back

    @property
    def total(self) -> int:
        return self.held + sum(self.in_flight) + self.buffered + self.unadvertised + sum(self.adverts)


class CreditMachine(RuleBasedStateMachine):
    """A sender and a receiver, in any order, with any sizes down to the smallest window."""

    @initialize(window=st.integers(2, 64) | st.integers(2, table.CREDITS_MAX // 4))
    def start(self, window: int) -> None:
        self.grant = ffi.new("struct xts_credit_grant *")
        core.xts_credit_grant_init(self.grant, window)
        self.held = ffi.new("uint32_t *", 0)
        assert core.xts_credit_add(self.held, window) == 0
        self.window = window
        self.excess = 0
        self.oracle = Oracle(window)

    @rule(share=st.floats(0, 1))
    def send(self, share: float) -> None:
        count = int(self.held[0] * share) or min(1, self.held[0])
        self.held[0] -= count
        self.oracle.held -= count
        self.oracle.in_flight.append(count)

    @rule()
    def arrive(self) -> None:
        if self.oracle.in_flight:
            count = self.oracle.in_flight.popleft()
            assert core.xts_credit_receive(self.grant, count) == 0
            self.oracle.buffered += count

    @rule(share=st.floats(0, 1))
    def read(self, share: float) -> None:
        count = int(self.oracle.buffered * share) or min(1, self.oracle.buffered)
        core.xts_credit_free(self.grant, count)
        self.oracle.buffered -= count
        self.freed(count)

    def freed(self, count: int) -> None:
        kept = min(count, self.excess)
        self.excess -= kept
        self.window -= kept
        self.oracle.unadvertised += count - kept

    @rule(always=st.booleans())
    def advertise(self, always: bool) -> None:
        """A pure advertisement when one is due, or credits that ride on data at any time."""
        assert core.xts_credit_due(self.grant) == (self.oracle.unadvertised > self.window // 4)
        if always or core.xts_credit_due(self.grant):
            count = core.xts_credit_advertise(self.grant)
            assert count == self.oracle.unadvertised
            self.oracle.adverts.append(count)
            self.oracle.unadvertised = 0

    @rule()
    def advert_arrives(self) -> None:
        if self.oracle.adverts:
            count = self.oracle.adverts.popleft()
            assert core.xts_credit_add(self.held, count) == 0
            self.oracle.held += count

    @rule(count=st.integers(1, 1 << 20))
    def grow(self, count: int) -> None:
        if self.window + count <= table.CREDITS_MAX:
            core.xts_credit_grow(self.grant, count)
            self.window += count
            self.excess = 0
            self.oracle.unadvertised += count

    @rule(share=st.floats(0, 1))
    def shrink(self, share: float) -> None:
        window = max(2, int(self.window * share))
        core.xts_credit_shrink(self.grant, window)
        self.excess = max(0, self.window - window)
        free, self.oracle.unadvertised = self.oracle.unadvertised, 0
        self.freed(free)

    @rule(excess=st.integers(1, 1 << 20))
    def too_much_is_refused(self, excess: int) -> None:
        before = bytes(ffi.buffer(self.grant))
        assert core.xts_credit_receive(self.grant, self.grant.outstanding + excess) == EPROTO
        assert bytes(ffi.buffer(self.grant)) == before, "a refused message changes nothing"

    @invariant()
    def conservation(self) -> None:
        if not hasattr(self, "oracle"):
            return
        assert self.oracle.total == self.window == self.grant.window
        assert self.held[0] == self.oracle.held
        assert core.xts_credit_buffered(self.grant) == self.oracle.buffered
        assert self.grant.unadvertised == self.oracle.unadvertised
        assert self.grant.outstanding == self.oracle.held + sum(self.oracle.in_flight) + sum(self.oracle.adverts)

    def teardown(self) -> None:
        """Once all is read, the sender can go on: nothing is stuck below the limit."""
        if not hasattr(self, "oracle"):
            return
        while self.oracle.in_flight:
            self.arrive()
        self.read(1.0)
        self.advertise(False)
        while self.oracle.adverts:
            self.advert_arrives()
        self.conservation()
        assert self.oracle.buffered == 0
        assert self.held[0] >= self.window - self.window // 4 > 0


TestCredits = CreditMachine.TestCase
TestCredits.settings = examples(150, stateful_step_count=60)


@given(st.integers(0, table.CREDITS_MAX), st.integers(0, 0xFFFFFFFF))
def test_adding_an_advert(held: int, advert: int) -> None:
    account = ffi.new("uint32_t *", held)
    legal = held + advert <= table.CREDITS_MAX
    assert core.xts_credit_add(account, advert) == (0 if legal else EPROTO)
    assert account[0] == (held + advert if legal else held)


@given(st.integers(2, table.CREDITS_MAX))
def test_the_limit_leaves_room_for_a_message(window: int) -> None:
    """Deadlock-free: the largest indivisible message, one byte of TCP data, and the limit fit into the window."""
    grant = ffi.new("struct xts_credit_grant *")
    core.xts_credit_grant_init(grant, window)
    assert grant.outstanding == grant.window == window
    assert grant.limit + 1 <= window
    assert not core.xts_credit_due(grant)


@pytest.mark.parametrize("window", [2, 3, 4, 5, 8])
def test_the_smallest_windows_make_progress(window: int) -> None:
    """A thousand bytes through a window of a few, one byte read at a time, with adverts only when due."""
    grant, held = ffi.new("struct xts_credit_grant *"), ffi.new("uint32_t *", window)
    core.xts_credit_grant_init(grant, window)
    passed = 0
    while passed < 1000:
        assert held[0] > 0, "stuck"
        held[0] -= 1
        assert core.xts_credit_receive(grant, 1) == 0
        core.xts_credit_free(grant, 1)
        if core.xts_credit_due(grant):
            assert core.xts_credit_add(held, core.xts_credit_advertise(grant)) == 0
        passed += 1
