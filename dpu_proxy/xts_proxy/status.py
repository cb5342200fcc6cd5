"""What a running proxy is doing, as JSON or as tables for people."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from xts_messages.printable import printable

from xts_proxy import control_socket

_SHOWN_CONNECTIONS = 1000


def show(path: str, *, as_json: bool, connections: bool) -> None:
    """Asks the proxy at `path` and prints. OSError as control_socket.ask()."""
    answer = control_socket.ask(path, control_socket.Question("status", connections))
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    try:
        _print(answer, connections)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        wrong = printable(str(error))[:200]
        what = f"who listens at {path} is no xts-proxy, or one of another version: its answer has no {wrong}"
        raise OSError(errno.EPROTO, what) from None


def _print(answer: dict[str, Any], connections: bool) -> None:
    # Lines are not wrapped when the output is a file or a pipe.
    console = Console(width=None if sys.stdout.isatty() else 240)
    proxy = answer["proxy"]
    _say(
        console,
        f"xts-proxy {proxy['version']}, process {proxy['pid']}, up {_duration(proxy['uptime_s'])}, "
        f"{proxy['state']}, queue kind {proxy['queue']}, configuration {proxy['config'] or 'built in'}",
    )
    console.print(_table("workers", _WORKER_COLUMNS, answer["workers"]))
    console.print(_table("tenants", _TENANT_COLUMNS, [_tenant_row(row) for row in answer["tenants"]]))
    console.print(_table("channels", _CHANNEL_COLUMNS, [_channel_row(row) for row in answer["channels"]]))
    if answer["filters"]:
        console.print(_table("filters", _FILTER_COLUMNS, answer["filters"]))
    for line in _tls(answer["tls"]):
        _say(console, line)
    if connections:
        rows = answer["connections"]
        shown = [row | {"ulps": _ulps(row), "filter": _filter(row)} for row in rows[:_SHOWN_CONNECTIONS]]
        console.print(_table("connections", _CONNECTION_COLUMNS, shown))
        if len(rows) > _SHOWN_CONNECTIONS:
            console.print(f"… and {len(rows) - _SHOWN_CONNECTIONS} more; --json has all")


def _say(console: Console, line: str) -> None:
    """Prints a line as it is: who answers may be anybody, so nothing in it is markup or controls the terminal."""
    console.print(printable(line), markup=False)


# heading -> key of the row
_WORKER_COLUMNS = {
    "worker": "worker",
    "channels": "channels",
    "up": "channels_up",
    "conns": "connections",
    "listeners": "listeners",
    "kept": "kept",
    "sent": "sent_bytes",
    "received": "received_bytes",
    "spilled now": "spill_bytes",
    "granted": "window_bytes",
    "kept by protocols": "ulp_bytes",
    "refused": "refused",
    "sleeps": "sleeps",
    "stands still, s": "no_progress_s",
}
_TENANT_COLUMNS = {
    "tenant": "tenant",
    "conns": "connections",
    "listeners": "listeners",
    "orphans": "orphans",
    "descriptors": "descriptors",
    "guaranteed": "descriptors_guaranteed",
    "memory": "memory_bytes",
    "guaranteed ": "memory_guaranteed_bytes",
    "refused": "refused",
}
_CHANNEL_COLUMNS = {
    "queue": "queue_id",
    "relayed": "relayed",
    "tenant": "tenant",
    "worker": "worker",
    "pid": "pid",
    "program": "program",
    "link": "link",
    "conns": "connections",
    "listeners": "listeners",
    "frame credits": "frame_credits",
    "frames in": "frames_in",
    "frames out": "frames_out",
    "spilled now": "spill_bytes",
    "granted": "window_bytes",
    "kept by protocols": "ulp_bytes",
}
_FILTER_COLUMNS = {"filter": "filter", "sockets": "sockets", "dropped there, also for want of room": "dropped"}
_CONNECTION_COLUMNS = {
    "queue": "queue_id",
    "xts": "xts_socket",
    "proxy id": "proxy_id",
    "state": "state",
    "local": "local",
    "peer": "peer",
    "protocols": "ulps",
    "credits": "send_credits",
    "spilled now": "spill_bytes",
    "sent": "sent_bytes",
    "received": "received_bytes",
    "dropped": "datagrams_dropped",
    "filter": "filter",
}


def _table(title: str, columns: dict[str, str], rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading, key in columns.items():
        table.add_column(heading, justify="left" if key in _TEXTS else "right", no_wrap=True)
    if not rows:
        table.add_row(f"no {title}")
    for row in rows:
        # A Text, because a str would be parsed for markup, and programs choose their own names. It would still pass on
        # what controls a terminal.
        table.add_row(*(Text(printable(_cell(key, row.get(key, "")))) for key in columns.values()))
    return table


_TEXTS = frozenset({"program", "tenant", "link", "state", "local", "peer", "ulps", "filter"})


#: fallback_… of struct xts_tls_counts
_NOT_THE_BEST = {
    "no_kernel": "the kernel has no TLS",
    "configured": "the configuration says user",
    "stack": "TLS is not next to TCP",
    "refused": "the kernel or OpenSSL does not do this version, cipher or direction",
    "no_device": "no network card does it",
    "keys_change": "keys of TLS 1.3 may have to change",
}


def _tls(counts: dict[str, int]) -> Iterator[str]:
    """Two lines, about handshakes and about keys that hosts have pushed; none when there was neither."""

    def by(direction: str) -> str:
        return ", ".join(f"{counts[f'{direction}_by_{who}']} {who}" for who in ("user", "kernel", "device"))

    if any(counts.values()):
        handshakes = counts["client_handshakes"] + counts["server_handshakes"]
        yield (
            f"tls: {handshakes} handshakes, {counts['resumed']} of them resumed; "
            f"encrypted by: {by('sent')}; decrypted by: {by('received')}"
        )
    why = {words: count for name, words in _NOT_THE_BEST.items() if (count := counts[f"fallback_{name}"])}
    if why:
        yield "tls: not the best kind: " + ", ".join(f"{count} ({words})" for words, count in why.items())


def _ulps(row: dict[str, Any]) -> str:
    """The pushed protocols, from TCP upwards; separately for receiving and sending if they differ."""
    receive, send = row["receive_ulps"], row["send_ulps"]
    text = receive if receive == send else f"in {receive or '-'}, out {send or '-'}"
    return f"{text} (peeking)".strip() if row["peeking"] else text


def _filter(row: dict[str, Any]) -> str:
    """The filter of a datagram socket: the operator's by its name, or the host's own by its length."""
    if row["filter"] or not row["filter_instructions"]:
        return str(row["filter"])
    return f"the host's, {row['filter_instructions']} instructions"


def _cell(key: str, value: Any) -> str:
    if key.endswith("_bytes"):
        return _bytes(int(value))
    return f"{value:08x}" if key == "proxy_id" else str(value)


def _channel_row(row: dict[str, Any]) -> dict[str, Any]:
    error = errno.errorcode.get(row["link_error"], str(row["link_error"])) if row["link_error"] else ""
    return row | {
        "link": f"{row['link_state']} {error}".strip(),
        "frames_in": row["link"]["received_frames"],
        "frames_out": row["link"]["sent_frames"],
    }


def _tenant_row(row: dict[str, Any]) -> dict[str, Any]:
    used, guaranteed = row["pool_used"], row["pool_guaranteed"]
    shown: dict[str, Any] = row["used"] | {
        "tenant": row["tenant"],
        "descriptors": used["descriptors"],
        "descriptors_guaranteed": guaranteed["descriptors"],
        "memory_bytes": used["memory"],
        "memory_guaranteed_bytes": guaranteed["memory"],
        "refused": sum(row["refused"].values()) + sum(row["pool_refused"].values()),
    }
    return shown


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
