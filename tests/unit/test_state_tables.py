"""The tables of states agree with themselves, and the pages made from them with the tables."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from xts_docs import states
from xts_proxy.connection_rows import CONNECTION_STATES

TOP = Path(__file__).resolve().parents[2]
TABLES = {"connection": states.connections(), "socket": states.sockets()}
EACH = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


@pytest.mark.parametrize("name", states.FILES)
def test_the_pages_are_of_these_tables(name: str) -> None:
    assert (TOP / name).read_text() == states.FILES[name](), "run python -m xts_docs.states"


def test_states_are_those_of_the_status() -> None:
    assert tuple(state.name for state in TABLES["connection"].states[:-1]) == CONNECTION_STATES


@EACH
def test_a_state_allows_what_it_has_to_have(table: states.Table) -> None:
    for state in table.states:
        assert not state.must & ~state.may
        assert not state.one & ~state.may
        for i, flag in enumerate(table.flags):
            if state.may >> i & 1:
                assert not flag.needs & ~state.may, f"{flag.name} needs flags that {state.name} does not allow"
            if state.must >> i & 1:
                assert not flag.excludes & state.must


@EACH
def test_no_flag_needs_what_it_excludes(table: states.Table) -> None:
    for flag in table.flags:
        assert not flag.needs & flag.excludes, flag.name


@EACH
def test_every_state_is_reached_and_left(table: states.Table) -> None:
    last = len(table.states) - 1
    assert {change.to for change in table.changes} | {0} == set(range(last + 1))
    assert {change.origin for change in table.changes} | {last} == set(range(last + 1))


def test_what_was_not_visited_is_listed() -> None:
    table = TABLES["connection"]
    named, changes = table.states, table.changes
    seen_flags = [state.may for state in named] + [0] * (16 - len(named))
    seen_changes = [sum(1 << c.to for c in changes if c.origin == i) for i in range(16)]
    assert not list(states.unreached(table, struct.pack("=33I", *seen_flags, *seen_changes, 0x7F)))
    seen_flags[0] &= ~1
    seen_changes[1] &= ~(1 << 2)
    assert list(states.unreached(table, struct.pack("=33I", *seen_flags, *seen_changes, 0x7F & ~8))) == [
        "state idle with `in_epoll`",
        "state listener",
        "change from connecting to established: TCP is connected, and handshakes are done",
    ]
