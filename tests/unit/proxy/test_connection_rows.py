"""Rows of connections, unpacked in bulk: each field is what cffi reads one by one."""

from __future__ import annotations

import ipaddress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from xts_messages.attaching.waits import PROXY_REASONS
from xts_proxy._native import ffi
from xts_proxy.status.connection_rows import CONNECTION_STATES, rows_of

SIZE = ffi.sizeof("struct xts_connection_stats")
TEXTS = {"filter", "receive_ulps", "send_ulps", "receive_carrier", "send_carrier"}


def address(endpoint: Any) -> str:
    octets = bytes(endpoint.address)
    if endpoint.ip_version == 4:
        return f"{ipaddress.IPv4Address(octets[:4])}:{endpoint.port}"
    return f"[{ipaddress.IPv6Address(octets)}]:{endpoint.port}" if endpoint.ip_version == 6 else "*"


def check(item: Any, row: dict[str, Any]) -> None:
    plain = {name for name, field in ffi.typeof(item).fields if field.type.kind == "primitive"} - {"epoch", "state"}
    side = {name: getattr(item.side, name) for name, _ in ffi.typeof(item.side).fields}
    assert side and {name: row[name] for name in side} == side
    assert set(row) == plain | set(side) | TEXTS | {"epoch", "state", "local", "peer", "tcp", "waits"}
    assert {name: row[name] for name in plain} == {name: getattr(item, name) for name in plain}
    assert {name: row[name] for name in TEXTS} == {name: ffi.string(getattr(item, name)).decode() for name in TEXTS}
    assert row["epoch"] == f"{item.epoch:016x}"
    assert row["state"] == (CONNECTION_STATES[item.state] if item.state < len(CONNECTION_STATES) else "?")
    assert (row["local"], row["peer"]) == (address(item.local), address(item.peer))
    tcp = {name: getattr(item.tcp, name) for name, _ in ffi.typeof(item.tcp).fields if name != "known"}
    assert row["tcp"] == (tcp if item.tcp.known else None)
    for i, name in enumerate(PROXY_REASONS):
        assert row["waits"]["by_reason"][name] == {"times": item.waits.times[i], "ns": item.waits.ns[i]}
    for name, number in zip(("sending", "receiving"), item.waits.now, strict=True):
        assert row["waits"][name] == (PROXY_REASONS[number - 1] if 0 < number <= len(PROXY_REASONS) else None)


@given(
    st.lists(st.binary(min_size=SIZE, max_size=SIZE), max_size=3),
    st.sampled_from([0, 4, 6, 9]),
    st.integers(0, 8),
    st.lists(st.integers(0, 6), min_size=2, max_size=2),
)
def test_every_field(raws: list[bytes], ip_version: int, state: int, now: list[int]) -> None:
    items = ffi.new("struct xts_connection_stats[]", len(raws))
    for item, raw in zip(items, raws, strict=True):
        ffi.buffer(ffi.addressof(item))[:] = raw
        item.tcp.known = item.peeking = item.side.accepted = bool(raw[0] & 1)
        item.side.fin_wanted = item.side.fin_done = bool(raw[0] & 2)
        item.local.ip_version, item.state, item.waits.now = ip_version, state, now
        for name in TEXTS:
            setattr(item, name, b"tls/http2"[: raw[1] & 15])
    for item, row in zip(items, rows_of(items), strict=True):
        check(item, row)
