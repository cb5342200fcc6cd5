"""The interfaces of `xts status`: how the agent's queues are bound, and what the kernel has dropped there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from xts_messages.attaching.attach import OfferedQueues, list_queues
from xts_messages.terminal.printable import printable

#: What a reason of struct xts_attach_drops means.
_REASONS = {
    "rx_dropped": "for another reason",
    "rx_ring_full": "its process was too slow",
    "rx_no_buffers": "its process gave no buffers back",
    "rx_invalid": "buffers that are none",
    "tx_invalid": "frames to send that are none",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """An interface. `copying`: "zero copy: " or "copy mode: ", and why. `drops`: by reason."""

    interface: str
    copying: str
    drops: dict[str, int]


def ask(path: str) -> list[Shown]:
    """The interfaces of the endpoint; none over shared memory, or where the endpoint does not say."""
    try:
        return [_shown(one) for one in list_queues(path) if one.copying]
    except OSError:
        return []


def _shown(offered: OfferedQueues) -> Shown:
    return Shown(printable(offered.interface), printable(offered.copying), asdict(offered.drops))


def lines(found: list[Shown]) -> Iterator[str]:
    """For people."""
    for one in found:
        dropped = [f"{count} ({_REASONS[name]})" for name, count in one.drops.items() if count]
        yield f"interface {one.interface}: {one.copying}" + (f"; dropped: {', '.join(dropped)}" if dropped else "")
