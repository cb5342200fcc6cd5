"""The decoders of wire.h by themselves, limit by limit, as the wire table has them: what test_vectors draws at random
is here whole. With it tests/coverage shows each branch of the header taken."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from beds.native_core import load
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, Frame
from xts_messages.wire.wire_table import Field, Kind, Message

ffi, core = load()
WITH_FIELDS = [message for message in table.MESSAGES if message.fields]
each_message = pytest.mark.parametrize("message", WITH_FIELDS, ids=lambda m: m.stem)
EVERY_TYPE = range(256)
BY_CODE = {message.code: message for message in table.MESSAGES}
SOME_PAYLOAD = bytes(64)  # longer than what Ethernet pads a short frame with


def decode(message: Message, frame: bytes) -> int:
    """What the message's decoder says of a frame."""
    body = ffi.new(f"struct xts_{message.stem} *")
    return int(getattr(core, f"xts_{message.stem}_decode")(body, ffi.new("uint8_t[]", frame), len(frame)))


def written(message: Message, values: dict[str, Any], frame_bytes: int | None = None) -> bytes:
    """A frame with these values, which the C encoder writes unchecked."""
    memory = ffi.new("uint8_t[]", max(frame_bytes or 0, message.fixed_bytes))
    body = ffi.new(f"struct xts_{message.stem} *")
    for f in message.fields:
        if f.values:
            setattr(body, f.name, f.values[0])
    for name, value in values.items():
        if isinstance(value, Endpoint):
            getattr(body, name).ip_version = value.ip_version
        else:
            setattr(body, name, value)
    getattr(core, f"xts_{message.stem}_encode")(memory, body)
    return bytes(ffi.buffer(memory))


def ends_of(f: Field) -> tuple[list[Any], list[Any]]:
    """Values of a field that are just legal, and just not."""
    if f.kind is Kind.ENDPOINT:
        return [Endpoint(v, 0, 0, bytes(16)) for v in (0, 4, 6)], [Endpoint(v, 0, 0, bytes(16)) for v in (1, 5, 7)]
    if f.values:
        return list(f.values), [max(f.values) + 1]
    return ([0, f.limit], [f.limit + 1]) if f.limit is not None else ([0], [])


@each_message
def test_a_frame_that_is_too_short(message: Message) -> None:
    whole = written(message, {})
    assert decode(message, whole) == 0
    for length in (0, table.HEAD_BYTES, len(whole) - 1):
        assert decode(message, whole[:length]) == -errno.EBADMSG


@each_message
def test_each_field_at_its_limits(message: Message) -> None:
    for f in message.fields:
        legal, beyond = ends_of(f)
        for value in legal:
            room = message.fixed_bytes + value if f.name == message.payload else None
            assert decode(message, written(message, {f.name: value}, room)) == 0, (f.name, value)
        for value in beyond:
            room = message.fixed_bytes + value if f.name == message.payload else None
            assert decode(message, written(message, {f.name: value}, room)) == -errno.EBADMSG, (f.name, value)


@pytest.mark.parametrize("message", [m for m in WITH_FIELDS if m.payload], ids=lambda m: m.stem)
def test_a_payload_that_is_not_as_long_as_it_says(message: Message) -> None:
    length = len(SOME_PAYLOAD)
    frame = written(message, {message.payload: length}) + SOME_PAYLOAD
    assert decode(message, frame) == 0
    assert decode(message, frame[:-1]) == -errno.EBADMSG
    assert decode(message, frame + b"\0") == -errno.EBADMSG
    assert decode(message, written(message, {}).ljust(table.ETH_MIN_BYTES, b"\0")) == 0  # as Ethernet pads it


def record(data: int = 0, control: int = 0, version: int = 0) -> bytes:
    """A datagram's record."""
    made = ffi.new("struct xts_datagram_record *")
    made.data_bytes, made.control_bytes, made.endpoint.ip_version = data, control, version
    memory = ffi.new("uint8_t[64]")
    core.xts_datagram_record_encode(memory, made)
    return bytes(ffi.buffer(memory))


@pytest.mark.parametrize(
    ("bytes_", "error"),
    [
        (record(), 0),
        (record(data=65535, control=256, version=6), 0),
        (record(version=4), 0),
        (record(control=257), errno.EBADMSG),
        (record(version=5), errno.EBADMSG),
        (record()[:1], errno.EBADMSG),
    ],
)
def test_a_datagrams_record(bytes_: bytes, error: int) -> None:
    made = ffi.new("struct xts_datagram_record *")
    assert core.xts_datagram_record_decode(made, ffi.new("uint8_t[]", bytes_), len(bytes_)) == -error


def test_what_is_asked_of_a_type() -> None:
    for code in EVERY_TYPE:
        message = BY_CODE.get(code)
        flags = sum(table.FLAGS[name][0] for name in message.flags) if message else 0
        feature = table.FEATURES[message.feature][0] if message and message.feature else 0
        assert core.xts_type_flags(code) == flags, code
        assert core.xts_type_feature(code) == feature, code
        assert core.xts_type_bytes(code) == (message.fixed_bytes if message else 0), code
        assert bool(core.xts_type_to_host(code)) == bool(message and message.sender != "host"), code
        assert bool(core.xts_type_to_proxy(code)) == bool(message and message.sender != "proxy"), code


def test_what_is_said_of_a_refusal() -> None:
    known = [number for number in EVERY_TYPE if core.xts_refusal_errno(number)]
    assert known == sorted(refusal[0] for refusal in table.REFUSALS.values())
    for number in EVERY_TYPE:
        assert bool(core.xts_refusal_text(number)) == (number in known)


def test_the_codec_knows_the_same_types() -> None:
    assert {message.code for message in table.MESSAGES} == set(codec.BY_CODE)
    assert codec.decode(codec.encode(Frame("XTS_LINK_FRAME_ACK"))).name == "XTS_LINK_FRAME_ACK"
