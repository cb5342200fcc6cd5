"""Makes the calls that its standard input asks for, one JSON line each, and prints what they came to."""

from __future__ import annotations

import ctypes
import errno
import json
import select
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beds.calls import Calls, address
from beds.libc_structs import Header, Message, PollFd, Vector
from beds.ulp_calls import ULP_CALLS
from system.sockets.programs.library_scripts import Info, last_error


def malformed(c: Calls) -> int:
    info = Info(ctypes.sizeof(Info))
    c.call("get_info", ctypes.byref(info))
    return int(info.malformed)


def recv(c: Calls, s: int, size: int) -> int | str:
    """Data in hex, or minus errno."""
    buffer = ctypes.create_string_buffer(size)
    r = c.call("recv", s, buffer, size, 0)
    return r if r < 0 else buffer.raw[:r].hex()


def recvfrom(c: Calls, s: int, size: int = 70_000) -> list[Any] | int:
    """Data in hex and the port it is from, without waiting; or minus errno."""
    buffer, where, length = ctypes.create_string_buffer(size), ctypes.create_string_buffer(28), ctypes.c_uint(28)
    r = c.call("recvfrom", s, buffer, size, socket.MSG_DONTWAIT, where, ctypes.byref(length))
    return r if r < 0 else [buffer.raw[:r].hex(), int.from_bytes(where.raw[2:4], "big")]


def messages_of(sizes: list[int], port: int) -> tuple[Any, list[Any]]:
    """struct mmsghdr for datagrams of these sizes, and what they point to."""
    kept: list[Any] = []
    made = (Message * max(len(sizes), 1))()
    for one, size in zip(made, sizes, strict=False):
        data = ctypes.create_string_buffer(bytes(i % 251 for i in range(size)), max(size, 1))
        name = ctypes.create_string_buffer(address(port), 28)
        vector = Vector(ctypes.addressof(data), size)
        kept += [data, name, vector]
        one.header = Header(ctypes.addressof(name), 16, ctypes.pointer(vector), 1, None, 0, 0)
    return made, kept


def sendmmsg(c: Calls, s: int, sizes: list[int], port: int = 80) -> int:
    made, _kept = messages_of(sizes, port)
    return c.call("sendmmsg", s, made, len(sizes), socket.MSG_DONTWAIT)


def recvmmsg(c: Calls, s: int, count: int) -> list[int] | int:
    """The lengths, without waiting; or minus errno."""
    made, _kept = messages_of([2000] * count, 0)
    r = c.call("recvmmsg", s, made, count, socket.MSG_DONTWAIT, None)
    return r if r < 0 else [made[i].bytes for i in range(r)]


def hold(c: Calls, s: int) -> int:
    """Decides, as a callback in Python does, that the program holds the first in the queue. 1: there was one."""
    packet = ctypes.c_void_p()
    r = c.call("packet_asks", s, ctypes.byref(packet))
    if r == 1:
        c.native.xts_packet_decided(packet, 2)
    return r


CALLS: dict[str, Callable[..., Any]] = {
    "socket": lambda c: c.call("socket", socket.AF_INET, socket.SOCK_STREAM, 0),
    "socket_nonblocking": lambda c: c.call("socket", socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, 0),
    "datagram": lambda c: c.call("socket", socket.AF_INET, socket.SOCK_DGRAM, 0),
    "sendto": lambda c, s, size, port=80: c.call(
        "sendto", s, bytes(i % 251 for i in range(size)), size, socket.MSG_DONTWAIT, address(port), 16
    ),
    "recvfrom": recvfrom,
    "sendmmsg": sendmmsg,
    "recvmmsg": recvmmsg,
    "receive_buffer": lambda c, s, size: c.call(
        "setsockopt", s, socket.SOL_SOCKET, socket.SO_RCVBUF, struct.pack("=i", size), 4
    ),
    "readable": lambda c, s: c.call("poll", (PollFd * 1)(PollFd(s, select.POLLIN, 0)), ctypes.c_ulong(1), 0),
    "writable": lambda c, s: c.call("poll", (PollFd * 1)(PollFd(s, select.POLLOUT, 0)), ctypes.c_ulong(1), 0),
    "connect": lambda c, s: c.call("connect", s, address(80), 16),
    "bind": lambda c, s: c.call("bind", s, address(0), 16),
    "accept": lambda c, s: c.call("accept", s, None, None),
    "send": lambda c, s, size: c.call("send", s, bytes(size), size, socket.MSG_NOSIGNAL),
    "send_at_once": lambda c, s, size: c.call("send", s, bytes(size), size, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT),
    "resets": lambda c, s: c.call("setsockopt", s, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0), 8),
    "nodelay": lambda c, s: c.call("setsockopt", s, socket.IPPROTO_TCP, socket.TCP_NODELAY, b"\1\0\0\0", 4),
    "outq": lambda c, s: c.call("ioctl", s, 0x5411, ctypes.create_string_buffer(4)),
    "malformed": malformed,
    "last_error": last_error,
    "recv": recv,
    "hold": hold,
    "descriptors": lambda _: len(list(Path("/proc/self/fd").iterdir())),
    **ULP_CALLS,
}


def main() -> None:
    c = Calls(sys.argv[1])
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        r = CALLS[name](c, *arguments) if name in CALLS else c.call(name, *arguments)
        print(json.dumps(errno.errorcode[-r] if isinstance(r, int) and r < 0 else r), flush=True)


if __name__ == "__main__":
    main()
