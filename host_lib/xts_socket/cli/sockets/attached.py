"""The attached processes and their sockets, as the processes report them.

The endpoint hands out a duplicate of each process's status page (messages/native/attaching/status.h), which the
process's own library writes. So the page is read once into private memory, and every field is checked; the process is
not asked.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from xts_messages.attaching.attach import Listing, list_attachments
from xts_messages.attaching.status_page import (
    Clock,
    Filter,
    Polling,
    read_clock,
    read_figures,
    read_filters,
    read_polling,
    read_status_page,
)
from xts_messages.attaching.waits import Waits, read_waits
from xts_messages.native import ffi, lib
from xts_messages.terminal.printable import printable
from xts_messages.wire.ulps import BY_NAME, BY_NUMBER

from ..options import endpoint_text
from ..processes.interposed import reason_name

_STATES = (
    *("FREE", "UNCONN", "SYN-SENT", "ESTAB", "LISTEN"),
    *("CLOSE-WAIT", "FIN-WAIT", "LAST-ACK", "CLOSING", "FAILED"),
)
_LINK_STATES = ("opening", "up", "down", "adopted")
_UNREADABLE = "unreadable"
#: For a process that got its queue from an earlier agent (XTS_STATUS_ADOPTED).
ADOPTED = _LINK_STATES[3]
_NOT_KNOWN: Mapping[tuple[int, int], Any] = MappingProxyType({})

#: The kernel's cipher types (linux/tls.h), which TLS_KEYS uses.
_KEYS_CIPHERS = {51: "AES_GCM_128", 52: "AES_GCM_256", 53: "AES_CCM_128", 54: "CHACHA20_POLY1305"}


@dataclass(frozen=True, slots=True)
class Encryption:
    """How the proxy encrypts a connection. `cipher`: for TLS OpenSSL's name of the suite, for TLS_KEYS the kernel's
    name. `send`, `receive`: where that is done: "user" (the proxy), "kernel" or "device"; None: not encrypted in that
    direction."""

    version: str
    cipher: str
    send: str | None
    receive: str | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One offloaded socket. Both identifiers, as they are on the wire; queues and credits in bytes.

    `receive_layers`, `send_layers`: the pushed protocols (ULPS.md), the first next to TCP. `tls`: None without TLS, or
    before its handshake is done. `reason`: why this process does not have a connection that another one has
    (REASONS.md). `waits`: what it waits for and has waited for, as far as the host knows; None: its process does not
    report it. `filter`: the filter that this process has attached to a datagram socket; None: none.
    """

    state: str
    xts_socket: int
    proxy_id: int
    recv_queue: int  # bytes received and unread; for a listener: connections waiting
    send_credits: int  # post credits held: bytes that may be sent now
    recv_window: int
    recv_unadvertised: int
    error: int
    sent_bytes: int
    received_bytes: int
    local: str
    peer: str
    receive_layers: tuple[str, ...]
    send_layers: tuple[str, ...]
    tls: Encryption | None
    reason: str | None
    waits: Waits | None = None
    filter: Filter | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """One attached process. `interface`: of its queue; None over shared memory to the proxy. `relayed`: its number at
    the agent's relay, with which it shares the queue; None: the queue is its own. `clock`: the device's clock as the
    process last measured it; None: it has not. `polling`: what spinning has cost; None: not reported. `cpu_us`: of
    the whole process, as it last wrote it (0.1 s ago while it makes calls); None: not reported. `fault`: why what the
    process reports cannot be read (it writes its page itself); then nothing else of it is known; None: it can."""

    pid: int
    uid: int
    program: str
    queue_kind: str
    queue_id: int
    interface: str | None
    relayed: int | None
    epoch: str
    link_state: str
    frame_credits: int
    sockets: int
    sleeps: int
    spins: int
    clock: Clock | None
    entries: tuple[Entry, ...]
    polling: Polling | None = None
    cpu_us: int | None = None
    fault: str | None = None

    @property
    def polling_part(self) -> float | None:
        """Of its CPU time, 0 to 1: what waiting calls have polled. None: not known."""
        if self.polling is None or not self.cpu_us:
            return None
        return min(1.0, self.polling.spin_ns / (self.cpu_us * 1000))


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
    except OSError as failure:
        if failure.errno != errno.EPROTOTYPE:
            raise
        raise OSError(f"who listens at {path} is no agent or proxy of XTS: it is a socket of another type") from None
    return attached


def _process(listing: Listing) -> Process:
    """One process cannot keep others from being seen, whatever it writes."""
    try:
        return _read(listing)
    except OSError as failure:
        why = failure.strerror or str(failure)
    return Process(
        **_identity(listing),
        link_state=_UNREADABLE,
        frame_credits=0,
        sockets=0,
        sleeps=0,
        spins=0,
        clock=None,
        entries=(),
        fault=why,
    )


def _identity(listing: Listing) -> dict[str, Any]:
    """What the endpoint says of a process."""
    return {
        "pid": listing.pid,
        "uid": listing.uid,
        "program": printable(listing.program),
        "queue_kind": listing.kind,
        "queue_id": listing.queue_id,
        "interface": printable(listing.interface) or None,
        "relayed": listing.relayed or None,
        "epoch": f"{listing.epoch:016x}",
    }


def _read(listing: Listing) -> Process:
    """OSError: what the process has written is no status page."""
    data = read_status_page(listing.status_fd)
    most = len(data) // ffi.sizeof("struct xts_status_entry")
    page, entries = read_page(data, read_waits(listing.status_fd, most), read_filters(listing.status_fd, most))
    state = page.link_state
    figures = read_figures(listing.status_fd)
    return Process(
        **_identity(listing),
        link_state=_LINK_STATES[state] if state < len(_LINK_STATES) else str(state),
        frame_credits=page.frame_credits,
        sockets=page.sockets,
        sleeps=page.sleeps,
        spins=page.spins,
        clock=read_clock(listing.status_fd),
        entries=entries,
        polling=read_polling(listing.status_fd),
        cpu_us=figures.user_us + figures.system_us if figures else None,
    )


def read_page(
    data: bytes,
    waits: Mapping[tuple[int, int], Waits] = _NOT_KNOWN,
    filters: Mapping[tuple[int, int], Filter] = _NOT_KNOWN,
) -> tuple[Any, tuple[Entry, ...]]:
    """The head and the used entries of a status page, with their waits and their filters, by index and number. OSError
    if it is not a status page."""
    head_bytes = ffi.sizeof("struct xts_status_page")
    if len(data) < head_bytes:
        raise OSError("a status page is too short")
    page = ffi.from_buffer("struct xts_status_page *", data)
    if page.magic != lib.XTS_STATUS_MAGIC or page.version != lib.XTS_STATUS_VERSION:
        raise OSError(f"a status page is of version {page.version}, not {lib.XTS_STATUS_VERSION}")
    used = data[head_bytes:]
    entries = ffi.from_buffer("struct xts_status_entry[]", used)
    count = min(page.used, len(used) // ffi.sizeof("struct xts_status_entry"))
    return page, tuple(
        _entry(entries[i], waits.get(key), filters.get(key))
        for i, key in ((i, (i, entries[i].xts_socket)) for i in range(count) if entries[i].state)
    )


_NUMBERS = (
    *("xts_socket", "proxy_id", "recv_queue", "send_credits", "recv_window", "recv_unadvertised", "error"),
    *("sent_bytes", "received_bytes"),
)


def _entry(raw: Any, waits: Waits | None, filter: Filter | None) -> Entry:
    return Entry(
        state=_STATES[raw.state] if raw.state < len(_STATES) else str(raw.state),
        local=endpoint_text(raw.local),
        peer=endpoint_text(raw.peer),
        receive_layers=_layers(raw.receive_ulps),
        send_layers=_layers(raw.send_ulps),
        tls=_encryption(raw),
        reason=reason_name(raw.reason) if raw.reason else None,
        waits=waits,
        filter=filter,
        **{name: int(getattr(raw, name)) for name in _NUMBERS},
    )


def _layers(raw: Any) -> tuple[str, ...]:
    numbers = takewhile(bool, raw)
    return tuple(BY_NUMBER[number].name if number in BY_NUMBER else str(number) for number in numbers)


def _encryption(raw: Any) -> Encryption | None:
    if not raw.tls_version:
        return None
    from xts_socket._tls import VERSIONS

    by_keys = not any(BY_NAME["TLS"].number in ulps for ulps in (raw.receive_ulps, raw.send_ulps))
    return Encryption(
        version=VERSIONS.get(raw.tls_version, f"{raw.tls_version:#06x}"),
        cipher=(_KEYS_CIPHERS if by_keys else _suites()).get(raw.tls_cipher, f"{raw.tls_cipher:#06x}"),
        send=_by(raw.tls_send),
        receive=_by(raw.tls_receive),
    )


def _by(number: int) -> str | None:
    from xts_socket._tls import CRYPTO

    return CRYPTO.get(number, str(number)) if number else None


@cache
def _suites() -> dict[int, str]:
    """OpenSSL's names of the suites that this machine's OpenSSL knows."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:@SECLEVEL=0")
    return {int(cipher["id"]) & 0xFFFF: str(cipher["name"]) for cipher in context.get_ciphers()}
