"""What scripts of calls on datagram sockets are made with, where control data comes or goes: sendmsg(2), recvmsg(2)."""

from __future__ import annotations

import ctypes
import struct

from beds.calls import Calls
from beds.libc_structs import Header, Vector

ROOM = 512
Item = tuple[int, int, bytes]


def recvmsg(c: Calls, s: int, size: int, flags: int = 0) -> tuple[int, bytes, Header, list[Item]]:
    """Result, data, header and control data; not recorded."""
    data, control, where = (ctypes.create_string_buffer(n) for n in (max(size, 1), ROOM, 28))
    vector = Vector(ctypes.addressof(data), size)
    header = Header(
        ctypes.addressof(where), 28, ctypes.pointer(vector), 1, ctypes.addressof(control), ROOM, 0
    )  # fmt: skip
    n = c.call("recvmsg", s, ctypes.byref(header), flags)
    at, items = 0, []
    while n >= 0 and at + 16 <= header.control_bytes:
        length, level, kind = struct.unpack_from("=Qii", control, at)
        items.append((level, kind, control.raw[at + 16 : at + length]))
        at += length + -length % 8
    return n, data.raw[: min(max(n, 0), size)], header, items


def controls(c: Calls, s: int) -> list[Item]:
    """The control data alone, which is not recorded."""
    n, _, _, items = recvmsg(c, s, 100)
    assert n >= 0
    return items


def message(c: Calls, s: int, size: int, flags: int = 0) -> None:
    """Records data, flags, control data."""
    n, data, header, items = recvmsg(c, s, size, flags)
    c.result("recvmsg", n)
    c.note("message", [data.hex(), header.name_bytes, header.flags])
    c.note("control", sorted([level, kind, value.hex()] for level, kind, value in items))


def control(*items: Item) -> bytes:
    """Of sendmsg(2)."""
    out = b""
    for level, kind, value in items:
        out += struct.pack("=Qii", 16 + len(value), level, kind) + value + bytes(-len(value) % 8)
    return out


def sendmsg(c: Calls, s: int, data: bytes, where: bytes, items: bytes) -> int:
    text, name = ctypes.create_string_buffer(data, max(len(data), 1)), ctypes.create_string_buffer(where, len(where))
    extra = ctypes.create_string_buffer(items, max(len(items), 1))
    vector = Vector(ctypes.addressof(text), len(data))
    header = Header(
        ctypes.addressof(name), len(where), ctypes.pointer(vector), 1, ctypes.addressof(extra), len(items), 0
    )  # fmt: skip
    return c.do("sendmsg", s, ctypes.byref(header), 0)
