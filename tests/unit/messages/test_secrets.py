"""What nobody else may see of a message is overwritten in captures: declared fields, and keys that are pushed."""

from __future__ import annotations

import random
import struct
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from beds.native_core import NATIVE, compiler
from cffi import FFI
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Frame
from xts_messages.wire.ulps import BY_NAME
from xts_messages.wire.wire_table import Kind

WITHIN = 2048
WITH_SECRETS = [m for m in table.MESSAGES if any(field.secret for field in m.fields)]
KEY = bytes(range(1, 33))
SIOC_PUSH_ULP_TX = 0x89E9


@cache
def library() -> Any:
    ffi = FFI()
    ffi.cdef("bool xts_has_secrets(uint8_t type); void xts_blank_secrets(uint8_t *frame, size_t bytes);")
    with TemporaryDirectory() as place:
        made = Path(place) / "secrets.so"
        source = [f"-I{NATIVE}", "-D_GNU_SOURCE", "-shared", "-fPIC", str(NATIVE / "wire/secrets.c")]
        subprocess.run([compiler(), *source, "-o", str(made)], check=True)
        return ffi, ffi.dlopen(str(made))


def blanked(frame: bytes) -> bytes:
    ffi, lib = library()
    length = min(len(frame), WITHIN)
    memory = ffi.new("uint8_t[]", frame[:length])
    lib.xts_blank_secrets(memory, length)
    return bytes(ffi.buffer(memory, length))


def values_of(message: table.Message) -> dict[str, Any]:
    drawn = random.Random(message.code)
    found: dict[str, Any] = {}
    for field in message.fields:
        if field.kind is Kind.ENDPOINT:
            found[field.name] = codec.Endpoint(4, 80, 0, bytes(16))
        elif field.name == message.payload:
            found[field.name] = 0
        elif field.values:
            found[field.name] = field.values[-1]
        else:
            most = min((1 << 8 * field.kind.bytes) - 1, field.limit or 1 << 31)
            found[field.name] = drawn.randrange(most + 1)
        if field.secret:
            found[field.name] = 0x1122334455667788
    return found


def test_which_messages_have_secrets() -> None:
    names = {message.stem for message in WITH_SECRETS}
    assert {"token", "share", "park", "claim", "take", "resume", "replaced"} <= names
    _ffi, lib = library()
    assert all(lib.xts_has_secrets(message.code) for message in WITH_SECRETS)
    assert not lib.xts_has_secrets(next(m.code for m in table.MESSAGES if m.stem == "send"))


@pytest.mark.parametrize("message", WITH_SECRETS, ids=lambda m: m.stem)
def test_secret_fields_go_and_all_others_stay(message: table.Message) -> None:
    values = values_of(message)
    frame = codec.encode(Frame(message.name, fields=values))
    left = codec.decode(blanked(frame)).fields
    for field in message.fields:
        assert left[field.name] == (0 if field.secret else values[field.name]), field.name


def pushed(ulp: str, parameters: bytes) -> bytes:
    return struct.pack(">IHH", 0, 0, BY_NAME[ulp].number) + parameters


def ioctl(request: int, payload: bytes) -> bytes:
    message = next(m for m in table.MESSAGES if m.name == "XTS_CMD_IOCTL")
    values = values_of(message) | {"request": request, "length": len(payload)}
    return codec.encode(Frame(message.name, fields=values, payload=payload))


def connect(*pushes: bytes) -> bytes:
    message = next(m for m in table.MESSAGES if m.name == "XTS_CMD_CONNECT")
    payload = b"".join(struct.pack(">II", SIOC_PUSH_ULP_TX, len(one)) + one for one in pushes)
    return codec.encode(Frame(message.name, fields=values_of(message) | {"length": len(payload)}, payload=payload))


def test_keys_in_an_ioctl() -> None:
    frame = ioctl(SIOC_PUSH_ULP_TX, pushed("TLS_KEYS", KEY))
    assert KEY in frame
    left = blanked(frame)
    assert KEY[:4] not in left and left[: -len(KEY)] == frame[: -len(KEY)]
    other = ioctl(SIOC_PUSH_ULP_TX, pushed("TLS", KEY))
    assert blanked(other) == other
    assert blanked(ioctl(0x8911, KEY)) == ioctl(0x8911, KEY)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_keys_in_a_connect(place: int) -> None:
    pushes = [pushed("LENGTH_PREFIXED", b"width"), pushed("TLS", b"name of it")]
    pushes.insert(place, pushed("TLS_KEYS", KEY))
    frame = connect(*pushes)
    assert KEY in frame
    left = blanked(frame)
    assert KEY[:4] not in left and b"width" in left and b"name of it" in left and len(left) == len(frame)


def test_keys_that_nobody_has() -> None:
    frame = codec.encode(Frame("XTS_LINK_OVER", {"epoch": 7}, struct.pack(">2Q", 0x1122334455667788, 0x99AABBCC)))
    _ffi, lib = library()
    assert lib.xts_has_secrets(frame[table.ETH_BYTES])
    left = blanked(frame)
    assert left == frame[:-16] + bytes(16)
    assert blanked(frame[:-9]) == left[:-9]


@given(st.binary(max_size=3000))
def test_whatever_a_frame_has(data: bytes) -> None:
    """No length in it leads out of it."""
    for code in (message.code for message in (*WITH_SECRETS, *table.MESSAGES[:1])):
        frame = bytearray(data)
        if len(frame) > table.HEAD_BYTES:
            frame[table.ETH_BYTES] = code
        blanked(bytes(frame))


def test_a_push_that_is_cut_is_overwritten() -> None:
    frame = connect(pushed("TLS_KEYS", KEY))
    for length in range(len(frame) - len(KEY), len(frame)):
        assert KEY[:4] not in blanked(frame[:length])
