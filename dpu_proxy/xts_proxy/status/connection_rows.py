"""A worker's connections as rows for status and `xts top`.

There may be tens of thousands, and somebody looks every second. One attribute of a cffi struct costs as much as all of
them read at once by the struct module, so the layout of struct xts_connection_stats is taken from cffi's declaration
once, and each row is unpacked as a whole.
"""

from __future__ import annotations

import ipaddress
import operator
import socket
import struct
from collections.abc import Iterator
from typing import Any

from xts_messages.attaching.waits import PROXY_REASONS

from xts_proxy._native import ffi

CONNECTION_STATES = ("idle", "connecting", "established", "listener", "closing", "failed", "datagram")
#: By size and sign.
_CODES = {(1, False): "B", (2, False): "H", (4, False): "I", (8, False): "Q", (4, True): "i", (8, True): "q"}


def _fields(kind: Any, offset: int = 0, path: str = "") -> Iterator[tuple[str, int, str]]:
    """The name ("tcp.rtt_us"), offset and code of each field. Arrays of bytes are one field, other arrays several."""
    for last, field in kind.fields:
        at, of, name = offset + field.offset, field.type, path + last
        if of.kind == "struct":
            yield from _fields(of, at, f"{name}.")
        elif of.kind != "array":
            yield name, at, _code(of)
        elif ffi.sizeof(of.item) == 1:
            yield name, at, f"{of.length}s"
        else:
            for i in range(of.length):
                yield f"{name}.{i}", at + i * ffi.sizeof(of.item), _code(of.item)


def _code(kind: Any) -> str:
    if kind.cname == "_Bool":
        return "?"
    return _CODES[ffi.sizeof(kind), int(ffi.cast(kind, -1)) < 0]


def _layout() -> tuple[struct.Struct, tuple[str, ...]]:
    kind, form, at = ffi.typeof("struct xts_connection_stats"), "=", 0
    fields = tuple(_fields(kind))
    for _, offset, code in fields:
        form += f"{offset - at}x{code}"
        at = offset + struct.calcsize(f"={code}")
    return struct.Struct(f"{form}{ffi.sizeof(kind) - at}x"), tuple(name for name, _, _ in fields)


_STRUCT, _NAMES = _layout()
_TEXTS = ("filter", "receive_ulps", "send_ulps", "receive_carrier", "send_carrier")
#: Of the TCP side, what its table declares to be shown (xts_messages/wire/record_table.py).
_SIDE = "side."
_NUMBERS = tuple(
    name for name in _NAMES if ("." not in name or name.startswith(_SIDE)) and name not in (*_TEXTS, "epoch", "state")
)
_NUMBER_NAMES = tuple(name.removeprefix(_SIDE) for name in _NUMBERS)
_TCP = tuple(name for name in _NAMES if name.startswith("tcp.") and name != "tcp.known")
_WAITS = tuple(f"waits.{what}.{i}" for what in ("times", "ns") for i in range(len(PROXY_REASONS)))
_ENDPOINT = ("ip_version", "address", "port")
_REASONS = len(PROXY_REASONS)


def _getter(*names: str) -> Any:
    return operator.itemgetter(*(_NAMES.index(name) for name in names))


_numbers, _tcp, _waits, _texts = _getter(*_NUMBERS), _getter(*_TCP), _getter(*_WAITS), _getter(*_TEXTS)
_local = _getter(*(f"local.{name}" for name in _ENDPOINT))
_peer = _getter(*(f"peer.{name}" for name in _ENDPOINT))
_others = _getter("epoch", "state", "tcp.known", "waits.now")
_TCP_NAMES = tuple(name.removeprefix("tcp.") for name in _TCP)


def rows_of(items: Any) -> list[dict[str, Any]]:
    """Of an array of struct xts_connection_stats."""
    return [_row(values) for values in _STRUCT.iter_unpack(ffi.buffer(items))]


def _row(values: tuple[Any, ...]) -> dict[str, Any]:
    epoch, state, tcp_known, now = _others(values)
    row: dict[str, Any] = dict(zip(_NUMBER_NAMES, _numbers(values), strict=True))
    for name, text in zip(_TEXTS, _texts(values), strict=True):
        row[name] = text.partition(b"\0")[0].decode()
    row["epoch"] = f"{epoch:016x}"
    row["state"] = CONNECTION_STATES[state] if state < len(CONNECTION_STATES) else "?"
    row["local"], row["peer"] = _endpoint_text(*_local(values)), _endpoint_text(*_peer(values))
    row["tcp"] = dict(zip(_TCP_NAMES, _tcp(values), strict=True)) if tcp_known else None
    row["waits"] = _waits_row(_waits(values), now)
    return row


def _waits_row(counts: tuple[int, ...], now: bytes) -> dict[str, Any]:
    """As xts_messages.attaching.waits.Waits; `ns` has the present waits already."""
    by_reason = {
        name: {"times": times, "ns": ns}
        for name, times, ns in zip(PROXY_REASONS, counts[:_REASONS], counts[_REASONS:], strict=True)
    }
    sending, receiving = (PROXY_REASONS[number - 1] if 0 < number <= _REASONS else None for number in now)
    return {"by_reason": by_reason, "sending": sending, "receiving": receiving}


def endpoint_text(endpoint: Any) -> str:
    """struct xts_endpoint as "198.18.0.1:80" or "[fd18::1]:80"; "*" for none."""
    return _endpoint_text(endpoint.ip_version, bytes(ffi.buffer(endpoint.address)), endpoint.port)


def _endpoint_text(ip_version: int, octets: bytes, port: int) -> str:
    if ip_version == 4:
        return f"{socket.inet_ntoa(octets[:4])}:{port}"
    if ip_version == 6:
        return f"[{ipaddress.IPv6Address(octets)}]:{port}"
    return "*"
