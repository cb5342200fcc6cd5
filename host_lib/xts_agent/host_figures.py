"""The activity of this host's processes, by user: what their libraries write into their status pages
(xts_messages/attaching/status_page.py), and the sum for those that have ended.

A process writes its own page, and may write anything, so its figures are added only to those of its own user.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from xts_messages.attaching.attachments import Attached
from xts_messages.attaching.status_page import read_figures, read_polling, read_status_page
from xts_messages.native import ffi

#: For how many users ended processes are remembered; beyond that, the user whose processes ended first is forgotten.
USERS_MAX = 256
_COUNTED = ("sent_bytes", "received_bytes", "sleeps", "spins", "spin_misses", "spin_ns")


def _counted(status_fd: int) -> tuple[dict[str, int], int]:
    """The counters of a process, and its number of sockets. OSError: it is not a page of this version."""
    data = read_status_page(status_fd)
    head = ffi.from_buffer("struct xts_status_page *", data)
    found = {"sleeps": int(head.sleeps), "spins": int(head.spins), "sent_bytes": 0, "received_bytes": 0}
    if figures := read_figures(status_fd):
        found |= {"sent_bytes": figures.sent_bytes, "received_bytes": figures.received_bytes}
    polling = read_polling(status_fd)
    found |= {"spin_misses": polling.spin_misses if polling else 0, "spin_ns": polling.spin_ns if polling else 0}
    return found, int(head.sockets)


@dataclass(slots=True)
class HostFigures:
    """`ended()` is called for each process whose attachment ends."""

    _ended: dict[int, dict[str, int]] = field(default_factory=dict)

    def ended(self, attached: Attached) -> None:
        """Called when an attachment ends, while its page is still open."""
        with suppress(OSError):
            counted, _ = _counted(attached.status_fd)
            uid = attached.peer.uid
            before = self._ended.pop(uid, {})
            while len(self._ended) >= USERS_MAX:
                del self._ended[next(iter(self._ended))]
            self._ended[uid] = {name: before.get(name, 0) + number for name, number in counted.items()}

    def by_user(self, attachments: Iterable[Attached]) -> dict[int, dict[str, int]]:
        """For each user: the present processes and sockets, and the total counts."""
        start = {"processes": 0, "sockets": 0}
        found = {uid: start | counted for uid, counted in self._ended.items()}
        for attached in attachments:
            mine = found.setdefault(attached.peer.uid, start | dict.fromkeys(_COUNTED, 0))
            mine["processes"] += 1
            with suppress(OSError):
                counted, sockets = _counted(attached.status_fd)
                mine["sockets"] += sockets
                for name, number in counted.items():
                    mine[name] += number
        return found
