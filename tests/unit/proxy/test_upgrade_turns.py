"""Whose turn it is when a proxy hands over (leaving.py): a host waits for its own channel, and not for those of
others."""

from __future__ import annotations

import time
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from xts_proxy.upgrade.leaving import LONG_S, Leaving, is_about_to_answer, may_be_asked

NOBODY = cast(Any, None)
NOW = 1000.0
TICK_S = 0.002


def one(asked_s: float | None, live: bool = True) -> Leaving:
    """Asked so long ago; None: not yet."""
    return Leaving(NOBODY, live, asked_s is not None, NOW - (asked_s or 0.0))


def test_one_host_at_a_time() -> None:
    assert may_be_asked([one(None)] * 12, NOW) == 1
    assert may_be_asked([one(0.0), *[one(None)] * 11], NOW) == 0


def test_queues_without_a_host_keep_nobody_waiting() -> None:
    assert may_be_asked([one(0.0, live=False), one(None)], NOW) == 1


def test_who_takes_long_holds_nobody_up() -> None:
    late = 2 * LONG_S
    assert may_be_asked([one(late), one(None)], NOW) == 2
    assert may_be_asked([one(late), one(0.0), one(None)], NOW) == 1
    assert may_be_asked([one(late), one(0.0), one(0.0), one(None)], NOW) == 0


@given(takes_s=st.lists(st.sampled_from([0.005, 0.01, 0.05, 10.0]), min_size=1, max_size=300))
def test_all_are_asked(takes_s: list[float]) -> None:
    """Those that are stopped, which are many at worst, included. No two that are quick wait at a time."""
    waiting = [(Leaving(NOBODY, True), seconds) for seconds in takes_s]
    now = NOW
    while not all(channel.asked for channel, _ in waiting):
        here = [(one, seconds) for one, seconds in waiting if not one.asked or one.asked_at + seconds > now]
        more = may_be_asked((one for one, _ in here), now)
        for channel in [one for one, _ in here if not one.asked][: max(0, more)]:
            channel.asked, channel.asked_at = True, now
        if max(takes_s) < LONG_S:
            assert sum(one.asked for one, _ in here) <= 1
        now += TICK_S
    quick = sum(seconds + TICK_S for seconds in takes_s if seconds < LONG_S)
    late = sum(1 for seconds in takes_s if seconds >= LONG_S)
    assert now - NOW <= quick + (LONG_S + 2 * TICK_S) * (1 + late.bit_length()) + 0.05 * (late > 0), (quick, late)


def test_who_was_asked_just_now_is_looked_at_often() -> None:
    """It waits from its answer on. Queues without a host, and those that do not answer soon, make nobody wait."""
    now = time.monotonic()
    rows = {name: Leaving(NOBODY, live, True, at) for name, live, at in (("now", True, now), ("late", True, now - 60))}
    assert is_about_to_answer(rows.values(), 30)
    assert not is_about_to_answer([rows["late"], Leaving(NOBODY, False, True, now), Leaving(NOBODY, True)], 30)
