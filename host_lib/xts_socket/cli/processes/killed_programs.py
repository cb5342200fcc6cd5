"""The part of `xts status` about programs that were killed: what they had done, as kept by the endpoint.

The program's own library wrote the figures while the program was alive (messages/native/attaching/status.h); CPU time
is as of one of its last calls.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass

from xts_messages.attaching import attach
from xts_messages.terminal.printable import printable
from xts_messages.terminal.text_table import print_table

from .interposed import Reason, reason_name, reason_text


@dataclass(frozen=True, slots=True)
class EndedProcess:
    """A killed process; `offloaded` and `stayed` are None if sockets were not counted (no `xts run`, no install())."""

    pid: int
    uid: int
    program: str
    ended_s_ago: float
    signal: str | None  # SIGKILL, …; None: unknown
    offloaded: int | None  # number of sockets since its start
    stayed: tuple[Reason, ...] | None
    sent_bytes: int
    received_bytes: int
    user_s: float
    system_s: float


def ask(path: str) -> list[EndedProcess]:
    """The killed processes kept by the endpoint that we may see, oldest first. OSError: it cannot be asked."""
    return [_described(ended) for ended in attach.list_ended(path)]


def _described(ended: attach.Ended) -> EndedProcess:
    figures = ended.figures
    counts = figures.sockets
    return EndedProcess(
        pid=ended.pid,
        uid=ended.uid,
        program=printable(ended.program),
        ended_s_ago=round(ended.ended_s_ago, 3),
        signal=_signal_name(ended.signal),
        offloaded=None if counts is None else counts[0],
        stayed=None if counts is None else _stayed(counts),
        sent_bytes=figures.sent_bytes,
        received_bytes=figures.received_bytes,
        user_s=figures.user_us / 1e6,
        system_s=figures.system_us / 1e6,
    )


def _stayed(counts: tuple[int, ...]) -> tuple[Reason, ...]:
    numbered = list(enumerate(counts))[1:]
    return tuple(Reason(number, reason_name(number), reason_text(number), count) for number, count in numbered if count)


def _signal_name(number: int) -> str | None:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}" if number else None


def show(ended: list[EndedProcess]) -> None:
    """Prints them, if there are any."""
    if not ended:
        return
    print()
    figures = ("Uid", "s ago", "Offloaded", "Sent", "Received", "User s", "System s")
    print_table(("Killed", "Uid", "By", "s ago", "Offloaded", "Kernel", *figures[3:]), list(map(_row, ended)), figures)


def _row(process: EndedProcess) -> tuple[str, ...]:
    return (
        f"{process.program} ({process.pid})",
        str(process.uid),
        process.signal or "-",
        f"{process.ended_s_ago:.0f}",
        "-" if process.offloaded is None else str(process.offloaded),
        _stayed_text(process.stayed),
        str(process.sent_bytes),
        str(process.received_bytes),
        f"{process.user_s:.2f}",
        f"{process.system_s:.2f}",
    )


def _stayed_text(stayed: tuple[Reason, ...] | None) -> str:
    if stayed is None:
        return "-"
    reasons = ", ".join(f"{reason.count} {reason.name}" for reason in stayed)
    return f"{sum(reason.count for reason in stayed)} ({reasons})" if stayed else "0"
