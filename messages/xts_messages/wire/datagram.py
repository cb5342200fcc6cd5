"""Records of datagrams, to bytes and back: they are the payload of SEND_DATAGRAMS and RECV_DATAGRAMS.

As with codec.py, tests hold the C code (messages/native/wire/datagram.c) against it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from . import wire_table as table
from .codec import Endpoint, MalformedFrameError, decode_fields, encode_fields

_ITEM = struct.Struct(">HH")
_TYPES = {number: (name, size) for name, (number, size, _) in table.DATAGRAM_CONTROLS.items()}


@dataclass(frozen=True, slots=True)
class Datagram:
    """A datagram, or a train of them; `controls` are the items' types and bytes. Lengths that are given are written
    unchanged, so that tests can send what a correct peer would not."""

    data: bytes = b""
    endpoint: Endpoint = field(default_factory=Endpoint)
    segment_bytes: int = 0
    controls: tuple[tuple[int, bytes], ...] = ()
    data_bytes: int | None = None
    control_bytes: int | None = None

    @property
    def credits(self) -> int:
        """The post credits that it takes."""
        return len(self.data) + len(encode_controls(self.controls)) + table.DATAGRAM_CREDITS

    def control(self, name: str) -> bytes | None:
        """The first control item of that name: `control("HOP_LIMIT")`."""
        number = table.DATAGRAM_CONTROLS[name][0]
        return next((value for kind, value in self.controls if kind == number), None)


def item(name: str, value: int | Endpoint | bytes) -> tuple[int, bytes]:
    """A control item: `item("HOP_LIMIT", 3)`."""
    number, size, _ = table.DATAGRAM_CONTROLS[name]
    if isinstance(value, bytes):
        return number, value
    if isinstance(value, Endpoint):
        return number, encode_fields((table.Field("", table.Kind.ENDPOINT, ""),), {"": value})
    return number, value.to_bytes(size, "big")


def error_item(
    error: int, kinds: tuple[int, int, int], offender: Endpoint, *, info: int = 0, data: int = 0
) -> tuple[int, bytes]:
    """The control item of an entry of the error queue (struct sock_extended_err); `kinds` are origin, type and code."""
    fixed = struct.pack(">IBBBBII", error, *kinds, 0, info, data)
    return item("ERROR", fixed + item("PKTINFO", offender)[1])


def encode_controls(controls: Iterable[tuple[int, bytes]]) -> bytes:
    """Control items, each padded to a multiple of 4."""
    return b"".join(_ITEM.pack(kind, len(value)) + value + bytes(-len(value) % 4) for kind, value in controls)


def encode(datagram: Datagram) -> bytes:
    """The record of a datagram, its data included."""
    controls = encode_controls(datagram.controls)
    fields: dict[str, int | Endpoint] = {
        "data_bytes": len(datagram.data) if datagram.data_bytes is None else datagram.data_bytes,
        "segment_bytes": datagram.segment_bytes,
        "control_bytes": len(controls) if datagram.control_bytes is None else datagram.control_bytes,
        "reserved": 0,
        "endpoint": datagram.endpoint,
    }
    return encode_fields(table.DATAGRAM_RECORD, fields) + controls + datagram.data


def _decode_controls(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset < len(data):
        if len(data) - offset < _ITEM.size:
            raise MalformedFrameError("a control item is cut off")
        kind, size = _ITEM.unpack_from(data, offset)
        offset += _ITEM.size
        if size + -size % 4 > len(data) - offset:
            raise MalformedFrameError(f"control item {kind}: {size} bytes, {len(data) - offset} are there")
        yield kind, data[offset : offset + size]
        offset += size + -size % 4


def decode_head(data: bytes) -> tuple[Datagram, int]:
    """The record at the beginning of data, without the datagram's data, and the record's length. Raises
    MalformedFrameError."""
    if len(data) < table.DATAGRAM_RECORD_BYTES:
        raise MalformedFrameError(f"record: {len(data)} bytes of {table.DATAGRAM_RECORD_BYTES}")
    fields = decode_fields(table.DATAGRAM_RECORD, data)
    control_bytes, data_bytes, segment_bytes = (
        fields[name] for name in ("control_bytes", "data_bytes", "segment_bytes")
    )
    endpoint = fields["endpoint"]
    assert isinstance(control_bytes, int) and isinstance(data_bytes, int) and isinstance(segment_bytes, int)
    assert isinstance(endpoint, Endpoint)
    end = table.DATAGRAM_RECORD_BYTES + control_bytes
    if len(data) < end:
        raise MalformedFrameError(f"control items: {control_bytes} bytes, the message ends before")
    controls = tuple(_decode_controls(data[table.DATAGRAM_RECORD_BYTES : end]))
    return Datagram(b"", endpoint, segment_bytes, controls, data_bytes, control_bytes), end


def understood(kind: int, value: bytes) -> bool:
    """Does this version know the control item, and does it have the right length?"""
    if kind not in _TYPES or len(value) != _TYPES[kind][1]:
        return False
    name = _TYPES[kind][0]
    if name == "ERROR":
        return value[18] in (0, 4, 6)
    return name != "PKTINFO" or value[2] in (4, 6)


class Reader:
    """Takes the messages of one socket one by one, and assembles datagrams that continue in the next message (flag
    MORE)."""

    def __init__(self) -> None:
        self._head: Datagram | None = None
        self._data = b""

    def take(self, payload: bytes, more: bool) -> list[Datagram]:
        """The datagrams that are complete with this message. Raises MalformedFrameError."""
        out = []
        while payload or self._complete():
            if self._head is None:
                self._head, size = decode_head(payload)
                payload = payload[size:]
            wanted = (self._head.data_bytes or 0) - len(self._data)
            self._data, payload = self._data + payload[:wanted], payload[wanted:]
            if self._complete():
                head = self._head
                out.append(Datagram(self._data, head.endpoint, head.segment_bytes, head.controls))
                self._head, self._data = None, b""
        if (self._head is not None) != more:
            raise MalformedFrameError("MORE, and no datagram goes on" if more else "a datagram is cut off")
        return out

    def _complete(self) -> bool:
        return self._head is not None and len(self._data) == self._head.data_bytes
