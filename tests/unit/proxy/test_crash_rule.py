"""How often another process of the workers goes on for one that has died."""

from __future__ import annotations

from xts_proxy.supervisor.crash import WITHIN_S, CrashRule


def test_the_third_within_the_time_is_one_too_many() -> None:
    rule = CrashRule(3)
    assert [rule.may_go_on(now) for now in (0.0, 1.0, 2.0)] == [True, True, False]
    assert rule.count == 3


def test_crashes_that_are_long_ago_do_not_count() -> None:
    rule = CrashRule(3)
    every = WITHIN_S / 2 + 1
    assert all(rule.may_go_on(number * every) for number in range(20))
    assert rule.may_go_on(19 * every + 1) is False  # the third since 18 * every


def test_with_none_allowed_each_is_one_too_many() -> None:
    assert CrashRule(0).may_go_on(0.0) is False
    assert CrashRule(1).may_go_on(0.0) is False
    assert CrashRule(2).may_go_on(0.0) is True
