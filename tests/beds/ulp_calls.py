"""Calls about pushed protocols, as caller.py makes them: each takes JSON values and returns one, or minus an errno."""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import socket
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from xts_messages.wire.ulps import REQUESTS

from beds.calls import Calls, address
from beds.libc_structs import Header, PollFd, Vector

#: One cmsg: level, type, data in hex.
Control = Sequence[Any]


def sequenced(c: Calls) -> int:
    return c.call("socket", socket.AF_INET, socket.SOCK_SEQPACKET, 0)


def kind(c: Calls, s: int) -> int:
    value, length = ctypes.c_int(), ctypes.c_uint(4)
    r = c.call("getsockopt", s, socket.SOL_SOCKET, socket.SO_TYPE, ctypes.byref(value), ctypes.byref(length))
    return r or value.value


def push(c: Calls, s: int, request: str, ulp_id: int, attributes: Sequence[Sequence[Any]] = ()) -> int:
    """`attributes`: number and value, an integer of a given width in bytes or hex."""
    info = _info(c, ulp_id, attributes)
    return info if isinstance(info, int) else c.call("ioctl", s, ctypes.c_ulong(REQUESTS[request][0]), info)


def _info(c: Calls, ulp_id: int, attributes: Sequence[Sequence[Any]]) -> ctypes.Array[ctypes.c_char] | int:
    """A struct ulp_info, or minus errno."""
    info = ctypes.create_string_buffer(struct.pack("=HH", ulp_id, 0), 512)
    for number, value, *width in attributes:
        data = value.to_bytes(width[0], "little", signed=value < 0) if width else bytes.fromhex(value)
        r = c.call("ulp_put", info, ctypes.c_size_t(512), number, data, ctypes.c_size_t(len(data)), len(width))
        if r:
            return r
    return info


def ulp_connect(c: Calls, s: int, pushes: Sequence[Sequence[Any]], port: int = 80) -> int:
    """`pushes`: request, protocol and, if there are any, attributes of each, as in push()."""
    infos = [_info(c, ulp_id, *attributes or [()]) for _, ulp_id, *attributes in pushes]
    pairs = (ctypes.c_void_p * (2 * len(infos) or 1))()
    for i, ((request, *_), info) in enumerate(zip(pushes, infos, strict=True)):
        if isinstance(info, int):
            return info
        pairs[2 * i], pairs[2 * i + 1] = REQUESTS[request][0], ctypes.addressof(info)
    return c.call("ulp_connect", s, address(port), 16, pairs, len(infos))


def end_peek(c: Calls, s: int, drop: int) -> int:
    return c.call("ioctl", s, ctypes.c_ulong(REQUESTS["END_PEEK_MODE"][0]), ctypes.byref(ctypes.c_uint32(drop)))


def peek(c: Calls, s: int) -> int:
    return c.call("ioctl", s, ctypes.c_ulong(REQUESTS["PEEK_MODE"][0]), ctypes.byref(ctypes.c_int(1)))


def unread(c: Calls, s: int) -> int:
    value = ctypes.c_int()
    r = c.call("ioctl", s, ctypes.c_ulong(0x541B), ctypes.byref(value))
    return r or value.value


def nonblocking(c: Calls, s: int, on: bool = True) -> int:
    return c.call("fcntl", s, fcntl.F_SETFL, os.O_NONBLOCK if on else 0)


def poll(c: Calls, s: int, events: int, timeout_ms: int) -> int:
    entry = PollFd(s, events, 0)
    r = c.call("poll", ctypes.byref(entry), ctypes.c_ulong(1), timeout_ms)
    return r if r < 0 else entry.revents


def _receive(c: Calls, s: int, size: int, flags: int, room: int) -> tuple[int, bytes, int, list[Control]]:
    data, control = ctypes.create_string_buffer(max(size, 1)), ctypes.create_string_buffer(max(room, 1))
    iov = Vector(ctypes.cast(data, ctypes.c_void_p), size)
    message = Header(None, 0, ctypes.pointer(iov), 1, ctypes.cast(control, ctypes.c_void_p) if room else None, room, 0)
    n = c.call("recvmsg", s, ctypes.byref(message), flags)
    found: list[Control] = []
    at = 0
    while n >= 0 and message.control_bytes - at >= 16:
        length, level, number = struct.unpack_from("=QII", control.raw, at)
        found.append((level, number, control.raw[at + 16 : at + length].hex()))
        at += (length + 7) // 8 * 8
    return n, data.raw[: max(min(n, size), 0)], int(message.flags), found


def recvmsg(c: Calls, s: int, size: int, flags: int = 0, room: int = 0) -> Any:
    """[result, data in hex, msg_flags, control messages], or minus errno."""
    n, data, got, control = _receive(c, s, size, flags, room)
    return n if n < 0 else [n, data.hex(), got, control]


def sendmsg(c: Calls, s: int, size: int, flags: int = 0, control: Control | None = None) -> int:
    """Sends bytes that `body()` gives."""
    data, room = ctypes.create_string_buffer(body(size), max(size, 1)), 0
    ancillary = None
    if control:
        level, number, value = control
        raw = bytes.fromhex(value)
        packed = struct.pack("=QII", 16 + len(raw), level, number) + raw.ljust((len(raw) + 7) // 8 * 8, b"\0")
        ancillary, room = ctypes.create_string_buffer(packed, len(packed)), len(packed)
    iov = Vector(ctypes.cast(data, ctypes.c_void_p), size)
    message = Header(
        None, 0, ctypes.pointer(iov), 1, ctypes.cast(ancillary, ctypes.c_void_p) if ancillary else None, room, 0
    )
    return c.call("sendmsg", s, ctypes.byref(message), flags | socket.MSG_NOSIGNAL)


def body(size: int, seed: int = 0) -> bytes:
    """Data that differs from place to place, and by seed."""
    block = bytes((i * 7 + seed * 13) % 251 for i in range(min(size, 251 * 16)))
    return (block * (size // len(block) + 1))[:size] if size else b""


def drain(c: Calls, s: int, sizes: Sequence[int], flags: int = 0) -> Any:
    """Receives PDUs until the end, into buffers of these sizes in turn; length, checksum, number of pieces of each."""
    pdus, data, pieces = [], b"", 0
    for size in itertools.cycle(sizes):
        n, part, got, _ = _receive(c, s, size, flags, 0)
        if n < 0:
            return n
        data += part
        pieces += 1
        if got & socket.MSG_EOR:
            pdus.append([len(data), zlib.crc32(data), pieces])
            data, pieces = b"", 0
        elif n == 0 and not got & socket.MSG_TRUNC:
            return pdus
    return None


def pour(c: Calls, s: int, sizes: Sequence[int], blocking: bool = True) -> Any:
    """Sends a PDU of each size (contents by its place), one call each, or as many as a non-blocking socket needs."""
    calls = 0
    nonblocking(c, s, not blocking)
    for place, size in enumerate(sizes):
        data = body(size, place)
        while True:
            n = c.call("send", s, data, ctypes.c_size_t(len(data)), socket.MSG_NOSIGNAL)
            calls += 1
            if n == -11 and not blocking:
                poll(c, s, 4, 10_000)
                continue
            if n < 0:
                return n
            data = data[n:]
            if not data:
                break
    return calls


def error(c: Calls, s: int) -> Any:
    """[errno, fault, text], or minus errno."""
    fault, text = ctypes.c_uint(), ctypes.create_string_buffer(300)
    r = c.call("ulp_error", s, ctypes.byref(fault), text, ctypes.c_size_t(300))
    return r if r < 0 else [r, fault.value, text.value.decode()]


def tell(c: Calls, s: int, send: int, *where: int) -> Any:
    """[length, what was written in hex], or minus errno. `where`: layer, item, room."""
    layer, item, size = where
    out = ctypes.create_string_buffer(max(size, 1))
    c.native.xts_ulp_tell.restype = ctypes.c_ssize_t
    r = c.call("ulp_tell", s, send, layer, item, out, ctypes.c_size_t(size))
    return r if r < 0 else [r, out.raw[: min(r, size)].hex()]


def ulps(c: Calls) -> Any:
    """What is offered: id, version, receive, send."""
    out = ctypes.create_string_buffer(6 * 32)
    r = c.call("ulps", out, 32)
    return r if r < 0 else [list(struct.unpack_from("=HHBB", out.raw, 6 * i)) for i in range(min(r, 32))]


def handshake(c: Calls, s: int) -> int:
    return c.call("ulp_handshake", s)


CALLS = (
    sequenced,
    kind,
    push,
    ulp_connect,
    end_peek,
    peek,
    unread,
    nonblocking,
    poll,
    recvmsg,
    sendmsg,
    drain,
    pour,
    error,
    tell,
    ulps,
)
ULP_CALLS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (*CALLS, handshake)}
