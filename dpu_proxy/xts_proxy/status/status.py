"""What a running proxy is doing, as JSON or as tables for people."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from xts_messages.terminal.printable import printable
from xts_messages.terminal.text_table import print_table

from xts_proxy.status import control_socket
from xts_proxy.status.wire_report import wire_lines

_SHOWN_CONNECTIONS = 1000


def show(path: str, *, as_json: bool, connections: bool, verbose: bool = False) -> None:
    """Asks the proxy at `path` and prints; `verbose`: every column. OSError as control_socket.ask()."""
    answer = control_socket.ask(path, control_socket.Question("status", connections))
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    try:
        _print(answer, connections, verbose)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        wrong = printable(str(error))[:200]
        what = f"who listens at {path} is no xts-proxy, or one of another version: its answer has no {wrong}"
        raise OSError(errno.EPROTO, what) from None


def _sum(answer: dict[str, Any], of_workers: str) -> int:
    return sum(int(worker.get(of_workers, 0)) for worker in answer["workers"])


def _print(answer: dict[str, Any], connections: bool, verbose: bool) -> None:
    proxy = answer["proxy"]
    _say(
        f"xts-proxy {proxy['version']}, process {proxy['pid']}, up {_duration(proxy['uptime_s'])}, "
        f"{proxy['state']}, queue kind {proxy['queue']}, configuration {proxy['config'] or 'built in'}",
    )
    crashes = proxy.get("crashes") or {"count": 0}  # the version before has none
    if crashes["count"]:
        _say(
            f"crashes: the workers have died {crashes['count']} times, and others went on with {crashes['sockets']} "
            f"sockets; since the last time {_sum(answer, 'torn')} of them had bytes under way, and were reset"
        )
    if moved := proxy.get("upgrade"):  # the version before has none
        _say(
            f"upgrade: {moved['channels']} channels with {moved['sockets']} sockets have moved, "
            f"{moved['reset']} connections were reset"
        )
        for why, sockets in moved.get("waits", {}).items():
            _say(f"upgrade: waits for {sockets} connections that cannot move: {why}")
    for line in _interface(answer.get("interface") or {}):  # the version before has none
        _say(line)
    for row in answer.get("rdma") or []:  # the version before has none
        _say(_rdma(row))
    _table("workers", _WORKER_COLUMNS, answer["workers"], verbose)
    _table("tenants", _TENANT_COLUMNS, [_tenant_row(row) for row in answer["tenants"]], verbose)
    _table("channels", _CHANNEL_COLUMNS, [_channel_row(row) for row in answer["channels"]], verbose)
    for line in wire_lines(answer["channels"]):
        _say(line)
    if answer["filters"]:
        _table("filters", _FILTER_COLUMNS, answer["filters"], verbose)
    for line in _tls(answer["tls"]):
        _say(line)
    for what, problem in (answer.get("tls_files") or {}).get("waiting", {}).items():  # the version before has none
        _say(f"tls: {what}: its files have changed, and do not fit: what was in force stays: {problem}")
    if connections:
        rows = answer["connections"]
        shown = [
            row | {"ulps": _ulps(row), "carrier": _carrier(row), "filter": _filter(row)}
            for row in rows[:_SHOWN_CONNECTIONS]
        ]
        _table("connections", _CONNECTION_COLUMNS, shown, verbose)
        if len(rows) > _SHOWN_CONNECTIONS:
            print(f"… and {len(rows) - _SHOWN_CONNECTIONS} more; --json has all")


def _say(line: str) -> None:
    """Prints a line as it is: who answers may be anybody, so nothing in it controls the terminal."""
    print(printable(line))


@dataclass(frozen=True, slots=True)
class _Column:
    """`key`: of the row. `verbose`: only with -v; `optional`: left out while it says nothing."""

    heading: str
    key: str
    verbose: bool = False
    optional: bool = False


_WORKER_COLUMNS = (
    _Column("worker", "worker"),
    _Column("channels", "channels"),
    _Column("conns", "connections"),
    _Column("listeners", "listeners"),
    _Column("sent", "sent_bytes"),
    _Column("received", "received_bytes"),
    _Column("refused", "refused"),
    _Column("stalled, s", "no_progress_s"),
    _Column("up", "channels_up", verbose=True),
    _Column("kept", "kept", verbose=True),
    _Column("spilled now", "spill_bytes", verbose=True),
    _Column("granted", "window_bytes", verbose=True),
    _Column("kept by protocols", "ulp_bytes", verbose=True),
    _Column("sleeps", "sleeps", verbose=True),
    _Column("rounds with work", "hit_rate", verbose=True),
    _Column("CPU for polling", "polling", verbose=True),
)
_TENANT_COLUMNS = (
    _Column("tenant", "tenant"),
    _Column("conns", "connections"),
    _Column("listeners", "listeners"),
    _Column("descriptors", "descriptors"),
    _Column("memory", "memory_bytes"),
    _Column("refused", "refused"),
    _Column("orphans", "orphans", verbose=True),
    _Column("descriptors guaranteed", "descriptors_guaranteed", verbose=True),
    _Column("memory guaranteed", "memory_guaranteed_bytes", verbose=True),
)
_CHANNEL_COLUMNS = (
    _Column("program", "program"),
    _Column("pid", "pid"),
    _Column("tenant", "tenant"),
    _Column("queue", "queue_id"),
    _Column("link", "link"),
    _Column("conns", "connections"),
    _Column("listeners", "listeners"),
    _Column("relayed", "relayed", verbose=True),
    _Column("worker", "worker", verbose=True),
    _Column("frame credits", "frame_credits", verbose=True),
    _Column("frames in", "frames_in", verbose=True),
    _Column("frames out", "frames_out", verbose=True),
    _Column("spilled now", "spill_bytes", verbose=True),
    _Column("granted", "window_bytes", verbose=True),
    _Column("kept by protocols", "ulp_bytes", verbose=True),
)
_FILTER_COLUMNS = (
    _Column("filter", "filter"),
    _Column("sockets", "sockets"),
    _Column("dropped (by the filter, or no room)", "dropped"),
)
_CONNECTION_COLUMNS = (
    _Column("queue", "queue_id"),
    _Column("state", "state"),
    _Column("local", "local"),
    _Column("peer", "peer"),
    _Column("protocols", "ulps", optional=True),
    _Column("TLS by", "carrier", optional=True),
    _Column("sent", "sent_bytes"),
    _Column("received", "received_bytes"),
    _Column("filter", "filter", optional=True),
    _Column("dropped", "datagrams_dropped", optional=True),
    _Column("credits", "send_credits", verbose=True),
    _Column("spilled now", "spill_bytes", verbose=True),
    _Column("xts", "xts_socket", verbose=True),
    _Column("proxy id", "proxy_id", verbose=True),
)


def _table(title: str, columns: Sequence[_Column], rows: list[dict[str, Any]], verbose: bool) -> None:
    """Prints a table. Programs choose their own names, which must not control the terminal."""
    shown = [column for column in columns if verbose or not column.verbose]
    shown = [c for c in shown if not c.optional or any(row.get(c.key) for row in rows)]
    cells = [tuple(printable(_cell(c.key, row.get(c.key, ""))) for c in shown) for row in rows]
    print(f"\n{title}" if rows else f"\nno {title}")
    if rows:
        numeric = [c.heading for c in shown if c.key not in _TEXTS]
        print_table([c.heading for c in shown], cells, numeric)


_TEXTS = frozenset({"program", "tenant", "link", "state", "local", "peer", "ulps", "carrier", "filter"})


#: fallback_… of struct xts_tls_counts
_NOT_THE_BEST = {
    "no_kernel": "the kernel has no TLS",
    "configured": "the configuration says user",
    "stack": "TLS is not next to TCP",
    "refused": "the kernel or OpenSSL does not do this version, cipher or direction",
    "no_device": "no network card does it",
    "keys_change": "keys of TLS 1.3 may have to change",
}


#: kept_… of struct xts_tls_counts
_KEPT = {
    "configured": "the configuration says so",
    "cipher": "the cipher is not an AEAD",
    "kernel": "the kernel has the keys",
    "memory": "the memory for keys is full: proxy.key_memory_mib",
    "unknown": "keys or numbers not known, or no memory",
}


def _tls(counts: dict[str, int]) -> Iterator[str]:
    """Lines about handshakes, about who has the records, and about keys that hosts have pushed; none when there was
    nothing."""

    def by(direction: str) -> str:
        return ", ".join(f"{counts[f'{direction}_by_{who}']} {who}" for who in ("user", "kernel", "device"))

    if any(count for name, count in counts.items() if not name.startswith("key_memory_")):
        handshakes = counts["client_handshakes"] + counts["server_handshakes"]
        yield (
            f"tls: {handshakes} handshakes, {counts['resumed']} of them resumed; "
            f"encrypted by: {by('sent')}; decrypted by: {by('received')}"
        )
    kept = {words: count for name, words in _KEPT.items() if (count := counts.get(f"kept_{name}"))}
    if kept or counts["carried_ours"]:
        line = f"tls: records: {counts['carried_ours']} connections by the proxy, {sum(kept.values())} by OpenSSL"
        reasons = ", ".join(f"{count} ({words})" for words, count in kept.items())
        yield f"{line}: {reasons}" if kept else line
    why = {words: count for name, words in _NOT_THE_BEST.items() if (count := counts[f"fallback_{name}"])}
    if why:
        yield "tls: not the best kind: " + ", ".join(f"{count} ({words})" for words, count in why.items())
    if counts.get("key_memory_most"):  # the version before has none
        yield _key_memory(counts)


#: enum xts_tls_key_memory
_KEY_MEMORY = {1: "that nobody else can read", 2: "locked", 3: "that may be swapped"}


def _key_memory(counts: dict[str, int]) -> str:
    used, most, limit = (counts[f"key_memory_{name}"] >> 10 for name in ("used", "most", "limit"))
    kind = _KEY_MEMORY.get(counts["key_memory_kind"], "of a kind that is not known here")
    line = f"tls: keys: {used} KiB of {limit} KiB (at most {most}), memory {kind}"
    refused = counts["key_memory_refused"]
    return f"{line}; full {refused} times: proxy.key_memory_mib" if refused else line


def _interface(row: dict[str, Any]) -> Iterator[str]:
    """Whether its driver copies; what is wrong with it, and what was mended; nothing over shared memory."""
    if row.get("problem"):
        yield f"NO HOST CAN ATTACH: {row['problem']}"
    if row.get("copying"):  # the version before has none
        yield f"interface {row['interface']}: {row['copying']}"
    if row.get("unsteered"):
        yield f"interface {row['interface']}: {row['unsteered']}"
    if row and (row["renewed"] or row["reattached"]):
        yield (
            f"interface {row['interface']}: queues opened again {row['renewed']} times, "
            f"XDP program attached again {row['reattached']} times"
        )


def _rdma(row: dict[str, Any]) -> str:
    """A queue over RDMA, and whose it is."""
    where = f"queue {row['queue']}: RDMA device {row['device']}, {row['address']} port {row['port']}"
    who = f"connected with the agent at {row['peer']}" if row["peer"] else row["problem"] or "waits for an agent"
    counts = f"{row['connections']} connections so far, {row['refused']} refused"
    return f"{where}: {who}; {counts}"


def _ulps(row: dict[str, Any]) -> str:
    """The pushed protocols, from TCP upwards; separately for receiving and sending if they differ."""
    receive, send = row["receive_ulps"], row["send_ulps"]
    text = receive if receive == send else f"in {receive or '-'}, out {send or '-'}"
    return f"{text} (peeking)".strip() if row["peeking"] else text


def _carrier(row: dict[str, Any]) -> str:
    """Who has the records of TLS; separately for receiving and sending if they differ."""
    receive, send = row["receive_carrier"], row["send_carrier"]
    return str(receive) if receive == send else f"in {receive or '-'}, out {send or '-'}"


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
