"""What scripts of calls on datagram sockets are made with."""

from __future__ import annotations

import ctypes
import os
import socket
import struct

from beds.calls import DEADLINE_S, Calls, address

FIONREAD = 0x541B


def datagram(c: Calls, family: int = socket.AF_INET, flags: int = 0) -> int:
    s = c.call("socket", family, socket.SOCK_DGRAM | flags, 0)
    assert s >= 0, os.strerror(-s)
    c.opened.append(s)
    return s


def udp_peer(host: str = "127.0.0.1") -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(DEADLINE_S)
    made.bind((host, 0))
    return made


def port_of(c: Calls, s: int) -> int:
    """Of a socket that is bound; not recorded."""
    buffer, length = ctypes.create_string_buffer(28), ctypes.c_uint(28)
    assert c.call("getsockname", s, buffer, ctypes.byref(length)) == 0
    return int(struct.unpack(">H", buffer.raw[2:4])[0])


def bound(c: Calls, host: str = "127.0.0.1") -> tuple[int, int]:
    """A bound socket of this side, and its port."""
    s = datagram(c, socket.AF_INET6 if ":" in host else socket.AF_INET)
    where = address(0, host)
    assert c.call("bind", s, where, len(where)) == 0
    return s, port_of(c, s)


def sendto(c: Calls, s: int, data: bytes, port: int, host: str = "127.0.0.1") -> int:
    where = address(port, host)
    return c.do("sendto", s, data, len(data), 0, where, len(where))


def recvfrom(c: Calls, s: int, size: int, flags: int = 0) -> bytes:
    data, where, length = ctypes.create_string_buffer(max(size, 1)), ctypes.create_string_buffer(28), ctypes.c_uint(28)
    n = c.do("recvfrom", s, data, size, flags, where, ctypes.byref(length))
    family = struct.unpack("=H", where.raw[:2])[0]
    c.note("from", [length.value, family, where.raw[4:8].hex() if family == socket.AF_INET else where.raw[8:24].hex()])
    got = data.raw[: min(max(n, 0), size)]
    c.note("data", got.hex() if len(got) <= 64 else len(got))
    return got


def pending(c: Calls, s: int) -> int:
    number = ctypes.c_int(-1)
    c.do("ioctl", s, ctypes.c_ulong(FIONREAD), ctypes.byref(number))
    c.note("FIONREAD", number.value)
    return number.value
