"""What the agent has its relay say in no channel (OVER): it waits until the trunk is up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from beds.relay_in_thread import PATIENCE_S, RelayInThread
from beds.third_kind import KINDS

EPOCH = 77
#: As messages/native/relay/relay_inside.h.
WORDS_MAX = 256


@pytest.fixture(params=KINDS)
def relayed(request: pytest.FixtureRequest) -> Iterator[RelayInThread]:
    made = RelayInThread(request.param, "OVER", "RESUME_RELAYED")
    try:
        made.comes_up()
        yield made
    finally:
        made.close()


def said(relayed: RelayInThread, count: int) -> list[int]:
    """The first key of each of so many words."""
    relayed.serve(PATIENCE_S, lambda: len(relayed.proxy.words) >= count)
    assert {epoch for epoch, _ in relayed.proxy.words} == {EPOCH}
    return [keys[0] for _, keys in relayed.proxy.words]


def test_it_is_said_at_once(relayed: RelayInThread) -> None:
    keys = [(1 << 63) + number for number in range(32)]
    relayed.say_over(EPOCH, keys)
    relayed.serve(PATIENCE_S, lambda: bool(relayed.proxy.words))
    assert relayed.proxy.words == [(EPOCH, keys)]


def test_it_waits_for_the_next_process_of_the_proxy(relayed: RelayInThread) -> None:
    """The relay has heard REPLACED, and no answer to its HELLO. More than leave at a time."""
    relayed.proxy_dies()
    for number in range(20):
        relayed.say_over(EPOCH, [number])
    assert not relayed.proxy.words
    assert said(relayed, 20) == list(range(20))


def test_it_is_said_before_anybody_asks_for_the_trunk() -> None:
    """The trunk has never been up."""
    relayed = RelayInThread(KINDS[0], "OVER")
    try:
        relayed.say_over(EPOCH, [1])
        assert said(relayed, 1) == [1]
    finally:
        relayed.close()


def test_too_many_take_the_places_of_the_oldest(relayed: RelayInThread) -> None:
    relayed.proxy_dies()
    for number in range(WORDS_MAX + 5):
        relayed.say_over(EPOCH, [number])
    assert said(relayed, WORDS_MAX) == list(range(5, WORDS_MAX + 5))


def test_a_proxy_that_knows_no_such_words_is_told_none() -> None:
    """They would end its link."""
    relayed = RelayInThread(KINDS[0])
    try:
        relayed.comes_up()
        relayed.say_over(EPOCH, [1])
        relayed.serve(0.2)
        assert not relayed.proxy.words and relayed.proxy.up
    finally:
        relayed.close()
