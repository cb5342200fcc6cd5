"""Sockets summed by process, queue, tenant or worker, for `xts top`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from .joined import Row

BY: Mapping[str, Callable[[Row], str]] = {
    "process": lambda row: f"{row.program or '?'} ({row.pid})",
    "queue": lambda row: row.queue,
    "tenant": lambda row: row.tenant or "?",
    "worker": lambda row: "?" if row.worker is None else str(row.worker),
    "peer": lambda row: row.peer.rpartition(":")[0] or "*",
}


@dataclass(slots=True)
class Group:
    """Sums over sockets. `waiting`: how many of them wait now, by reason."""

    name: str
    sockets: int
    sent_bytes: int
    received_bytes: int
    sent_per_s: float
    received_per_s: float
    recv_queue: int
    window_bytes: int
    spill_bytes: int
    retransmits: int
    waiting: dict[str, int]

    @property
    def waits_for(self) -> str:
        """The reason for which most of the waiting ones wait."""
        most = sorted(self.waiting.items(), key=lambda item: (-item[1], item[0]))
        return ", ".join(f"{count} {what}" for what, count in most[:3])

    def flat(self) -> dict[str, Any]:
        """By column."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return found | {"waiting": self.waits_for}


COLUMNS = tuple(each.name for each in fields(Group))


def grouped(rows: Iterable[Row], by: str) -> list[Group]:
    """The groups, in the order in which they first occur."""
    name_of = BY[by]
    found: dict[str, Group] = {}
    for row in rows:
        name = name_of(row)
        group = found.get(name)
        if group is None:
            group = found[name] = Group(name, 0, 0, 0, 0.0, 0.0, 0, 0, 0, 0, {})
        group.sockets += 1
        group.sent_bytes += row.sent_bytes
        group.received_bytes += row.received_bytes
        group.sent_per_s += row.sent_per_s or 0.0
        group.received_per_s += row.received_per_s or 0.0
        group.recv_queue += (row.recv_queue or 0) if row.state != "LISTEN" else 0
        group.window_bytes += row.window_bytes or 0
        group.spill_bytes += row.spill_bytes or 0
        group.retransmits += row.tcp.retransmits if row.tcp else 0
        if row.waits_for:
            group.waiting[row.waits_for] = group.waiting.get(row.waits_for, 0) + 1
    return list(found.values())
