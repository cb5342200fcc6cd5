"""`xts status`: the offloaded sockets of this host's processes.

The endpoint hands out a duplicate of each process's status page (messages/native/status.h), which the
process's own library writes. So the page is read once into private memory and every field is checked; the
process is not asked and does not notice. What is not offloaded is in processes.py.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from xts_messages._native import ffi, lib
from xts_messages.attach import Listing, list_attachments
from xts_messages.endpoint import read_status_page

from . import processes
from .options import add_verb, endpoint_path, endpoint_text, print_table, printable

_STATES = (
    *("FREE", "UNCONN", "SYN-SENT", "ESTAB", "LISTEN"),
    *("CLOSE-WAIT", "FIN-WAIT", "LAST-ACK", "CLOSING", "FAILED"),
)
_LINK_STATES = ("opening", "up", "down")


@dataclass(frozen=True, slots=True)
class Entry:
    """One offloaded socket. Both identifiers, as they are on the wire; queues and credits in bytes."""

    state: str
    xts_socket: int
    proxy_id: int
    recv_queue: int  # received and unread; of a listener: connections waiting
    send_credits: int  # post credits held: what may be sent now
    recv_window: int
    recv_unadvertised: int
    error: int
    sent_bytes: int
    received_bytes: int
    local: str
    peer: str


@dataclass(frozen=True, slots=True)
class Process:
    """One attached process."""

    pid: int
    uid: int
    program: str
    queue_kind: str
    queue_id: int
    epoch: str
    link_state: str
    frame_credits: int
    sockets: int
    sleeps: int
    spins: int
    entries: tuple[Entry, ...]


def add(verbs: Any) -> None:
    text = "list this host's offloaded sockets, as ss(8) lists kernel sockets"
    parser = add_verb(verbs, "status", text, "xts status --pid 4711", run)
    parser.add_argument("--pid", type=int, help="only this process")
    parser.add_argument("-l", "--listening", action="store_true", help="only listeners")
    parser.add_argument(
        "--processes",
        action="store_true",
        help="list the programs under `xts run`: what they offloaded, and why the rest stayed with the kernel",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.processes:
        return processes.show(arguments.pid, arguments.json)
    path = endpoint_path()
    attached = [process for process in ask(path) if arguments.pid in (None, process.pid)]
    if arguments.json:
        print(json.dumps({"endpoint": path, "processes": [asdict(p) for p in attached]}, indent=2))
        return 0
    _print(attached, arguments.listening)
    return 0


def ask(path: str) -> list[Process]:
    """Asks the endpoint for the processes we may see (root: all; others: their own). OSError says what is wrong."""
    attached: list[Process] = []
    try:
        for listing in list_attachments(path):
            try:
                attached.append(_process(listing))
            finally:
                os.close(listing.status_fd)
    except TimeoutError:
        raise OSError(f"the endpoint {path} does not answer") from None
    except (FileNotFoundError, ConnectionRefusedError) as failure:
        raise OSError(f"no agent or proxy at {path}: {failure.strerror}; see `xts doctor`") from None
    return attached


def _process(listing: Listing) -> Process:
    page, entries = read_page(read_status_page(listing.status_fd))
    state = page.link_state
    return Process(
        pid=listing.pid,
        uid=listing.uid,
        program=printable(listing.program),
        queue_kind=listing.kind,
        queue_id=listing.queue_id,
        epoch=f"{listing.epoch:016x}",
        link_state=_LINK_STATES[state] if state < len(_LINK_STATES) else str(state),
        frame_credits=page.frame_credits,
        sockets=page.sockets,
        sleeps=page.sleeps,
        spins=page.spins,
        entries=entries,
    )


def read_page(data: bytes) -> tuple[Any, tuple[Entry, ...]]:
    """The head and the used entries of a status page. OSError when it is not one."""
    head_bytes = ffi.sizeof("struct xts_status_page")
    if len(data) < head_bytes:
        raise OSError("a status page is too short")
    page = ffi.from_buffer("struct xts_status_page *", data)
    if page.magic != lib.XTS_STATUS_MAGIC or page.version != lib.XTS_STATUS_VERSION:
        raise OSError(f"a status page is of version {page.version}, not {lib.XTS_STATUS_VERSION}")
    used = data[head_bytes:]
    entries = ffi.from_buffer("struct xts_status_entry[]", used)
    count = min(page.used, len(used) // ffi.sizeof("struct xts_status_entry"))
    return page, tuple(_entry(entries[i]) for i in range(count) if entries[i].state)


def _entry(raw: Any) -> Entry:
    names = (name for name in Entry.__slots__ if name not in ("state", "local", "peer"))
    values = {name: int(getattr(raw, name)) for name in names}
    state = _STATES[raw.state] if raw.state < len(_STATES) else str(raw.state)
    return Entry(state=state, local=endpoint_text(raw.local), peer=endpoint_text(raw.peer), **values)


def _print(attached: list[Process], listening: bool) -> None:
    rows = [
        (
            entry.state,
            str(entry.recv_queue),
            str(entry.send_credits),
            str(entry.recv_window),
            entry.local,
            entry.peer,
            f"{entry.xts_socket:#x}",
            f"{entry.proxy_id:#x}",
            f"{process.program} ({process.pid})",
        )
        for process in attached
        for entry in process.entries
        if entry.state == "LISTEN" or not listening
    ]
    numeric = ("Recv-Q", "Credits", "Window")
    print_table(("State", *numeric, "Local", "Peer", "XTS", "Proxy", "Process"), rows, numeric)
    summary = [
        (
            f"{p.program} ({p.pid})",
            str(p.uid),
            f"{p.queue_kind} {p.queue_id}",
            p.link_state,
            str(p.sockets),
            str(p.frame_credits),
            str(sum(entry.send_credits for entry in p.entries)),
            str(sum(entry.recv_queue for entry in p.entries if entry.state != "LISTEN")),
            f"{p.sleeps}/{p.spins}",
        )
        for p in attached
    ]
    figures = ("Sockets", "Frame credits", "Post credits", "Unread", "Sleeps/spins")
    print_table(("Process", "Uid", "Queue", "Link", *figures), summary, figures)
