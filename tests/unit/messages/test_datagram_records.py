"""Records of datagrams: the C code (messages/native/wire/datagram.c) against the codec in Python, on payloads in
pieces."""

from __future__ import annotations

import errno
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xts_messages._native import ffi, lib
from xts_messages.wire import datagram
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, MalformedFrameError
from xts_messages.wire.datagram import Datagram, error_item, item

endpoints = st.one_of(
    st.just(Endpoint()),
    st.builds(
        lambda port, address: Endpoint(4, port, 0, address.ljust(16, b"\0")),
        st.integers(0, 65535),
        st.binary(min_size=4, max_size=4),
    ),
    st.builds(
        lambda port, scope, address: Endpoint(6, port, scope, address),
        st.integers(0, 65535),
        st.integers(0, 2**32 - 1),
        st.binary(min_size=16, max_size=16),
    ),
)
known_items = st.tuples(
    st.one_of(st.none(), st.builds(lambda e: item("PKTINFO", e), endpoints.filter(lambda e: e.ip_version))),
    st.one_of(st.none(), st.builds(lambda v: item("HOP_LIMIT", v), st.integers(0, 2**32 - 1))),
    st.one_of(st.none(), st.builds(lambda v: item("TRAFFIC_CLASS", v), st.integers(0, 255))),
    st.one_of(st.none(), st.builds(lambda v: item("TIMESTAMP_NS", v), st.integers(0, 2**64 - 1))),
    st.one_of(st.none(), st.builds(lambda v: item("SPEC_DST", v), st.integers(0, 2**32 - 1))),
    st.one_of(
        st.none(),
        st.builds(
            lambda error, kinds, offender, info, data: error_item(error, kinds, offender, info=info, data=data),
            st.integers(0, 2**32 - 1),
            st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255)),
            endpoints,
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**32 - 1),
        ),
    ),
    st.one_of(st.none(), st.builds(lambda v: item("STAMPING", v), st.integers(0, 2**128 - 1))),
    st.one_of(st.none(), st.builds(lambda v: item("STAMP_PKTINFO", v), st.integers(0, 2**64 - 1))),
    st.one_of(st.none(), st.builds(lambda v: item("STAMP_SEND", v), st.integers(0, 2**32 - 1))),
    st.one_of(st.none(), st.builds(lambda v: item("STAMP_ID", v), st.integers(0, 2**32 - 1))),
).map(lambda items: tuple(i for i in items if i is not None))
strange_items = st.lists(st.tuples(st.integers(0, 65535), st.binary(max_size=40)), max_size=4).map(tuple)
datagrams = st.builds(Datagram, st.binary(max_size=300), endpoints, st.integers(0, 65535), known_items)
strange = st.builds(
    Datagram,
    st.binary(max_size=40),
    endpoints,
    st.integers(0, 65535),
    strange_items,
    st.one_of(st.none(), st.integers(0, 65535)),
    st.one_of(st.none(), st.integers(0, 300)),
)


def endpoint_of(e: object) -> Endpoint:
    return Endpoint(int(e.ip_version), int(e.port), int(e.scope_id), bytes(e.address))  # type: ignore[attr-defined]


def error_of(e: Any) -> bytes:
    kinds = (int(e.origin), int(e.type), int(e.code))
    return error_item(int(e.error), kinds, endpoint_of(e.offender), info=int(e.info), data=int(e.data))[1]


def controls_of(d: object) -> dict[str, int | Endpoint | bytes]:
    """By name, what the C code has found."""
    values = {
        "PKTINFO": lambda: endpoint_of(d.pktinfo),  # type: ignore[attr-defined]
        "HOP_LIMIT": lambda: int(d.hop_limit),  # type: ignore[attr-defined]
        "TRAFFIC_CLASS": lambda: int(d.traffic_class),  # type: ignore[attr-defined]
        "TIMESTAMP_NS": lambda: int(d.timestamp_ns),  # type: ignore[attr-defined]
        "SPEC_DST": lambda: int(d.spec_dst),  # type: ignore[attr-defined]
        "ERROR": lambda: error_of(d.error),  # type: ignore[attr-defined]
        "STAMPING": lambda: int(d.software_ns) << 64 | int(d.hardware_ns),  # type: ignore[attr-defined]
        "STAMP_PKTINFO": lambda: int(d.stamp_interface) << 32 | int(d.stamp_bytes),  # type: ignore[attr-defined]
        "STAMP_SEND": lambda: int(d.stamp_send),  # type: ignore[attr-defined]
        "STAMP_ID": lambda: int(d.stamp_id),  # type: ignore[attr-defined]
    }
    present = int(d.controls)  # type: ignore[attr-defined]
    return {n: value() for n, value in values.items() if present & 1 << table.DATAGRAM_CONTROLS[n][0]}


def read_in_c(payload: bytes, piece: int) -> list[tuple[Datagram, bool]]:
    """Each with whether it had items that nobody knows. Data may be cut off at the payload's end."""
    frame, keep = ffi.new("struct xts_rx_frame *"), ffi.from_buffer(payload)
    piece = max(piece, -(-len(payload) // int(lib.XTS_SEGMENTS_MAX)))
    for number, at in enumerate(range(0, len(payload), piece)):
        frame.segment[number].iov_base = keep + at
        frame.segment[number].iov_len = min(piece, len(payload) - at)
        frame.segments = number + 1
    cursor, d = ffi.new("struct xts_datagram_cursor *"), ffi.new("struct xts_datagram *")
    lib.xts_datagram_begin(cursor, frame, 0, len(payload))
    out = []
    while (r := lib.xts_datagram_next(cursor, d)) == 1:
        iov, count = ffi.new("struct iovec[]", int(lib.XTS_SEGMENTS_MAX)), ffi.new("uint32_t *", lib.XTS_SEGMENTS_MAX)
        lent = lib.xts_datagram_data(cursor, d.record.data_bytes, iov, count)
        data = b"".join(bytes(ffi.buffer(iov[i].iov_base, iov[i].iov_len)) for i in range(count[0]))
        assert len(data) == lent
        controls = tuple(item(name, value) for name, value in controls_of(d).items())
        record = d.record
        found = Datagram(
            data, endpoint_of(record.endpoint), int(record.segment_bytes), controls, int(record.data_bytes)
        )
        out.append((found, bool(d.unknown)))
    if r:
        raise MalformedFrameError(errno.errorcode[-r])
    return out


def write_in_c(value: Datagram) -> bytes:
    d = ffi.new("struct xts_datagram *")
    d.record.data_bytes, d.record.segment_bytes = len(value.data), value.segment_bytes
    fill(d.record.endpoint, value.endpoint)
    for name, (number, size, _) in table.DATAGRAM_CONTROLS.items():
        raw = value.control(name)
        if raw is None:
            continue
        d.controls |= 1 << number
        if name == "PKTINFO":
            fill(d.pktinfo, Endpoint(raw[2], int.from_bytes(raw[:2], "big"), int.from_bytes(raw[4:8], "big"), raw[8:]))
        elif name == "ERROR":
            e = d.error
            e.error, e.origin, e.type, e.code, _, e.info, e.data = struct.unpack(">IBBBBII", raw[:16])
            offender, (port, scope) = raw[16:], struct.unpack(">HxxI", raw[16:24])
            fill(e.offender, Endpoint(offender[2], port, scope, offender[8:]))
        elif name == "STAMPING":
            d.software_ns, d.hardware_ns = struct.unpack(">QQ", raw)
        elif name == "STAMP_PKTINFO":
            d.stamp_interface, d.stamp_bytes = struct.unpack(">II", raw)
        else:
            assert len(raw) == size
            setattr(d, name.lower(), int.from_bytes(raw, "big"))
    room = ffi.new("uint8_t[]", int(lib.XTS_DATAGRAM_HEAD_BYTES_MAX))
    size = int(lib.xts_datagram_write(room, len(room), d))
    assert size
    assert not lib.xts_datagram_write(room, size - 1, d)
    assert int(lib.xts_datagram_credits(ffi.addressof(d, "record"))) == value.credits
    return bytes(ffi.buffer(room, size)) + value.data


def fill(to: object, value: Endpoint) -> None:
    to.ip_version, to.port, to.scope_id = value.ip_version, value.port, value.scope_id  # type: ignore[attr-defined]
    to.address = value.address  # type: ignore[attr-defined]


@given(st.lists(datagrams, max_size=8), st.integers(1, 400))
def test_what_one_writes_the_other_reads(values: list[Datagram], piece: int) -> None:
    payload = b"".join(write_in_c(v) for v in values)
    assert payload == b"".join(datagram.encode(v) for v in values)
    assert datagram.Reader().take(payload, False) == values
    found = read_in_c(payload, piece)
    assert [Datagram(f.data, f.endpoint, f.segment_bytes, f.controls) for f, _ in found] == values
    assert not any(unknown for _, unknown in found)


@settings(max_examples=300)
@given(st.lists(strange, min_size=1, max_size=3), st.integers(1, 60), st.integers(0, 80))
def test_both_agree_about_what_is_malformed(values: list[Datagram], piece: int, cut: int) -> None:
    payload = b"".join(datagram.encode(v) for v in values)
    payload = payload[: max(0, len(payload) - cut)]
    expected, at = [], 0
    try:
        while at < len(payload):
            head, size = datagram.decode_head(payload[at:])
            data = payload[at + size :][: head.data_bytes or 0]
            expected.append((data, head.data_bytes, all(datagram.understood(*c) for c in head.controls)))
            at += size + len(data)
    except MalformedFrameError:
        with pytest.raises(MalformedFrameError):
            read_in_c(payload, piece)
        return
    found = read_in_c(payload, piece)
    assert [(f.data, f.data_bytes, not unknown) for f, unknown in found] == expected


@given(st.lists(datagrams, min_size=1, max_size=5), st.data())
def test_a_datagram_goes_on_in_the_next_message(values: list[Datagram], draw: st.DataObject) -> None:
    reader, found = datagram.Reader(), []
    for number, value in enumerate(values):
        raw = datagram.encode(value)
        at = len(raw) - len(value.data)
        first = draw.draw(st.integers(at, len(raw)), label=f"bytes of datagram {number} in its first message")
        found += reader.take(raw[:first], more=first < len(raw))
        if first < len(raw):
            found += reader.take(raw[first:], more=False)
    assert found == values


def test_more_must_be_true() -> None:
    raw = datagram.encode(Datagram(b"whole"))
    with pytest.raises(MalformedFrameError, match="no datagram goes on"):
        datagram.Reader().take(raw, more=True)
    with pytest.raises(MalformedFrameError, match="cut off"):
        datagram.Reader().take(raw[:-1], more=False)


def test_the_largest_datagram_fits_the_least_window() -> None:
    most = 65_535 + table.DATAGRAM_CONTROL_BYTES_MAX + table.DATAGRAM_CREDITS
    assert most <= int(lib.XTS_DATAGRAM_WINDOW_MIN) <= int(lib.XTS_DATAGRAM_WINDOW_DEFAULT)
