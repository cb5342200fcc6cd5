"""Three decoders of the same frames: the golden vectors, the Python codec and the C header agree."""

from __future__ import annotations

import json
from typing import Any

import pytest
from beds.examples import examples
from beds.native_core import TOP, load
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.generate import generate_vectors
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, Frame, MalformedFrameError, Value
from xts_messages.wire.wire_table import Field, Kind, Message

VECTORS = [
    pytest.param(vector, id=f"{path.stem}: {vector['name']}")
    for path in sorted((TOP / "messages/vectors").glob("*.json"))
    for vector in json.loads(path.read_text())["vectors"]
]
EBADMSG = -74

_BITS = {Kind.U8: 8, Kind.U16: 16, Kind.U32: 32, Kind.U64: 64}


def c_decode(data: bytes) -> Frame | int:
    """The frame as the C decoders see it, or their error."""
    ffi, core = load()
    head = ffi.new("struct xts_head *")
    memory = ffi.new("uint8_t[]", data)
    error = core.xts_head_decode(head, memory, len(data))
    if error:
        return int(error)
    message = codec.BY_CODE.get(head.type)
    if message is None or len(data) < core.xts_type_bytes(head.type):
        return EBADMSG  # the link's check, before any decoder of a body
    fields: dict[str, Value] = {}
    if message.fields:
        body = ffi.new(f"struct xts_{message.stem} *")
        error = getattr(core, f"xts_{message.stem}_decode")(body, memory, len(data))
        if error:
            return int(error)
        fields = {f.name: _c_value(ffi, getattr(body, f.name)) for f in message.fields}
    payload = b""
    if message.payload:
        payload = data[message.fixed_bytes : message.fixed_bytes + int(getattr(body, message.payload))]
    return Frame(
        message.name,
        fields,
        payload,
        head.seqno,
        head.frame_ack,
        head.flags,
        head.error,
        head.id,
        data[0:6],
        data[6:12],
        int.from_bytes(data[12:14], "big"),
    )


def _c_value(ffi: Any, value: Any) -> Value:
    if isinstance(value, int):
        return value
    return Endpoint(value.ip_version, value.port, value.scope_id, bytes(ffi.buffer(value.address)))


def c_encode(frame: Frame, length: int) -> bytes:
    """The same frame written by the C encoders; what they leave to the link is put in by hand."""
    ffi, core = load()
    memory = ffi.new("uint8_t[]", frame.message.fixed_bytes)
    core.xts_head_encode(memory, frame.message.code, frame.flags, frame.error, frame.id)
    if frame.message.fields:
        body = ffi.new(f"struct xts_{frame.message.stem} *")
        lengths = {frame.message.payload: length} if frame.message.payload else {}
        for name, value in (dict(frame.fields) | lengths).items():
            if isinstance(value, Endpoint):
                part = getattr(body, name)
                part.ip_version, part.port, part.scope_id = value.ip_version, value.port, value.scope_id
                ffi.memmove(part.address, value.address, 16)
            else:
                setattr(body, name, value)
        getattr(core, f"xts_{frame.message.stem}_encode")(memory, body)
    data = bytearray(ffi.buffer(memory))
    data[0:14] = frame.destination + frame.source + frame.ethertype.to_bytes(2, "big")
    data[15], data[16] = frame.seqno, frame.frame_ack
    return bytes(data) + frame.payload


def try_python(data: bytes) -> Frame | int:
    """The Python codec's frame, or its error as the C decoders say it."""
    try:
        return codec.decode(data)
    except MalformedFrameError as malformed:
        assert malformed.errno is not None
        return -malformed.errno


@pytest.mark.parametrize("vector", VECTORS)
def test_vector(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["frame"])
    assert generate_vectors.expected(data) == {k: v for k, v in vector.items() if k not in ("name", "frame")}
    assert c_decode(data) == try_python(data)
    assert (c_decode(data) == EBADMSG) == (vector["verdict"] == "malformed")


def test_every_message_has_legal_and_malformed_vectors() -> None:
    for message in table.MESSAGES:
        vectors = json.loads((TOP / f"messages/vectors/{message.stem}.json").read_text())["vectors"]
        verdicts = [v["verdict"] for v in vectors]
        assert verdicts.count("ok") >= 4
        assert verdicts.count("malformed") >= (2 if message.fields else 0)
        assert {flag for v in vectors for flag in v.get("flags", ())} == set(message.flags)


def values(f: Field) -> st.SearchStrategy[Value]:
    """Every legal value of a field."""
    if f.kind is Kind.ENDPOINT:
        return st.builds(
            Endpoint,
            st.sampled_from([0, 4, 6]),
            st.integers(0, 0xFFFF),
            st.integers(0, 0xFFFFFFFF),
            st.binary(min_size=16, max_size=16),
        )
    if f.values:
        return st.sampled_from(f.values)
    if f.kind is Kind.I32:
        return st.integers(-(1 << 31), (1 << 31) - 1)
    return st.integers(0, f.limit if f.limit is not None else (1 << _BITS[f.kind]) - 1)


@st.composite
def frames(draw: st.DrawFn, message: Message) -> Frame:
    """Legal frames of a message."""
    fields = {f.name: draw(values(f)) for f in message.fields if f.name != message.payload}
    payload = draw(st.binary(max_size=2000)) if message.payload else b""
    byte = st.integers(0, 255)
    return Frame(
        message.name,
        fields,
        payload,
        draw(byte),
        draw(byte),
        draw(byte),
        draw(st.integers(0, 0xFFFF)),
        draw(st.integers(0, 0xFFFFFFFF)),
        draw(st.binary(min_size=6, max_size=6)),
        draw(st.binary(min_size=6, max_size=6)),
        draw(st.integers(0, 0xFFFF)),
    )


@pytest.mark.parametrize("message", table.MESSAGES, ids=lambda m: m.stem)
@examples(30)
@given(data=st.data())
def test_round_trip(message: Message, data: st.DataObject) -> None:
    frame = data.draw(frames(message))
    encoded = codec.encode(frame)
    assert c_encode(frame, len(frame.payload)) == encoded
    decoded = codec.decode(encoded)
    assert c_decode(encoded) == decoded
    lengths = {message.payload: len(frame.payload)} if message.payload else {}
    assert decoded.fields == dict(frame.fields) | lengths
    assert (decoded.payload, decoded.flags, decoded.error, decoded.id) == (
        frame.payload,
        frame.flags,
        frame.error,
        frame.id,
    )
    assert codec.encode(decoded) == encoded


@pytest.mark.parametrize("message", table.MESSAGES, ids=lambda m: m.stem)
@examples(30)
@given(data=st.data())
def test_cut_and_scribbled_frames_get_the_same_verdict(message: Message, data: st.DataObject) -> None:
    encoded = bytearray(codec.encode(data.draw(frames(message))))
    for _ in range(data.draw(st.integers(0, 4))):
        encoded[data.draw(st.integers(14, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(encoded[: data.draw(st.integers(0, len(encoded)))]) + bytes(data.draw(st.sampled_from([0, 0, 1, 40])))
    assert c_decode(cut) == try_python(cut)


@given(st.binary(max_size=200))
def test_any_bytes_get_the_same_verdict(data: bytes) -> None:
    assert c_decode(data) == try_python(data)


def test_the_largest_frame() -> None:
    frame = Frame("XTS_CMD_SEND", payload=bytes(range(256)) * 240)
    cut = Frame("XTS_CMD_SEND", payload=frame.payload[: table.FRAME_BYTES_MAX - 32])
    assert len(codec.encode(cut)) == table.FRAME_BYTES_MAX
    assert c_decode(codec.encode(cut)) == codec.decode(codec.encode(cut))


def test_codec_refuses_what_the_message_lacks() -> None:
    with pytest.raises(ValueError, match="XTS_LINK_PING has no field epoch"):
        codec.encode(Frame("XTS_LINK_PING", {"epoch": 1}))
    with pytest.raises(ValueError, match="16 bytes, not 4"):
        codec.encode(Frame("XTS_CMD_BIND", {"local": Endpoint(4, 1, 0, b"\x7f\0\0\1")}))
