"""Writes the pages about states: `PYTHONPATH=deploy python -m xts_docs.states [--check]`.

Their sources are the tables that debug builds assert: of the proxy's connections
(dpu_proxy/native/connection/connection_states.c), of libxts's sockets (host_lib/native/core/socket_states.c), and of
who has one (host_lib/native/core/owner_states.c). With --check nothing is written; the exit status is 1 when a page
that is committed differs. With --visited FILE, which a build with XTS_DEBUG and XTS_VISITED_STATES has written (and
FILE-sockets, FILE-owners), it lists the legal states and changes of state that no test has visited.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xts_proxy.native
import xts_socket.native
from xts_messages.generate import generated

#: As struct xts_states_visited has room for.
_STATES_MAX = 16


@dataclass(frozen=True, slots=True)
class State:
    """A state; sets of flags are masks."""

    name: str
    meaning: str
    may: int
    must: int
    one: int


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of a connection; needs and excludes are masks of others."""

    name: str
    meaning: str
    needs: int
    excludes: int


@dataclass(frozen=True, slots=True)
class Change:
    """One state follows another; both are indices."""

    origin: int
    to: int
    when: str


@dataclass(frozen=True, slots=True)
class Table:
    """A struct xts_state_table."""

    states: list[State]
    flags: list[Flag]
    changes: list[Change]


def _read(ffi: Any, c: Any) -> Table:
    def text(pointer: Any) -> str:
        return bytes(ffi.string(pointer)).decode()

    rules = {rule.flag: rule for rule in c.rules[0 : c.rule_count]}
    return Table(
        [State(text(s.name), text(s.meaning), s.may, s.must, s.one) for s in c.states[0 : c.state_count]],
        [
            Flag(text(f.name), text(f.meaning), getattr(rules.get(i), "needs", 0), getattr(rules.get(i), "excludes", 0))
            for i, f in enumerate(c.flags[0 : c.flag_count])
        ],
        [Change(change.before, change.after, text(change.when)) for change in c.changes[0 : c.change_count]],
    )


def connections() -> Table:
    """The proxy's."""
    return _read(xts_proxy.native.ffi, xts_proxy.native.lib.xts_connection_states)


def sockets() -> Table:
    """Those of libxts."""
    return _read(xts_socket.native.ffi, xts_socket.native.lib.xts_socket_states())


def owners() -> Table:
    """Who has a socket of libxts."""
    return _read(xts_socket.native.ffi, xts_socket.native.lib.xts_owner_states())


def _names(mask: int, of: list[Flag]) -> list[str]:
    return [f"`{flag.name}`" for i, flag in enumerate(of) if mask >> i & 1]


# --- the picture ---------------------------------------------------------------------------------------

#: Where a state stands: the middle of its box. The last has the whole width below.
_PLACES = ((100, 70), (400, 70), (700, 70), (100, 230), (1000, 70), (400, 230), (700, 230), (550, 350))
_WIDE, _NARROW, _LAST_WIDE, _HIGH = 150, 110, 1050, 44
#: Between the two arrows of a pair, and from the edge of the picture.
_APART = 16


def _arrow(change: Change, both: bool) -> str:
    (x1, y1), (x2, y2) = _PLACES[change.origin], _PLACES[change.to]
    last = len(_PLACES) - 1
    if change.to == last:
        x, bottom = x1 + (66 if y1 == _PLACES[0][1] else 20), _PLACES[last][1] - _HIGH // 2
        return f"M{x} {y1 + _HIGH // 2} L{x} {bottom}"
    if y1 == y2 and abs(x2 - x1) > 300:  # over the box between them
        top, away = y1 - _HIGH // 2, 30 if change.origin < change.to else 46
        start, end = (x1 - 20, x2 - 20) if change.origin < change.to else (x1 + 20, x2 + 20)
        return f"M{start} {top} C{start} {top - away} {end} {top - away} {end} {top}"
    if y1 == y2:
        side, shift = (1 if x2 > x1 else -1), (_APART // 2 if both else 0) * (1 if x2 > x1 else -1)
        return f"M{x1 + side * _WIDE // 2} {y1 + shift} L{x2 - side * _WIDE // 2} {y2 + shift}"
    shift = (_APART if both else 0) * (1 if y2 > y1 else -1)
    down = 1 if y2 > y1 else -1
    lean = 0 if x1 == x2 else 30 if x2 > x1 else -30
    return f"M{x1 + lean + shift} {y1 + down * _HIGH // 2} L{x2 - lean + shift} {y2 - down * _HIGH // 2}"


def picture() -> str:
    """The states of a connection and their changes, as SVG."""
    table = connections()
    named, all_changes = table.states, table.changes
    pairs = {(c.origin, c.to) for c in all_changes}
    width, height = 1100, 390
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<marker id="head" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L10 5 L0 10 z" fill="#444"/></marker>',
    ]
    for c in all_changes:
        path = _arrow(c, (c.to, c.origin) in pairs)
        title = f"<title>{c.when}</title>"
        lines.append(f'<path d="{path}" fill="none" stroke="#444" marker-end="url(#head)">{title}</path>')
    for i, state in enumerate(named):
        x, y = _PLACES[i]
        wide = _LAST_WIDE if i == len(named) - 1 else _WIDE if y == _PLACES[0][1] else _NARROW
        lines.append(
            f'<rect x="{x - wide // 2}" y="{y - _HIGH // 2}" width="{wide}" height="{_HIGH}" rx="8" fill="#e8eef7" '
            f'stroke="#345"/><text x="{x}" y="{y + 5}" text-anchor="middle">{state.name}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


# --- the pages -----------------------------------------------------------------------------------------

_CONNECTIONS = """\
# States of a connection

<!-- Made by `python -m xts_docs.states` from dpu_proxy/native/connection/connection_states.c. -->

What a worker of the proxy knows of a connection is one state and a set of flags. The table below
says which flags each state allows. Builds with `XTS_DEBUG` assert it, together with the
conservation law of [flow control](flow-control.md), wherever a connection has been worked on and
rests. `python -m xts_docs.states --visited FILE` lists what the tests of such a build have not
visited. [States of a socket](socket-states.md) are the other end's.

![The states and their changes](../images/connection-states.svg)
"""

_SOCKETS = """\
# States of a socket

<!-- Made by `python -m xts_docs.states` from host_lib/native/core/socket_states.c. -->

libxts keeps the kernel's own variables for a socket: `sk_state`, the phase of connect (`SS_*`),
`sk_shutdown`, `sk_err`. The states below are the pairs of the first two that there are. Each has
the flags that it may have. Builds with `XTS_DEBUG` assert it at each change of state, and whenever
a call or a message looks up the socket. `python -m xts_docs.states --visited FILE` lists what the
tests of such a build have not visited. [States of a connection](connection-states.md) are the
proxy's. [Who has a socket](socket-owners.md), of the processes that may, is a second state.
"""

_OWNERS = """\
# Who has a socket

<!-- Made by `python -m xts_docs.states` from host_lib/native/core/owner_states.c. -->

After fork, exec, or passing over a Unix socket, several processes may have one socket. A connection
is used by one of them at a time; listeners, bound sockets and datagram sockets are of all. The
states below say what this process knows of that, in addition to the
[states of the socket](socket-states.md). Builds with `XTS_DEBUG` assert them in the same places.
"""


def page(introduction: str, table: Table) -> str:
    """A page, as Markdown."""
    named, bits = table.states, table.flags
    always = 0xFFFFFFFF
    for state in named[:-1]:
        always &= state.may
    has_must = any(state.must or state.one for state in named[:-1])
    out = [introduction, "| State | What it is | Flags it may have |" + " Flags it must have |" * has_must]
    out.append("|---|---|---|" + "---|" * has_must)
    for state in named:
        may = "any" if state.may == 0xFFFFFFFF else ", ".join(_names(state.may & ~always & ~state.must, bits))
        must = ", ".join(_names(state.must, bits))
        if state.one:
            must += f"{', and ' if must else ''}one of {', '.join(_names(state.one, bits))}"
        out.append(f"| {state.name} | {state.meaning} | {may} |" + f" {must} |" * has_must)
    out += ["", generated.wrapped(f"Any state may have {', '.join(_names(always, bits))}."), "", "## Flags", ""]
    out += ["| Flag | Meaning | Only with | Never with |", "|---|---|---|---|"]
    for flag in bits:
        needs, excludes = (", ".join(_names(mask, bits)) for mask in (flag.needs, flag.excludes))
        out.append(f"| `{flag.name}` | {flag.meaning} | {needs} | {excludes} |")
    out += ["", "## Changes of state", "", "| From | To | When |", "|---|---|---|"]
    out += [f"| {named[c.origin].name} | {named[c.to].name} | {c.when} |" for c in table.changes]
    return "\n".join([*out, ""])


#: What is made, by where it goes.
FILES: dict[str, Callable[[], str]] = {
    "deploy/docs/explanation/connection-states.md": lambda: page(_CONNECTIONS, connections()),
    "deploy/docs/explanation/socket-states.md": lambda: page(_SOCKETS, sockets()),
    "deploy/docs/explanation/socket-owners.md": lambda: page(_OWNERS, owners()),
    "deploy/docs/images/connection-states.svg": picture,
}


# --- what tests visit ----------------------------------------------------------------------------------


def unreached(table: Table, visited: bytes) -> Iterator[str]:
    """The legal states, flags of a state and changes that a struct xts_states_visited does not have."""
    numbers = struct.unpack(f"={2 * _STATES_MAX + 1}I", visited)
    seen_flags, seen_changes, seen_states = numbers[:_STATES_MAX], numbers[_STATES_MAX:-1], numbers[-1]
    named = table.states
    for i, state in enumerate(named[:-1]):
        if not seen_states >> i & 1:
            yield f"state {state.name}"
        else:
            yield from (f"state {state.name} with {name}" for name in _names(state.may & ~seen_flags[i], table.flags))
    for change in table.changes:
        if not seen_changes[change.origin] >> change.to & 1:
            yield f"change from {named[change.origin].name} to {named[change.to].name}: {change.when}"


def print_unreached(path: str) -> None:
    """Of all tables, as far as there are files."""
    each = {"": ("connections", connections()), "-sockets": ("sockets", sockets()), "-owners": ("owners", owners())}
    for end, (what, table) in each.items():
        file = path + end
        if Path(file).exists():
            print(f"{what}:")
            print("\n".join(unreached(table, Path(file).read_bytes())) or "every legal state has been visited")


def main(argv: list[str]) -> int:
    """Writes or checks the pages, or lists what was not visited; returns the exit status."""
    if argv[:1] == ["--visited"] and len(argv) == 2:
        print_unreached(argv[1])
        return 0
    return generated.main("xts_docs.states", __doc__, FILES, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
