"""`xts status --processes`: the programs under the interposer, what they have offloaded, and why the rest has stayed.

Each process makes a page of its own (preload/process_page.h) in a memfd, found in /proc/PID/fd. The process is not
asked; its page is read once into private memory, and every field is checked. Root sees all processes, others their own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xts_messages.terminal.printable import printable
from xts_messages.terminal.text_table import print_table

from ..._native import ffi, lib
from ..options import endpoint_text
from .control_pages import unreachable

REPORT_LINK = "/memfd:xts-preload (deleted)"

_KINDS = {1: "undecided", 2: "kernel", 3: "offloaded"}  # enum descriptor_kind; the others are not sockets
#: Reasons for which the process's own attach error says more.
_UNATTACHED = (
    *(lib.XTS_REASON_NO_ENDPOINT, lib.XTS_REASON_PROXY_DOWN),
    *(lib.XTS_REASON_REFUSED, lib.XTS_REASON_NO_QUEUE),
)
#: For sockets that the process does not have at all.
_GONE = (lib.XTS_REASON_ELSEWHERE, lib.XTS_REASON_LOST, lib.XTS_REASON_VERSION)


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason to stay with the kernel (REASONS.md), and how many sockets have had it."""

    number: int
    name: str
    text: str
    count: int


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A TCP socket of a process, as it is now."""

    fd: int
    kind: str  # "offloaded", "kernel", "undecided" until it is connected or listens, "gone": lost over fork or exec
    xts_socket: int | None
    reason: int | None
    reason_name: str | None
    rule_line: int | None  # line of the rule that decided
    local: str  # as known at the time of the decision
    peer: str


@dataclass(frozen=True, slots=True)
class Interposed:
    """A process under the interposer; the counts are totals of sockets and calls."""

    pid: int
    program: str
    endpoint: str  # path of the agent's or proxy's socket that it uses
    rules: str | None  # path of the rules in force; None: the default ones
    strict: bool
    offloaded: int
    unseen: int  # system calls that bypassed the interposer and were refused
    stayed: tuple[Reason, ...]
    attach_error: str | None  # why it could not attach, the last time that this kept a socket with the kernel
    descriptors: tuple[Descriptor, ...]


def find(proc: Path = Path("/proc")) -> Iterator[Interposed]:
    """The processes that have a page we may read, by process id."""
    for pid in sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()):
        for data in _pages(proc / str(pid)):
            page = read_page(data)
            if page is not None and page.pid in (pid, _inner_pid(proc / str(pid))):
                yield describe(pid, page)
                break


def _pages(process: Path) -> Iterator[bytes]:
    """The content of the process's memfds of that name; more than one if a parent's was inherited."""
    try:
        links = sorted(process.joinpath("fd").iterdir())
    except OSError:  # it is gone, or belongs to another user
        return
    for link in links:
        try:
            if os.readlink(link) == REPORT_LINK:  # noqa: PTH115 - a Path would be made of what is no path
                with link.open("rb") as file:
                    yield file.read(ffi.sizeof("struct xts_report_page"))
        except OSError:
            continue


def _inner_pid(process: Path) -> int | None:
    """The process id in the process's own namespace, which is the one in its page."""
    try:
        for line in process.joinpath("status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except OSError:
        pass
    return None


def read_page(data: bytes) -> Any:
    """The page, or None if it is not one of this version."""
    if len(data) != ffi.sizeof("struct xts_report_page"):
        return None
    page = ffi.from_buffer("struct xts_report_page *", data)
    if page.magic != lib.XTS_REPORT_MAGIC or page.version != lib.XTS_REPORT_VERSION:
        return None
    return page


def describe(pid: int, page: Any) -> Interposed:
    """The content of a page, with each field made safe to show."""
    stayed = ((number, int(count)) for number, count in enumerate(page.stayed) if count)
    used = min(page.entries, lib.XTS_REPORT_ENTRIES)
    return Interposed(
        pid=pid,
        program=_text(page.program),
        endpoint=_text(page.endpoint),
        rules=_text(page.rules) or None,
        strict=bool(page.strict),
        offloaded=page.offloaded,
        unseen=page.unseen,
        stayed=tuple(Reason(number, reason_name(number), reason_text(number), count) for number, count in stayed),
        attach_error=_text(page.attach_error) or None,
        descriptors=tuple(_descriptor(fd, page.entry[fd]) for fd in range(used) if page.entry[fd].kind in _KINDS),
    )


def _descriptor(fd: int, entry: Any) -> Descriptor:
    kind = "gone" if entry.kind != 1 and entry.reason in _GONE else _KINDS[entry.kind]
    reason = int(entry.reason) if kind in ("kernel", "gone") else None
    return Descriptor(
        fd=fd,
        kind=kind,
        xts_socket=int(entry.number) if kind in ("offloaded", "gone") and entry.number else None,
        reason=reason,
        reason_name=None if reason is None else reason_name(reason),
        rule_line=int(entry.rule_line) or None,
        local=endpoint_text(entry.local),
        peer=endpoint_text(entry.peer),
    )


def reason_name(number: int) -> str:
    """RULE, PROTOCOL, …; the number, if this version does not know it."""
    name = lib.xts_reason_name(number)
    return ffi.string(name).decode("ascii") if name else str(number)


def reason_text(number: int) -> str:
    """The reason in a sentence, with a remedy."""
    text = lib.xts_reason_text(number)
    return ffi.string(text).decode("ascii") if text else "not known to this version of xts"


def _text(field: Any) -> str:
    return printable(ffi.string(field).decode("utf-8", "replace"))


# --- showing ---------------------------------------------------------------------------------------------------------


def show(pid: int | None, as_json: bool, endpoint: str | None, *, verbose: bool) -> int:
    """Prints those of an endpoint (None: of all), or the one with this process id; returns the exit status. `verbose`:
    with the numbers that XTS gives to sockets."""
    everybody = list(find())
    found = [p for p in everybody if p.pid == pid or (pid is None and endpoint in (None, p.endpoint))]
    if as_json:
        print(json.dumps({"endpoint": endpoint, "processes": [asdict(process) for process in found]}, indent=2))
    elif found:
        _print(found, verbose)
    else:
        _print_none(pid, endpoint, len(everybody))
    return 0


def _print_none(pid: int | None, endpoint: str | None, elsewhere: int) -> None:
    whose = " of yours" if os.geteuid() else ""
    if pid is not None:
        print(unreachable(pid, interposed=True))
    elif endpoint is None or not elsewhere:
        print(f"no process{whose} with a socket runs under `xts run` now; `xts run -v` shows at the end what one did")
    else:
        print(f"no process{whose} under `xts run` uses {endpoint}; {elsewhere} use others: --all lists them")


def _print(found: list[Interposed], verbose: bool) -> None:
    rows = [
        (
            f"{p.program} ({p.pid})",
            p.rules or "default",
            "yes" if p.strict else "no",
            *(str(n) for n in (p.offloaded, *_stayed_and_gone(p), p.unseen)),
        )
        for p in found
    ]
    counts = ("Offloaded", "Kernel", "Gone", "Refused")
    print_table(("Process", "Rules", "Strict", *counts), rows, counts)
    print()
    stayed = [
        (f"{p.program} ({p.pid})", str(reason.number), reason.name, str(reason.count), _meaning(p, reason))
        for p in found
        for reason in p.stayed
    ]
    print_table(
        ("Process", "No.", "Reason", "Sockets", "Meaning"),
        stayed,
        ("No.", "Sockets"),
        empty="no socket has stayed with the kernel",
    )
    print()
    sockets = [_row(p, d, verbose) for p in found for d in p.descriptors]
    numbers = ("XTS",) if verbose else ()
    print_table(
        ("Process", "fd", "Socket", "Local", "Peer", "Reason", "Rule line", *numbers),
        sockets,
        ("fd", "Rule line"),
        empty="no TCP sockets now",
    )


def _meaning(process: Interposed, reason: Reason) -> str:
    """The reason's text, or the explanation from the endpoint or from the attempt to reach it."""
    return process.attach_error if process.attach_error and reason.number in _UNATTACHED else reason.text


def _stayed_and_gone(process: Interposed) -> tuple[int, int]:
    gone = sum(reason.count for reason in process.stayed if reason.number in _GONE)
    return sum(reason.count for reason in process.stayed) - gone, gone


def _row(process: Interposed, descriptor: Descriptor, verbose: bool) -> tuple[str, ...]:
    reason = "" if descriptor.reason is None else f"{descriptor.reason} {descriptor.reason_name}"
    return (
        f"{process.program} ({process.pid})",
        str(descriptor.fd),
        descriptor.kind,
        descriptor.local,
        descriptor.peer,
        reason,
        str(descriptor.rule_line or ""),
        *(("" if descriptor.xts_socket is None else f"{descriptor.xts_socket:#x}",) if verbose else ()),
    )
