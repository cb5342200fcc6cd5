"""The table of a connection's states agrees with itself, and the page made from it with the table."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from xts_docs import states
from xts_proxy.workers import CONNECTION_STATES

TOP = Path(__file__).resolve().parents[2]


def test_the_page_is_of_this_table() -> None:
    for name, made in ((states.PAGE, states.page), (states.PICTURE, states.picture)):
        assert (TOP / name).read_text() == made(), "run python -m xts_docs.states"


def test_states_are_those_of_the_status() -> None:
    assert tuple(state.name for state in states.states()[:-1]) == CONNECTION_STATES


@pytest.mark.parametrize("state", states.states(), ids=lambda state: state.name)
def test_a_state_allows_what_it_has_to_have(state: states.State) -> None:
    assert not state.must & ~state.may
    assert not state.one & ~state.may
    for i, flag in enumerate(states.flags()):
        if state.may >> i & 1:
            assert not flag.needs & ~state.may, f"{flag.name} needs flags that {state.name} does not allow"
        if state.must >> i & 1:
            assert not flag.excludes & state.must


def test_no_flag_needs_what_it_excludes() -> None:
    for flag in states.flags():
        assert not flag.needs & flag.excludes, flag.name


def test_every_state_is_reached_and_left() -> None:
    last = len(states.states()) - 1
    assert {change.to for change in states.changes()} | {0} == set(range(last + 1))
    assert {change.origin for change in states.changes()} == set(range(last))


def test_what_was_not_visited_is_listed() -> None:
    named, changes = states.states(), states.changes()
    seen_flags = [state.may for state in named] + [0] * (8 - len(named))
    seen_changes = [sum(1 << c.to for c in changes if c.origin == i) for i in range(8)]
    assert not list(states.unreached(struct.pack("=17I", *seen_flags, *seen_changes, 0x7F)))
    seen_flags[0] &= ~1
    seen_changes[1] &= ~(1 << 2)
    assert list(states.unreached(struct.pack("=17I", *seen_flags, *seen_changes, 0x7F & ~8))) == [
        "state idle with `in_epoll`",
        "state listener",
        "change from connecting to established: TCP is connected, and handshakes are done",
    ]
