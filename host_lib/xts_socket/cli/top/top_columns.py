"""The columns of `xts top`: of sockets, and of groups of them. `--json` and `--csv` need this file, so it does without
the package textual, which is optional."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..sockets.grouped import Group
from ..sockets.joined import Row


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `text` and `order` are computed from a row's object. Numbers are aligned to the right, and sorted from
    the largest."""

    title: str
    width: int
    text: Callable[[Any], str]
    order: Callable[[Any], Any]
    number: bool = False


def rate(value: float | None) -> str:
    """A number with a unit prefix; "" if it is not known."""
    if value is None:
        return ""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value:.0f}"


def duration(ns: float) -> str:
    """As short as possible while readable."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1e12 else f"{ns / 1e9:.0f} s"
    return f"{ns:.0f} ns"


def _number(title: str, width: int, value: Callable[[Any], float | None]) -> Column:
    return Column(title, width, lambda item: rate(value(item)), lambda item: value(item) or 0, number=True)


def _text(title: str, width: int, value: Callable[[Any], str]) -> Column:
    return Column(title, width, value, value)


#: A terminal of 80 columns has the first six: who it is, what it waits for, and how fast it is.
SOCKETS: tuple[Column, ...] = (
    _text("Program", 16, lambda row: f"{row.program or '?'} ({row.pid})"),
    _text("State", 10, lambda row: row.state or row.proxy_state or ""),
    _text("Waits for", 13, lambda row: row.waits_for),
    _text("Peer", 21, lambda row: row.peer),
    _number("Sent/s", 6, lambda row: row.sent_per_s),
    _number("Recv/s", 6, lambda row: row.received_per_s),
    _text("Local", 21, lambda row: row.local),
    _number("Recv-Q", 6, lambda row: row.recv_queue),
    _number("Credits", 7, lambda row: row.send_credits),
    _number("Spill", 6, lambda row: row.spill_bytes),
    _number("RTT us", 7, lambda row: row.tcp and row.tcp.rtt_us),
    _number("Retr", 5, lambda row: row.tcp and row.tcp.retransmits),
    _number("Cwnd", 5, lambda row: row.tcp and row.tcp.cwnd_segments),
    _text("Layers", 10, lambda row: row.layers),
    _text("Tenant", 10, lambda row: row.tenant or ""),
    _text("Queue", 12, lambda row: row.queue),
)


def _groups(title: str) -> tuple[Column, ...]:
    return (
        _text(title, 22, lambda group: group.name),
        _number("Sockets", 7, lambda group: group.sockets),
        _number("Sent/s", 7, lambda group: group.sent_per_s),
        _number("Recv/s", 7, lambda group: group.received_per_s),
        _text("Wait for", 40, lambda group: group.waits_for),
        _number("Sent", 7, lambda group: group.sent_bytes),
        _number("Recv", 7, lambda group: group.received_bytes),
        _number("Recv-Q", 6, lambda group: group.recv_queue),
        _number("Window", 7, lambda group: group.window_bytes),
        _number("Spill", 7, lambda group: group.spill_bytes),
        _number("Retr", 5, lambda group: group.retransmits),
    )


GROUPS: Mapping[str, tuple[Column, ...]] = {
    name: _groups(name.capitalize()) for name in ("process", "queue", "tenant", "worker", "peer")
}


def key_of(item: Row | Group) -> object:
    """The key that stays the same from look to look."""
    return item.key if isinstance(item, Row) else item.name


def matches(row: Row, words: str) -> bool:
    """Does a socket contain all these words, in any field? name=value asks for one field: state=ESTAB."""
    for word in words.lower().split():
        name, equals, value = word.partition("=")
        if equals and hasattr(row, name):
            if value not in str(getattr(row, name)).lower():
                return False
        elif word not in _searched(row):
            return False
    return True


def _searched(row: Row) -> str:
    texts = (row.program, str(row.pid), row.state, row.proxy_state, row.local, row.peer, row.waits_for, row.layers)
    return " ".join(filter(None, (*texts, row.tenant, row.queue, f"{row.xts_socket:#x}"))).lower()
