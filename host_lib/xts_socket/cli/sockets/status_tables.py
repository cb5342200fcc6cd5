"""The tables of `xts status`: first what everybody wants to know, and with -v what identifies and explains it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from xts_messages.attaching.status_page import Clock, Filter
from xts_messages.terminal.text_table import print_table

from .attached import ADOPTED, Encryption, Entry, Process
from .status_rates import COUNTED, COUNTED_BY_PROCESS, Looks
from .status_rates import text as rate_text

_NO_SOCKETS = {False: "no offloaded sockets", True: "no offloaded listeners"}
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class _Column(Generic[_Row]):
    """A column of a table. `optional`: left out if all its cells are empty; `verbose`: only with -v."""

    title: str
    text: Callable[[_Row], str]
    numeric: bool = False
    optional: bool = False
    verbose: bool = False


def print_tables(attached: list[Process], looks: Looks, *, listening: bool, verbose: bool) -> None:
    """The sockets, then the processes."""
    sockets = [(p, entry) for p in attached for entry in p.entries if entry.state == "LISTEN" or not listening]
    _print(_socket_columns(looks), sockets, verbose, _NO_SOCKETS[listening])
    print()
    _print(_process_columns(looks), attached, verbose)
    if any(p.link_state == ADOPTED for p in attached):
        print("\nadopted: it has its queue from an agent before this one, which does not see its sockets")


def _print(columns: Sequence[_Column[_Row]], rows: Sequence[_Row], verbose: bool, empty: str = "") -> None:
    shown = [c for c in columns if verbose or not c.verbose]
    shown = [c for c in shown if not c.optional or any(c.text(row) for row in rows)]
    cells = [tuple(c.text(row) for c in shown) for row in rows]
    print_table([c.title for c in shown], cells, [c.title for c in shown if c.numeric], empty=empty)


_Socket = tuple[Process, Entry]


def _socket_columns(looks: Looks) -> list[_Column[_Socket]]:
    def rate(name: str) -> Callable[[_Socket], str]:
        return lambda row: rate_text(looks.of(*row), name)

    rates = zip(("Sent/s", "Received/s"), COUNTED, strict=True) if looks.are_there else ()
    return [
        _Column("Process", lambda row: process_text(row[0])),
        _Column("State", lambda row: _state_text(row[1])),
        _Column("Local", lambda row: row[1].local),
        _Column("Peer", lambda row: row[1].peer),
        *(_Column(title, rate(name), numeric=True) for title, name in rates),
        _Column("Layers", lambda row: _layers_text(row[1]), optional=True),
        _Column("TLS", lambda row: _tls_text(row[1].tls), optional=True),
        _Column("Filter", lambda row: _filter_text(row[1].filter), optional=True),
        _Column("Recv-Q", lambda row: str(row[1].recv_queue), numeric=True),
        _Column("Credits", lambda row: str(row[1].send_credits), numeric=True, verbose=True),
        _Column("Window", lambda row: str(row[1].recv_window), numeric=True, verbose=True),
        _Column("XTS", lambda row: f"{row[1].xts_socket:#x}", verbose=True),
        _Column("Proxy", lambda row: f"{row[1].proxy_id:#x}", verbose=True),
        _Column("Epoch", lambda row: row[0].epoch, verbose=True),
    ]


def _process_columns(looks: Looks) -> list[_Column[Process]]:
    def rate(name: str) -> Callable[[Process], str]:
        return lambda process: rate_text(looks.of(process), name)

    counted = (*COUNTED, *COUNTED_BY_PROCESS) if looks.are_there else ()
    titles = ("Sent/s", "Received/s", "Sleeps/s", "Spins/s")
    return [
        _Column("Process", process_text),
        _Column("Uid", lambda p: str(p.uid)),
        _Column("Queue", _queue_text),
        _Column("Link", lambda p: p.link_state),
        _Column("Sockets", lambda p: str(p.sockets), numeric=True),
        _Column("Unread", lambda p: str(sum(e.recv_queue for e in p.entries if e.state != "LISTEN")), numeric=True),
        *(_Column(title, rate(name), numeric=True) for title, name in zip(titles, counted, strict=False)),
        _Column("Frame credits", lambda p: str(p.frame_credits), numeric=True, verbose=True),
        _Column("Post credits", lambda p: str(sum(e.send_credits for e in p.entries)), numeric=True, verbose=True),
        _Column("Device's clock", lambda p: clock_text(p.clock), optional=True, verbose=True),
        _Column("Sleeps/spins", lambda p: f"{p.sleeps}/{p.spins}", numeric=True, verbose=True),
        _Column("Spins in vain", _misses_text, numeric=True, verbose=True),
        _Column("CPU for polling", _polling_text, numeric=True, verbose=True),
        _Column("Epoch", lambda p: p.epoch, verbose=True),
    ]


def _misses_text(process: Process) -> str:
    return "" if process.polling is None else str(process.polling.spin_misses)


def _polling_text(process: Process) -> str:
    return "" if process.polling_part is None else f"{process.polling_part:.0%}"


def process_text(process: Process) -> str:
    return f"{process.program or '?'} ({process.pid})"


def _state_text(entry: Entry) -> str:
    return entry.state if entry.reason is None else f"{entry.state} ({entry.reason})"


def _queue_text(process: Process) -> str:
    """afxdp xts0 3; with a relay, also the process's number there: relay xts0 0 (12)."""
    queue = f"{process.interface} {process.queue_id}" if process.interface else str(process.queue_id)
    number = "" if process.relayed is None else f" ({process.relayed})"
    return f"{process.queue_kind} {queue}{number}"


def clock_text(clock: Clock | None, now_ns: int | None = None) -> str:
    """How far the device's clock is ahead of this host's, when that was measured, and which time source it follows;
    "": the process has not measured it."""
    if clock is None:
        return ""
    age_s = ((time.monotonic_ns() if now_ns is None else now_ns) - clock.measured_ns) / 1e9
    follows = "follows none" if clock.follows_ns is None else f"follows one to {_duration(clock.follows_ns)}"
    return f"{clock.ahead_ns / 1e6:+.3f} ms to {_duration(clock.error_ns)}, {max(age_s, 0):.0f} s ago; {follows}"


def _duration(ns: int) -> str:
    return f"{ns / 1e3:.0f} us" if ns < 10_000_000 else f"{ns / 1e6:.0f} ms"


def _layers_text(entry: Entry) -> str:
    """From TCP upwards; separately for receiving and sending if they differ; as in `xts-proxy status`."""
    receive, send = ("/".join(layers).lower() for layers in (entry.receive_layers, entry.send_layers))
    return receive if receive == send else f"in {receive or '-'}, out {send or '-'}"


def _tls_text(tls: Encryption | None) -> str:
    if tls is None:
        return ""
    by = tls.send if tls.send == tls.receive else f"in {tls.receive or '-'}, out {tls.send or '-'}"
    return f"{tls.version} {tls.cipher} ({by})"


def _filter_text(filter: Filter | None) -> str:
    """The operator's filter by its name, or the program's own by its length; as in `xts-proxy status`."""
    if filter is None:
        return ""
    return f"own, {filter.instructions} instructions" if filter.name is None else filter.name
