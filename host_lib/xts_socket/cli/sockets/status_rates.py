"""What `xts status` computes from two looks: rates; and its listing as CSV, a row for each socket."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xts_messages.attaching.waits import HOST_REASONS

if TYPE_CHECKING:
    from .attached import Entry, Process

#: Counters of sockets, and of processes in addition to the sums of their sockets.
COUNTED = ("sent_bytes", "received_bytes")
COUNTED_BY_PROCESS = ("sleeps", "spins")

Rates = Mapping[str, float]


@dataclass(slots=True)
class Looks:
    """The counters of the last look, by socket and by process; a socket that is new has no rates."""

    _at: float = 0.0
    _before: dict[Any, dict[str, int]] = field(default_factory=dict)
    _rates: dict[Any, dict[str, float]] = field(default_factory=dict)

    def look(self, attached: Iterable[Process], now: float | None = None) -> None:
        """Takes another look. `now`: by time.monotonic()."""
        now = time.monotonic() if now is None else now
        found: dict[Any, dict[str, int]] = {}
        for process in attached:
            sums = dict.fromkeys(COUNTED, 0) | {name: getattr(process, name) for name in COUNTED_BY_PROCESS}
            for entry in process.entries:
                mine = {name: getattr(entry, name) for name in COUNTED}
                found[_key(process, entry)] = mine
                for name, number in mine.items():
                    sums[name] += number
            found[_key(process, None)] = sums
        passed_s = now - self._at
        self._rates = {
            key: {f"{name}_per_s": max(0, number - self._before[key][name]) / passed_s for name, number in mine.items()}
            for key, mine in found.items()
            if key in self._before and passed_s > 0
        }
        self._at, self._before = now, found

    def of(self, process: Process, entry: Entry | None = None) -> Rates:
        """The rates of one of its sockets, or of the process; {} at the first look. Bytes of sockets that have been
        closed since are not in a process's rate."""
        return self._rates.get(_key(process, entry), {})

    @property
    def has_looked(self) -> bool:
        return bool(self._at)

    @property
    def are_there(self) -> bool:
        return bool(self._rates)


def _key(process: Process, entry: Entry | None) -> tuple[object, ...]:
    return (process.pid, process.epoch, *((entry.xts_socket, entry.proxy_id) if entry else ()))


def text(rates: Rates, name: str) -> str:
    """For people; "" if it is not known yet."""
    rate = rates.get(f"{name}_per_s")
    if rate is None:
        return ""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.1f}{unit}"
    return f"{rate:.0f}"


# --- CSV -----------------------------------------------------------------------------------------------

_OF_PROCESS = ("pid", "uid", "program", "queue_kind", "queue_id", "interface")
_OF_ENTRY = ("state", "local", "peer", *COUNTED, "recv_queue", "send_credits", "recv_window")
_RATES = tuple(f"{name}_per_s" for name in COUNTED)
_WAITS = tuple(f"wait_{name}_s" for name in HOST_REASONS)
COLUMNS = ("time", *_OF_PROCESS, *_OF_ENTRY, *_RATES, "layers", "tls", "xts_socket", "proxy_id", *_WAITS)


def write_csv(attached: Sequence[Process], looks: Looks, *, head: bool, listening: bool) -> None:
    """Writes to standard output: a row for each socket, with the time of the look as Unix time in seconds. `head`:
    writes the names of the columns first."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if head:
        writer.writerow(COLUMNS)
    now = f"{time.time():.3f}"
    for process in attached:
        for entry in process.entries:
            if listening and entry.state != "LISTEN":
                continue
            rates = looks.of(process, entry)
            writer.writerow(
                [
                    now,
                    *(cell(getattr(process, name)) for name in _OF_PROCESS),
                    *(getattr(entry, name) for name in _OF_ENTRY),
                    *(round(rates[name], 1) if name in rates else "" for name in _RATES),
                    "/".join(entry.send_layers).lower(),
                    entry.tls.version if entry.tls else "",
                    *(entry.xts_socket, entry.proxy_id),
                    *(entry.waits.by_reason[name].ns / 1e9 if entry.waits else "" for name in HOST_REASONS),
                ]
            )
    sys.stdout.flush()


def cell(value: object) -> object:
    """A program chooses its own name: one that a spreadsheet would take for a formula is written as text."""
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
