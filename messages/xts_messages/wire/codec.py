"""A small codec of the wire table: frames to Python values and back.

Tests hold the C decoder and the dissector against it, and use it to write a peer by hand. It is not a protocol engine:
it knows the layout of messages, and nothing about links, windows or sockets.
"""

from __future__ import annotations

import errno
import ipaddress
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import wire_table as table
from .wire_table import Field, Kind, Message

#: Formats of Python's struct module, network byte order.
_FORMAT = {Kind.U8: ">B", Kind.U16: ">H", Kind.U32: ">I", Kind.U64: ">Q", Kind.I32: ">i"}

BY_NAME: Mapping[str, Message] = {m.name: m for m in table.MESSAGES}
BY_CODE: Mapping[int, Message] = {m.code: m for m in table.MESSAGES}


class MalformedFrameError(OSError):
    """A frame that does not agree with the table (EBADMSG); the text says where."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EBADMSG, reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.strerror,), self.__dict__


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address and port; `address` is the 16 bytes of the wire, IPv4 in the first four."""

    ip_version: int = 0
    port: int = 0
    scope_id: int = 0
    address: bytes = bytes(table.ENDPOINT_ADDRESS_BYTES)

    @classmethod
    def of(cls, host: str, port: int, scope_id: int = 0) -> Endpoint:
        """From a literal address, as in `Endpoint.of("198.18.0.2", 80)`."""
        address = ipaddress.ip_address(host)
        return cls(address.version, port, scope_id, address.packed.ljust(table.ENDPOINT_ADDRESS_BYTES, b"\0"))

    @property
    def host(self) -> str:
        """The address as text; empty for none."""
        if self.ip_version == 4:
            return str(ipaddress.IPv4Address(self.address[:4]))
        return str(ipaddress.IPv6Address(self.address)) if self.ip_version == 6 else ""


Value = int | Endpoint


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. `fields` are those of its message; `flags` is the flags byte."""

    name: str
    fields: Mapping[str, Value] = field(default_factory=dict)
    payload: bytes = b""
    seqno: int = 0
    frame_ack: int = 0
    flags: int = 0
    error: int = 0
    id: int = 0
    destination: bytes = bytes(6)
    source: bytes = bytes(6)
    ethertype: int = table.ETHERTYPE

    @property
    def message(self) -> Message:
        return BY_NAME[self.name]

    @property
    def flag_names(self) -> tuple[str, ...]:
        return () if self.message.refusal else tuple(name for name, (bit, _) in table.FLAGS.items() if self.flags & bit)

    @property
    def refusal(self) -> int:
        """For a reply: why the proxy has refused the request (table.REFUSALS); 0 for none."""
        return self.flags if self.message.refusal else 0


def flags(*names: str) -> int:
    """The flags byte with these flags: `flags("FIN", "CLOSE")`."""
    return sum(table.FLAGS[name][0] for name in names)


def _encode_endpoint(value: Endpoint) -> bytes:
    parts = {"port": value.port, "ip_version": value.ip_version, "reserved": 0, "scope_id": value.scope_id}
    if len(value.address) != table.ENDPOINT_ADDRESS_BYTES:
        raise ValueError(f"an endpoint's address has {table.ENDPOINT_ADDRESS_BYTES} bytes, not {len(value.address)}")
    return b"".join(struct.pack(_FORMAT[f.kind], parts[f.name]) for f in table.ENDPOINT) + value.address


def _encode_fields(fields: Iterable[Field], values: Mapping[str, Value]) -> Iterator[bytes]:
    for f in fields:
        value = values.get(f.name, Endpoint() if f.kind is Kind.ENDPOINT else 0)
        if isinstance(value, Endpoint):
            yield _encode_endpoint(value)
        else:
            yield struct.pack(_FORMAT[f.kind], value)


def encode_fields(fields: Iterable[Field], values: Mapping[str, Value]) -> bytes:
    """The bytes of consecutive fields; fields without a value are 0."""
    return b"".join(_encode_fields(fields, values))


def encode(frame: Frame) -> bytes:
    """The bytes of a frame. A payload's length is filled in unless `fields` gives it. Limits are not enforced, so that
    tests can send what a correct peer would not. Fields without a value are 0."""
    message = frame.message
    unknown = set(frame.fields) - {f.name for f in message.fields}
    if unknown:
        raise ValueError(f"{frame.name} has no field {', '.join(sorted(unknown))}")
    values = dict(frame.fields)
    if message.payload:
        values.setdefault(message.payload, len(frame.payload))
    head: dict[str, Value] = {
        "type": message.code,
        "seqno": frame.seqno,
        "frame_ack": frame.frame_ack,
        "flags": frame.flags,
        "error": frame.error,
        "id": frame.id,
    }
    return b"".join(
        [
            frame.destination,
            frame.source,
            struct.pack(">H", frame.ethertype),
            *_encode_fields(table.HEAD, head),
            *_encode_fields(message.fields, values),
            frame.payload,
        ]
    )


def _decode_endpoint(data: bytes, where: str) -> Endpoint:
    parts = {}
    offset = 0
    for f in table.ENDPOINT:
        parts[f.name] = int(struct.unpack_from(_FORMAT[f.kind], data, offset)[0])
        if not f.legal(parts[f.name]):
            raise MalformedFrameError(f"{where}.{f.name}: {parts[f.name]} is not legal")
        offset += f.kind.bytes
    return Endpoint(parts["ip_version"], parts["port"], parts["scope_id"], data[offset:])


def decode_fields(fields: Iterable[Field], data: bytes, offset: int = 0) -> dict[str, Value]:
    """The values of consecutive fields, from offset on. Raises MalformedFrameError."""
    values: dict[str, Value] = {}
    for f in fields:
        if f.kind is Kind.ENDPOINT:
            values[f.name] = _decode_endpoint(data[offset : offset + f.kind.bytes], f.name)
        else:
            value = int(struct.unpack_from(_FORMAT[f.kind], data, offset)[0])
            if not f.legal(value):
                raise MalformedFrameError(f"{f.name}: {value} is not legal")
            values[f.name] = value
        offset += f.kind.bytes
    return values


def decode(data: bytes) -> Frame:
    """Reads a frame, from its Ethernet header on. Raises MalformedFrameError. The EtherType is not checked."""
    if len(data) < table.HEAD_BYTES:
        raise MalformedFrameError(f"head: {len(data)} bytes of {table.HEAD_BYTES}")
    head = {}
    offset = table.ETH_BYTES
    for f in table.HEAD:
        head[f.name] = int(struct.unpack_from(_FORMAT[f.kind], data, offset)[0])
        offset += f.kind.bytes
    message = BY_CODE.get(head.pop("type"))
    if message is None:
        raise MalformedFrameError(f"type: {data[table.ETH_BYTES]} is unknown")
    if len(data) < message.fixed_bytes:
        raise MalformedFrameError(f"{message.name}: {len(data)} bytes of {message.fixed_bytes}")
    values = decode_fields(message.fields, data, table.HEAD_BYTES)
    payload = b""
    if message.payload:
        length = values[message.payload]
        assert isinstance(length, int)
        rest = len(data) - message.fixed_bytes
        if length > rest:
            raise MalformedFrameError(f"{message.payload}: {length} bytes of payload, {rest} in the frame")
        if length < rest and len(data) > table.ETH_MIN_BYTES:
            raise MalformedFrameError(
                f"{message.payload}: {length} bytes of payload, {rest - length} more in the frame"
            )
        payload = data[message.fixed_bytes : message.fixed_bytes + length]
    return Frame(
        message.name,
        values,
        payload,
        destination=data[0:6],
        source=data[6:12],
        ethertype=int(struct.unpack_from(">H", data, 12)[0]),
        **head,
    )
