"""Both ends of each socket in one row: what its process writes (status.py), and what the proxy reports (proxy_side.py).

The epoch of the attachment and the socket's number identify a socket at either end. A socket that only one end knows
has a row too: that of another host's process, one that has just been closed, or one whose other end cannot be asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from xts_messages.terminal.printable import printable

from ..device import offered_interfaces, proxy_side
from . import attached
from .why import NAMES, REASONS, cause


@dataclass(frozen=True, slots=True)
class Row:
    """A socket. Values of an end that has not been asked are None. Waits by name (why.py)."""

    epoch: str
    xts_socket: int
    proxy_id: int
    pid: int
    program: str
    queue: str
    state: str
    local: str
    peer: str
    layers: str
    sent_bytes: int
    received_bytes: int
    uid: int | None = None
    tenant: str | None = None
    worker: int | None = None
    recv_queue: int | None = None
    send_credits: int | None = None
    recv_window: int | None = None
    proxy_state: str | None = None
    proxy_credits: int | None = None
    window_bytes: int | None = None
    spill_bytes: int | None = None
    tcp: proxy_side.Tcp | None = None
    #: Of the CPU time of its process and of its worker, 0 to 1: for polling.
    host_polling: float | None = None
    proxy_polling: float | None = None
    waits_for: str = ""
    wait_ns: Mapping[str, int] = field(default_factory=dict)
    wait_times: Mapping[str, int] = field(default_factory=dict)
    #: Since the last look: bytes per second, and for each wait its share of the time, 0 to 1; None: the socket is new.
    sent_per_s: float | None = None
    received_per_s: float | None = None
    wait_part: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int, int]:
        return (self.epoch, self.xts_socket, self.proxy_id)

    def seen_since(self, before: Row | None, passed_s: float) -> Row:
        """The row with its rates. Peers may write anything: a count that has decreased counts as unchanged."""
        if before is None or passed_s <= 0:
            return self
        values = {name: getattr(self, name) for name in _FIELDS}
        passed_ns = passed_s * 1e9
        values["sent_per_s"] = max(0, self.sent_bytes - before.sent_bytes) / passed_s
        values["received_per_s"] = max(0, self.received_bytes - before.received_bytes) / passed_s
        values["wait_part"] = {
            name: min(1.0, max(0, ns - before.wait_ns.get(name, 0)) / passed_ns) for name, ns in self.wait_ns.items()
        }
        return Row(**values)


#: Asked of the class once: for each of 10,000 rows it took 8 % of a look's CPU time.
_FIELDS = tuple(each.name for each in fields(Row))


@dataclass(frozen=True, slots=True)
class Look:
    """Everything seen at one moment. `missing`: sentences about the ends that could not be asked."""

    at_s: float
    rows: tuple[Row, ...]
    processes: tuple[attached.Process, ...]
    proxy: proxy_side.Answer | None
    missing: tuple[str, ...]
    took_s: float = 0.0
    interfaces: tuple[offered_interfaces.Shown, ...] = ()


def look(endpoint: str, control: str, before: Look | None = None) -> Look:
    """Asks both ends. OSError: neither answers, with the error of each."""
    begun_s = time.monotonic()
    missing = []
    processes: Sequence[attached.Process] = ()
    answer: proxy_side.Answer | None = None
    try:
        processes = attached.ask(endpoint)
    except OSError as error:
        missing.append(f"host: {error.strerror or error}")
    try:
        answer = proxy_side.ask(control)
    except OSError as error:
        missing.append(f"proxy: {error.strerror or error}")
    if len(missing) == 2:
        raise OSError("; ".join(missing))
    if answer and any(connection.epoch is None for connection in answer.connections):
        missing.append(f"proxy: version {printable(answer.proxy.version)} names no epochs: its sockets stand alone")
    at_s = time.monotonic()
    known = {row.key: row for row in before.rows} if before else {}
    passed_s = at_s - before.at_s if before else 0.0
    rows = tuple(row.seen_since(known.get(row.key), passed_s) for row in join(processes, answer))
    interfaces = tuple(offered_interfaces.ask(endpoint))
    return Look(at_s, rows, tuple(processes), answer, tuple(missing), at_s - begun_s, interfaces)


def join(processes: Iterable[attached.Process], answer: proxy_side.Answer | None) -> Iterator[Row]:
    """A row for each socket, those of this host first."""
    channels = {channel.epoch: channel for channel in answer.channels} if answer else {}
    theirs = {(c.epoch, c.proxy_id): c for c in answer.connections} if answer else {}
    polling = {worker.worker: worker.polling_part for worker in answer.workers} if answer else {}
    for process in processes:
        channel = channels.get(process.epoch)
        for entry in process.entries:
            yield _row(process, entry, theirs.pop((process.epoch, entry.proxy_id), None), channel, polling)
    for connection in theirs.values():
        yield _proxys_row(connection, channels.get(connection.epoch), polling)


def _row(
    process: attached.Process,
    entry: attached.Entry,
    connection: proxy_side.Connection | None,
    channel: proxy_side.Channel | None,
    polling: Mapping[int, float | None],
) -> Row:
    ns, times, now = _waits(entry, connection)
    return Row(
        epoch=process.epoch,
        xts_socket=entry.xts_socket,
        proxy_id=entry.proxy_id,
        pid=process.pid,
        uid=process.uid,
        program=process.program,
        queue=f"{process.queue_kind} {process.interface or ''} {process.queue_id}".replace("  ", " "),
        tenant=printable(channel.tenant) if channel else None,
        state=entry.state,
        local=entry.local,
        peer=entry.peer,
        layers="/".join(entry.send_layers).lower(),
        sent_bytes=entry.sent_bytes,
        received_bytes=entry.received_bytes,
        recv_queue=entry.recv_queue,
        send_credits=entry.send_credits,
        recv_window=entry.recv_window,
        host_polling=process.polling_part,
        waits_for=cause(now),
        wait_ns=ns,
        wait_times=times,
        **_of_proxy(connection, polling),
    )


def _proxys_row(
    connection: proxy_side.Connection, channel: proxy_side.Channel | None, polling: Mapping[int, float | None]
) -> Row:
    ns, times, now = _waits(None, connection)
    return Row(
        epoch=printable(connection.epoch or ""),
        xts_socket=connection.xts_socket,
        proxy_id=connection.proxy_id,
        pid=channel.pid if channel else 0,
        program=printable(channel.program) if channel else "",
        queue=str(connection.queue_id),
        tenant=printable(channel.tenant) if channel else None,
        state="",
        local=printable(connection.local),
        peer=printable(connection.peer),
        layers=printable(connection.send_ulps),
        sent_bytes=connection.sent_bytes,
        received_bytes=connection.received_bytes,
        waits_for=cause(now),
        wait_ns=ns,
        wait_times=times,
        **_of_proxy(connection, polling),
    )


def _of_proxy(connection: proxy_side.Connection | None, polling: Mapping[int, float | None]) -> dict[str, Any]:
    if connection is None:
        return {}
    return {
        "worker": connection.worker,
        "proxy_state": printable(connection.state),
        "proxy_credits": connection.send_credits,
        "window_bytes": connection.window_bytes,
        "spill_bytes": connection.spill_bytes,
        "tcp": connection.tcp,
        "proxy_polling": polling.get(connection.worker),
    }


def _waits(
    entry: attached.Entry | None, connection: proxy_side.Connection | None
) -> tuple[dict[str, int], dict[str, int], frozenset[str]]:
    """Nanoseconds and counts by name, and the names of the present waits."""
    ns, times, now = {}, {}, set()
    ends: dict[str, Any] = {
        "host": entry.waits if entry else None,
        "proxy": connection.waits if connection else None,
    }
    for reason in REASONS:
        waits = ends.get(reason.end)
        if reason.end == "tcp" and connection and connection.tcp:
            ns[reason.name] = 1000 * int(getattr(connection.tcp, reason.measured))
        elif waits is not None and (wait := waits.by_reason.get(reason.measured)) is not None:
            ns[reason.name], times[reason.name] = wait.ns, wait.times
            if reason.measured == (waits.receiving if reason.direction == "receive" else waits.sending):
                now.add(reason.name)
    return ns, times, frozenset(now)


# --- for programs --------------------------------------------------------------------------------------------------

_PLAIN = tuple(each.name for each in fields(Row) if each.name not in ("tcp", "wait_ns", "wait_times", "wait_part"))
_TCP = proxy_side.Tcp.__struct_fields__
COLUMNS = (
    *_PLAIN,
    *(f"tcp_{name}" for name in _TCP),
    *(f"wait_{name}_s" for name in NAMES),
    *(f"wait_{name}_times" for name in NAMES),
    *(f"wait_{name}_part" for name in NAMES),
)


def flat(row: Row) -> dict[str, Any]:
    """By column; None: not known."""
    tcp = {f"tcp_{name}": getattr(row.tcp, name) if row.tcp else None for name in _TCP}
    waits: dict[str, Any] = {}
    for name in NAMES:
        ns, part = row.wait_ns.get(name), row.wait_part.get(name)
        waits[f"wait_{name}_s"] = None if ns is None else ns / 1e9
        waits[f"wait_{name}_times"] = row.wait_times.get(name)
        waits[f"wait_{name}_part"] = None if part is None else round(part, 4)
    return {name: getattr(row, name) for name in _PLAIN} | tcp | waits
