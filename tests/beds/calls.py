"""What scripts of socket calls are made with: see call_program.py."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from beds.libc_structs import PollFd
from beds.patience import SLOWER

DEADLINE_S = 10.0 * SLOWER
SIOCOUTQ = 0x5411
EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD = 1, 2, 3


def address(port: int, host: str = "127.0.0.1") -> bytes:
    """A struct sockaddr_in or sockaddr_in6."""
    if ":" in host:
        packed = socket.inet_pton(socket.AF_INET6, host)
        return struct.pack("=H", socket.AF_INET6) + struct.pack(">HI", port, 0) + packed + struct.pack("=I", 0)
    return struct.pack("=H", socket.AF_INET) + struct.pack(">H", port) + socket.inet_aton(host) + bytes(8)


class Calls:
    """The socket calls of one side, recording what they do."""

    here = there = "127.0.0.1"  # where this side is bound for peers, and where those are

    def __init__(self, library: str | None) -> None:
        self.is_kernel = library is None
        self.native = ctypes.CDLL(library, use_errno=True)
        self.prefix = "" if library is None else "xts_"
        self.trace: list[Any] = []
        self.opened: list[int] = []
        for name in ("send", "recv", "sendto", "sendmsg", "recvmsg", "recvfrom"):
            getattr(self.native, self.prefix + name).restype = ctypes.c_ssize_t

    def call(self, name: str, *arguments: Any) -> int:
        """Result, or minus errno; not recorded."""
        result = int(getattr(self.native, self.prefix + name)(*arguments))
        return result if result >= 0 else -ctypes.get_errno()

    def note(self, label: str, value: Any) -> None:
        self.trace.append([label, value])

    def do(self, name: str, *arguments: Any) -> int:
        """Calls and records."""
        return self.result(name, self.call(name, *arguments))

    def result(self, name: str, result: int) -> int:
        """Records what a call has returned."""
        self.note(name, errno.errorcode[-result] if result < 0 else result)
        return result

    # --- sockets -------------------------------------------------------------------------------------

    def create(self, family: int = socket.AF_INET, flags: int = 0) -> int:
        s = self.call("socket", family, socket.SOCK_STREAM | flags, 0)
        assert s >= 0, os.strerror(-s)
        self.opened.append(s)
        return s

    def close(self, s: int) -> None:
        if s in self.opened:
            self.opened.remove(s)
        self.do("close", s)

    def connect(self, s: int, port: int, host: str = "127.0.0.1") -> int:
        where = address(port, host)
        return self.do("connect", s, where, len(where))

    def bind(self, s: int, port: int, host: str = "127.0.0.1", length: int | None = None) -> int:
        where = address(port, host)
        return self.do("bind", s, where, len(where) if length is None else length)

    def send(self, s: int, data: bytes, flags: int = socket.MSG_NOSIGNAL) -> int:
        return self.do("send", s, data, len(data), flags)

    def recv(self, s: int, size: int, flags: int = 0) -> bytes:
        buffer = ctypes.create_string_buffer(max(size, 1))
        n = self.do("recv", s, buffer, size, flags)
        data = buffer.raw[: min(max(n, 0), size)] if not flags & socket.MSG_TRUNC else b""
        self.note("data", data.hex() if len(data) <= 64 else len(data))
        return data

    def connected(self, peer_options: Callable[[socket.socket], None] | None = None) -> tuple[int, socket.socket]:
        """A socket of this side and its kernel peer."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            if peer_options:
                peer_options(server)
            s = self.create()
            r = self.call("connect", s, address(server.getsockname()[1]), 16)
            assert r == 0, errno.errorcode[-r]
            peer, _ = server.accept()
        peer.settimeout(DEADLINE_S)
        return s, peer

    def udp_peer(self) -> socket.socket:
        """A datagram socket of the kernel's, bound at `there`."""
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.settimeout(DEADLINE_S)
        made.bind((self.there, 0))
        return made

    def tcp_client(self, port: int) -> socket.socket:
        """A connection of the kernel's to what listens at `here`."""
        return socket.create_connection((self.here, port), timeout=DEADLINE_S)

    def accept(self, s: int, flags: int = 0) -> int:
        r = self.call("accept4", s, None, None, flags)
        self.note("accept4", errno.errorcode[-r] if r < 0 else "socket")
        if r >= 0:
            self.opened.append(r)
        return r

    def name(self, call: str, s: int) -> tuple[str, int] | None:
        buffer, length = ctypes.create_string_buffer(28), ctypes.c_uint(28)
        r = self.call(call, s, buffer, ctypes.byref(length))
        if r < 0:
            self.note(call, errno.errorcode[-r])
            return None
        family, port = struct.unpack("=H", buffer.raw[:2])[0], struct.unpack(">H", buffer.raw[2:4])[0]
        raw = buffer.raw[4:8] if family == socket.AF_INET else buffer.raw[8:24]
        host = socket.inet_ntop(family, raw)
        self.note(call, [family, length.value, host, port != 0])
        return host, port

    def get(self, s: int, level: int, option: int, size: int = 4, record: bool = True) -> int:
        buffer, length = ctypes.create_string_buffer(max(size, 1)), ctypes.c_uint(size)
        r = self.call("getsockopt", s, level, option, buffer, ctypes.byref(length))
        if r < 0:
            self.note("getsockopt", [option, errno.errorcode[-r]])
            return r
        value = int.from_bytes(buffer.raw[: length.value], "little")
        self.note("getsockopt", [option, length.value, value if record else "any"])
        return value

    def set(self, s: int, level: int, option: int, value: int | bytes | None, length: int | None = None) -> int:
        raw = struct.pack("=i", value) if isinstance(value, int) else value
        size = len(raw or b"") if length is None else length
        r = self.call("setsockopt", s, level, option, raw, size)
        self.note("setsockopt", [option, errno.errorcode[-r] if r < 0 else r])
        return r

    def events(self, s: int, wanted: int = 0x2047, timeout_ms: int = 0) -> int:
        """poll(2); records the events."""
        fds = (PollFd * 1)(PollFd(s, wanted, 0))
        r = self.call("poll", fds, ctypes.c_ulong(1), timeout_ms)
        self.note("poll", [r, fds[0].revents])
        return int(fds[0].revents)

    def wait(self, s: int, wanted: int) -> None:
        """Until one of the events is there, with a deadline; records nothing."""
        fds = (PollFd * 1)(PollFd(s, wanted, 0))
        assert self.call("poll", fds, ctypes.c_ulong(1), int(DEADLINE_S * 1000)) == 1, "nothing came"

    def wait_error(self, s: int) -> None:
        self.wait(s, 0)

    def finish(self) -> list[Any]:
        while self.opened:
            self.call("close", self.opened.pop())
        trace, self.trace = self.trace, []
        return trace


def reset(peer: socket.socket) -> None:
    """Closes the peer with RST."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.001)


def fill(c: Calls, s: int) -> int:
    """Sends on a nonblocking socket until nothing more is taken; how many bytes were. There may be room again at once:
    what has been accepted moves on to the peer."""
    chunk, sent = os.urandom(50_000), 0
    for data in (chunk, b"x"):
        while (n := c.call("send", s, data, len(data), 0)) >= 0:
            sent += n
        assert n == -errno.EAGAIN, errno.errorcode[-n]
    return sent


def print_traces(scripts: Mapping[str, Callable[[Calls], None]], side: str, wanted: Iterable[str]) -> None:
    """A JSON object, script name -> trace: what each call returned and its errno, and how the script failed, if it did.
    `side`: "kernel", or the path of libxts."""
    calls = Calls(None if side == "kernel" else side)
    traces: dict[str, Any] = {}
    for name in wanted:
        failure = None
        try:
            scripts[name](calls)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        traces[name] = calls.finish() + ([["failed", failure]] if failure else [])
    json.dump(traces, sys.stdout)
