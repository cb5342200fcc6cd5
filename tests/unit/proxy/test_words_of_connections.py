"""What workers were told of connections that no process has, for those that come after them (over_words.py)."""

from __future__ import annotations

from xts_proxy.queues.over_words import KEPT_S, WORDS_MAX, OverWords


def test_the_next_workers_hear_what_was_said_a_short_time_ago() -> None:
    now = 0.0
    words = OverWords(lambda: now)
    assert list(words.recent()) == []
    words.note("one", [1, 2])
    now = KEPT_S - 1
    words.note("other", [3])
    assert list(words.recent()) == [("one", [1, 2]), ("other", [3])]
    now = KEPT_S + 1
    assert list(words.recent()) == [("other", [3])]
    now = 2 * KEPT_S
    assert list(words.recent()) == []


def test_there_are_not_more_than_so_many() -> None:
    words = OverWords(lambda: 0.0)
    for key in range(2 * WORDS_MAX):
        words.note("one", [key])
    assert [keys[0] for _, keys in words.recent()] == list(range(WORDS_MAX, 2 * WORDS_MAX))
