"""The tables of states agree with themselves, and the pages made from them with the tables."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from beds.native_core import compiler
from xts_docs import states
from xts_proxy.status.connection_rows import CONNECTION_STATES

TOP = Path(__file__).resolve().parents[3]
TABLES = {"connection": states.connections(), "socket": states.sockets(), "owner": states.owners()}
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


#: Looks at an object as a build with XTS_DEBUG does: LIBRARY FUNCTION NUMBER NUMBER.
LOOK = """
import ctypes, sys
from xts_proxy._native import ffi, lib
look = getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])
copy = ffi.new("struct xts_state_table *", lib.xts_connection_states)
table, visited = ctypes.c_void_p(int(ffi.cast("uintptr_t", copy))), ctypes.create_string_buffer(33 * 4)
look(table, visited, 7, int(sys.argv[3]), int(sys.argv[4]))
"""


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checks of a build with XTS_DEBUG."""
    made = tmp_path_factory.mktemp("states") / "state_table.so"
    native = TOP / "messages" / "native"
    source = native / "common" / "state_table.c"
    command = [compiler(), "-DXTS_DEBUG", "-D_GNU_SOURCE", f"-I{native}", "-shared", "-fPIC", "-o", str(made)]
    subprocess.run([*command, str(source)], check=True)
    return made


@pytest.mark.parametrize(
    ("function", "state", "other", "complaint"),
    [
        ("xts_state_rests", "established", "", ""),
        ("xts_state_rests", "closing", "fin_wanted close_reply", ""),
        ("xts_state_rests", "idle", "announced", "may not have: announced"),
        ("xts_state_rests", "closing", "close_reply", "must have: fin_wanted"),
        ("xts_state_rests", "closing", "fin_wanted", "must have exactly one of some, but has:"),
        ("xts_state_rests", "closing", "fin_wanted orphan close_reply", "but has: close_reply orphan"),
        ("xts_state_rests", "established", "announced", "announced: accepted"),
        ("xts_state_rests", "established", "accepted announced connect_reply", "connect_reply: announced"),
        ("xts_state_entered", "established", "closing", ""),
        ("xts_state_entered", "closing", "established", "state closing, established:"),
    ],
)
def test_what_is_not_legal_ends_a_debug_build(
    function: str, state: str, other: str, complaint: str, checks: Path
) -> None:
    table = TABLES["connection"]
    named, bits = [each.name for each in table.states], [flag.name for flag in table.flags]
    number = named.index(other) if function == "xts_state_entered" else sum(1 << bits.index(f) for f in other.split())
    command = [sys.executable, "-c", LOOK, str(checks), function, str(named.index(state)), str(number)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == (-signal.SIGABRT if complaint else 0), done.stderr
    assert complaint in done.stderr
