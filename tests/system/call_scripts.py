"""Scripts of socket calls that are run twice, on the kernel's sockets and on XTS sockets, and must go the same way.

Run as a program: `python call_scripts.py kernel|LIBRARY` prints a JSON object, script name -> trace; a trace is what
each call returned and its errno. TCP peers are the kernel's own in both runs. Both sides are called through their C
interface, so Python's socket module smooths nothing over.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable
from typing import Any

from libc_structs import EpollEvent, Header, PollFd, Vector

DEADLINE_S = 10.0
SIOCOUTQ = 0x5411
EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD = 1, 2, 3
Script = Callable[["Calls"], None]
SCRIPTS: dict[str, Script] = {}


def script(function: Script) -> Script:
    SCRIPTS[function.__name__] = function
    return function


def address(port: int, host: str = "127.0.0.1") -> bytes:
    """A struct sockaddr_in or sockaddr_in6."""
    if ":" in host:
        packed = socket.inet_pton(socket.AF_INET6, host)
        return struct.pack("=H", socket.AF_INET6) + struct.pack(">HI", port, 0) + packed + struct.pack("=I", 0)
    return struct.pack("=H", socket.AF_INET) + struct.pack(">H", port) + socket.inet_aton(host) + bytes(8)


class Calls:
    """The socket calls of one side, recording what they do."""

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
        result = self.call(name, *arguments)
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

    def set(self, s: int, level: int, option: int, value: int | bytes, length: int | None = None) -> int:
        raw = struct.pack("=i", value) if isinstance(value, int) else value
        r = self.call("setsockopt", s, level, option, raw, len(raw) if length is None else length)
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


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


# --- creating, connecting ----------------------------------------------------------------------------


@script
def socket_arguments(c: Calls) -> None:
    for family, kind, protocol in ((77, 1, 0), (2, 99, 0), (2, 1, 77), (10, 1, 6), (2, 1, 6)):
        r = c.call("socket", family, kind, protocol)
        c.note("socket", errno.errorcode[-r] if r < 0 else "socket")
        if r >= 0:
            c.opened.append(r)


@script
def connect_and_names(c: Calls) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        s = c.create()
        c.name("getsockname", s)
        c.name("getpeername", s)
        c.connect(s, server.getsockname()[1])
        peer, where = server.accept()
        mine = c.name("getsockname", s)
        theirs = c.name("getpeername", s)
        c.note("addresses agree", mine == where and theirs == server.getsockname())
        c.connect(s, server.getsockname()[1])
        c.events(s)
        c.send(s, b"hello")
        c.note("peer", peer.recv(100).hex())
        peer.sendall(b"world")
        c.recv(s, 100)
        c.close(s)
        c.note("peer", peer.recv(100).hex())
        c.do("send", s, b"x", 1, 0)
        c.do("close", s)
        peer.close()


@script
def connect_v6(c: Calls) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        s = c.create(socket.AF_INET6)
        c.connect(s, server.getsockname()[1], "::1")
        peer, _ = server.accept()
        c.name("getsockname", s)
        c.name("getpeername", s)
        c.connect(s, server.getsockname()[1], "127.0.0.1")
        peer.close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        s = c.create(socket.AF_INET6)
        c.connect(s, server.getsockname()[1], "::ffff:127.0.0.1")
        c.name("getpeername", s)


@script
def connect_refused(c: Calls) -> None:
    port = unused_port()
    s = c.create()
    c.connect(s, port)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.events(s)
    c.recv(s, 10)
    c.send(s, b"x")
    c.connect(s, port)
    with socket.create_server(("127.0.0.1", port)):
        c.connect(s, port)


@script
def connect_bad_address(c: Calls) -> None:
    s = c.create()
    where = address(1)
    c.do("connect", s, where, 1)
    c.do("connect", s, where, 8)
    c.do("connect", s, struct.pack("=H", 77) + bytes(14), 16)
    c.do("connect", s, address(1, "::1"), 28)
    v6 = c.create(socket.AF_INET6)
    c.do("connect", v6, where, 16)
    c.do("connect", v6, where + bytes(12), 28)
    c.do("connect", -1, where, 16)
    c.do("connect", 0x3FFFFFFF, where, 16)


@script
def connect_nonblocking(c: Calls) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        s = c.create(flags=socket.SOCK_NONBLOCK)
        c.connect(s, server.getsockname()[1])
        c.wait(s, select.POLLOUT)
        c.events(s)
        c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
        c.connect(s, server.getsockname()[1])
        c.connect(s, server.getsockname()[1])
        c.recv(s, 10)
        c.send(s, b"x")


@script
def connect_nonblocking_refused(c: Calls) -> None:
    port = unused_port()
    s = c.create(flags=socket.SOCK_NONBLOCK)
    c.connect(s, port)
    c.wait_error(s)
    c.events(s)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.events(s)
    c.recv(s, 10)
    c.send(s, b"x")
    c.connect(s, port)


@script
def connect_nonblocking_refused_told_by_connect(c: Calls) -> None:
    port = unused_port()
    s = c.create(flags=socket.SOCK_NONBLOCK)
    c.connect(s, port)
    c.wait_error(s)
    c.connect(s, port)
    with socket.create_server(("127.0.0.1", port)):
        c.connect(s, port)
        c.wait(s, select.POLLOUT)
        c.connect(s, port)


@script
def connect_nonblocking_refused_told_by_recv_or_send(c: Calls) -> None:
    for call in ("recv", "send"):
        s = c.create(flags=socket.SOCK_NONBLOCK)
        c.connect(s, unused_port())
        c.wait_error(s)
        if call == "recv":
            c.recv(s, 10)
            c.recv(s, 10)
        else:
            c.send(s, b"x")
            c.send(s, b"x")


@script
def connect_timeout(c: Calls) -> None:
    """Two connections fill a backlog of one; the next attempt gets no answer."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            s = c.create()
            c.set(s, socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 100_000))
            c.connect(s, port)
            c.connect(s, port)
            c.events(s)
            c.name("getpeername", s)
            c.do("fcntl", s, fcntl.F_SETFL, os.O_NONBLOCK)
            c.connect(s, port)
            c.recv(s, 10)
            c.send(s, b"x")
            c.close(s)


@script
def connect_unspec(c: Calls) -> None:
    s, peer = c.connected()
    c.do("connect", s, bytes(16), 16)
    c.name("getpeername", s)
    c.events(s)
    try:
        c.note("peer", peer.recv(10).hex())
    except OSError as error:
        c.note("peer", errno.errorcode[error.errno or 0])
    with socket.create_server(("127.0.0.1", 0)) as server:
        c.connect(s, server.getsockname()[1])
        c.name("getpeername", s)
    fresh = c.create()
    c.do("connect", fresh, bytes(16), 16)


@script
def unconnected(c: Calls) -> None:
    s = c.create()
    c.send(s, b"x")
    c.send(s, b"")
    c.recv(s, 10)
    c.recv(s, 0)
    c.name("getpeername", s)
    for how in (0, 1, 2, 3, -1):
        c.do("shutdown", s, how)
    c.accept(s)
    c.events(s)
    c.do("ioctl", s, termios.FIONREAD, ctypes.byref(number := ctypes.c_int(7)))
    c.note("number", number.value)
    for option in (socket.SO_ERROR, socket.SO_TYPE, socket.SO_ACCEPTCONN):
        c.get(s, socket.SOL_SOCKET, option)


# --- listening ---------------------------------------------------------------------------------------


@script
def bind_errors(c: Calls) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        s = c.create()
        c.bind(s, server.getsockname()[1])
        c.bind(s, 0, length=15)
        c.bind(s, 0, length=2)
        c.do("bind", s, struct.pack("=H", 77) + bytes(14), 16)
        c.bind(s, 0, "::1")
        c.bind(s, 0, "203.0.113.7")
        c.bind(s, 0)
        c.name("getsockname", s)
        c.bind(s, 0)
        unspecified = c.create()
        c.do("bind", unspecified, bytes(16), 16)
        v6 = c.create(socket.AF_INET6)
        c.bind(v6, 0, "127.0.0.1")
        c.bind(v6, 0, "::1")
        c.name("getsockname", v6)


@script
def bound_connect(c: Calls) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        s = c.create()
        c.set(s, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        c.bind(s, 0, "127.0.0.2")
        bound = c.name("getsockname", s)
        c.connect(s, server.getsockname()[1])
        peer, where = server.accept()
        c.note("from there", where == bound)
        c.bind(s, 0)
        c.do("listen", s, 1)
        peer.close()


@script
def listener(c: Calls) -> None:
    s = c.create()
    c.bind(s, 0)
    c.events(s)
    c.do("listen", s, 5)
    c.events(s)
    c.get(s, socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    found = c.name("getsockname", s)
    assert found
    c.do("fcntl", s, fcntl.F_SETFL, os.O_NONBLOCK)
    c.accept(s)
    c.accept(s, 1)
    c.recv(s, 1)
    c.send(s, b"x")
    c.do("ioctl", s, termios.FIONREAD, ctypes.byref(ctypes.c_int()))
    c.do("ioctl", s, SIOCOUTQ, ctypes.byref(ctypes.c_int()))
    c.connect(s, 1)
    c.name("getpeername", s)
    c.do("listen", s, 10)
    with socket.create_connection(found) as peer:
        c.wait(s, select.POLLIN)
        c.events(s)
        peer.sendall(b"early")
        a = c.accept(s, socket.SOCK_NONBLOCK)
        c.do("fcntl", a, fcntl.F_GETFL)
        c.note("peer address", c.name("getpeername", a) == peer.getsockname())
        c.note("same address", c.name("getsockname", a) == found)
        c.wait(a, select.POLLIN)
        c.recv(a, 10)
        c.recv(a, 10)
        c.send(a, b"answer")
        c.note("peer", peer.recv(10).hex())
        c.accept(s)
        c.close(a)
        c.note("peer", peer.recv(10).hex())


@script
def listen_unbound(c: Calls) -> None:
    s = c.create()
    c.do("listen", s, -1)
    c.name("getsockname", s)
    c.do("listen", -1, 1)


@script
def accept_waits(c: Calls) -> None:
    s = c.create()
    c.bind(s, 0)
    c.do("listen", s, 1)
    found = c.name("getsockname", s)
    assert found
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
    c.accept(s)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, bytes(16))
    thread = threading.Timer(0.05, lambda: socket.create_connection(found).close())
    thread.start()
    c.accept(s)
    thread.join()


@script
def listener_shut_down(c: Calls) -> None:
    s = c.create()
    c.bind(s, 0)
    c.do("listen", s, 1)
    found = c.name("getsockname", s)
    assert found
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(c.call("accept4", s, None, None, 0)))
    thread.start()
    time.sleep(0.05)  # the thread waits in accept, or is about to: either way the call must end
    c.do("shutdown", s, socket.SHUT_WR)
    c.do("shutdown", s, socket.SHUT_RD)
    thread.join(DEADLINE_S)
    c.note("accept", results)
    c.accept(s)
    c.get(s, socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    with socket.socket() as peer:
        c.note("refused", peer.connect_ex(found))


@script
def closed_listener_resets_waiting_connections(c: Calls) -> None:
    s = c.create()
    c.bind(s, 0)
    c.do("listen", s, 4)
    found = c.name("getsockname", s)
    assert found
    with socket.create_connection(found) as peer:
        peer.settimeout(DEADLINE_S)
        c.wait(s, select.POLLIN)
        c.close(s)
        try:
            c.note("peer", peer.recv(10).hex())
        except OSError as error:
            c.note("peer", errno.errorcode[error.errno or 0])


# --- data --------------------------------------------------------------------------------------------


@script
def receive_flags(c: Calls) -> None:
    s, peer = c.connected()
    c.recv(s, 10, socket.MSG_DONTWAIT)
    c.recv(s, 0, socket.MSG_DONTWAIT)
    peer.sendall(b"0123456789")
    c.wait(s, select.POLLIN)
    until(lambda: c.call("recv", s, ctypes.create_string_buffer(20), 20, socket.MSG_PEEK) == 10)
    c.recv(s, 4, socket.MSG_PEEK)
    c.recv(s, 0)
    c.recv(s, 3)
    c.recv(s, 2, socket.MSG_TRUNC)
    c.recv(s, 10, socket.MSG_OOB)
    c.recv(s, 10, socket.MSG_ERRQUEUE)
    c.recv(s, 10, 0x400000)
    c.recv(s, 10, socket.MSG_DONTWAIT | socket.MSG_WAITALL)
    threading.Timer(0.02, lambda: peer.sendall(b"abc")).start()
    threading.Timer(0.06, lambda: peer.sendall(b"defgh")).start()
    c.recv(s, 8, socket.MSG_WAITALL)
    threading.Timer(0.02, lambda: peer.sendall(b"abc")).start()
    threading.Timer(0.06, lambda: peer.sendall(b"defgh")).start()
    c.recv(s, 8, socket.MSG_WAITALL | socket.MSG_PEEK)
    c.recv(s, 100)
    peer.sendall(b"end")
    peer.close()
    c.recv(s, 8, socket.MSG_WAITALL)
    c.recv(s, 8, socket.MSG_WAITALL)


@script
def receive_timeout_and_low_water(c: Calls) -> None:
    s, peer = c.connected()
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100_000))
    c.recv(s, 10)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 1_000_000))
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0), 8)
    c.get(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 3, 200_000))
    c.get(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)
    c.get(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, 4)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100_000))
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVLOWAT, 8)
    c.get(s, socket.SOL_SOCKET, socket.SO_RCVLOWAT)
    peer.sendall(b"1234")
    until(lambda: c.call("recv", s, ctypes.create_string_buffer(20), 20, socket.MSG_PEEK | socket.MSG_DONTWAIT) == 4)
    c.events(s, select.POLLIN)
    c.recv(s, 10)
    peer.sendall(b"12345678")
    c.wait(s, select.POLLIN)
    c.recv(s, 10)


@script
def scatter_and_gather(c: Calls) -> None:
    s, peer = c.connected()
    words = [ctypes.create_string_buffer(word, len(word)) for word in (b"one", b"two", b"three")]
    one, two, three = (Vector(ctypes.addressof(word), len(word)) for word in words)
    m = Header(None, 0, (Vector * 4)(one, Vector(None, 0), two, three), 4, None, 0, 0)
    c.do("sendmsg", s, ctypes.byref(m), 0)
    c.note("peer", peer.recv(100).hex())
    m.count = 0
    c.do("sendmsg", s, ctypes.byref(m), 0)
    m.count = 1025
    c.do("sendmsg", s, ctypes.byref(m), 0)
    m.count = 1
    where = address(1)
    c.do("sendto", s, b"to", 2, 0, where, 16)
    c.note("peer", peer.recv(100).hex())
    peer.sendall(b"abcdefgh")
    parts = [ctypes.create_string_buffer(3), ctypes.create_string_buffer(10)]
    into = (Vector * 3)(*(Vector(ctypes.addressof(p), len(p)) for p in parts), Vector(None, 0))
    m = Header(ctypes.cast(ctypes.create_string_buffer(16), ctypes.c_void_p), 16, into, 3, None, 0, 0x55)
    c.do("recvmsg", s, ctypes.byref(m), socket.MSG_WAITALL & 0)
    c.note("parts", [parts[0].raw.hex(), parts[1].raw.hex(), m.name_bytes, m.control_bytes, m.flags])
    length = ctypes.c_uint(16)
    peer.sendall(b"x")
    buffer, from_where = ctypes.create_string_buffer(4), ctypes.create_string_buffer(16)
    c.do("recvfrom", s, buffer, 4, 0, from_where, ctypes.byref(length))
    c.note("length", length.value)


@script
def more_and_cork(c: Calls) -> None:
    s, peer = c.connected()
    c.send(s, b"head", socket.MSG_MORE)
    c.send(s, b"body", 0)
    received = b""
    while len(received) < 8:
        received += peer.recv(100)
    c.note("peer", received.hex())
    c.send(s, b"alone", socket.MSG_MORE)
    c.note("peer", peer.recv(100).hex())  # leaves after 200 ms at the latest
    c.set(s, socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    c.send(s, b"corked")
    c.set(s, socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    c.note("peer", peer.recv(100).hex())


def fill(c: Calls, s: int) -> int:
    """Sends without waiting until nothing more is taken; how many bytes were."""
    # What has been accepted moves on to the peer's buffer: full is when it stays full. Through the proxy this takes
    # longer; the kernel alone would find room again if it had long.
    quiet_ms = 200 if c.is_kernel else 800
    chunk, sent = os.urandom(50_000), 0
    while True:
        n = c.call("send", s, chunk, len(chunk), 0)
        if n >= 0:
            sent += n
            continue
        assert n == -errno.EAGAIN, errno.errorcode[-n]
        fds = (PollFd * 1)(PollFd(s, select.POLLOUT, 0))
        if c.call("poll", fds, ctypes.c_ulong(1), quiet_ms) == 0:
            break
    while c.call("send", s, b"x", 1, 0) == 1:
        sent += 1
    return sent


@script
def send_until_full(c: Calls) -> None:
    s, peer = c.connected()
    c.do("fcntl", s, fcntl.F_SETFL, os.O_NONBLOCK)
    sent = fill(c, s)
    c.events(s, select.POLLOUT)
    c.set(s, socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 50_000))
    c.do("fcntl", s, fcntl.F_SETFL, 0)
    c.send(s, b"x")
    received = 0
    while received < sent:
        received += len(peer.recv(min(1 << 20, sent - received)))
    c.wait(s, select.POLLOUT)
    c.events(s, select.POLLOUT)
    c.note("all there", received == sent)


@script
def large_both_ways(c: Calls) -> None:
    s, peer = c.connected()
    data = os.urandom(3 << 20)
    thread = threading.Thread(target=peer.sendall, args=(data,))
    thread.start()
    buffer = ctypes.create_string_buffer(len(data))
    c.do("recv", s, buffer, len(data), socket.MSG_WAITALL)
    thread.join()
    c.note("same", buffer.raw == data)
    received = bytearray()

    def reader() -> None:
        while len(received) < len(data):
            received.extend(peer.recv(1 << 20))

    thread = threading.Thread(target=reader)
    thread.start()
    c.do("send", s, data, len(data), 0)
    thread.join()
    c.note("same", bytes(received) == data)


# --- ending ------------------------------------------------------------------------------------------


@script
def shutdown_write(c: Calls) -> None:
    s, peer = c.connected()
    c.send(s, b"last words")
    c.do("shutdown", s, socket.SHUT_WR)
    c.do("shutdown", s, socket.SHUT_WR)
    c.note("peer", peer.recv(100).hex())
    c.note("peer", peer.recv(100).hex())
    c.events(s)
    c.send(s, b"x")
    c.send(s, b"")
    peer.sendall(b"still heard")
    c.wait(s, select.POLLIN)
    c.recv(s, 100)
    c.events(s)
    peer.close()
    c.wait(s, select.POLLRDHUP if hasattr(select, "POLLRDHUP") else 0x2000)
    until(lambda: c.call("getpeername", s, ctypes.create_string_buffer(16), ctypes.byref(ctypes.c_uint(16))) < 0)
    c.events(s)
    c.recv(s, 10)
    c.recv(s, 10)
    c.name("getpeername", s)
    c.do("shutdown", s, socket.SHUT_RDWR)


@script
def shutdown_read(c: Calls) -> None:
    s, peer = c.connected()
    peer.sendall(b"before")
    c.wait(s, select.POLLIN)
    c.do("shutdown", s, socket.SHUT_RD)
    c.events(s)
    c.recv(s, 100)
    c.recv(s, 100)
    c.send(s, b"fine")
    c.note("peer", peer.recv(10).hex())
    c.do("shutdown", s, socket.SHUT_WR)
    c.events(s)


@script
def peer_closes(c: Calls) -> None:
    s, peer = c.connected()
    peer.sendall(b"bye")
    peer.close()
    c.wait(s, 0x2000)
    c.events(s)
    c.recv(s, 2)
    c.recv(s, 2)
    c.recv(s, 2)
    c.recv(s, 2)
    c.name("getpeername", s)
    c.send(s, b"into the void")
    c.wait_error(s)
    c.events(s)
    c.recv(s, 2)
    c.send(s, b"x")
    c.send(s, b"x")
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)


@script
def reset_seen_by_recv(c: Calls) -> None:
    s, peer = c.connected()
    reset(peer)
    c.wait_error(s)
    c.events(s)
    c.recv(s, 10)
    c.recv(s, 10)
    c.send(s, b"x")
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.events(s)
    c.name("getpeername", s)
    c.connect(s, 1)
    c.do("shutdown", s, socket.SHUT_WR)


@script
def reset_seen_by_send(c: Calls) -> None:
    s, peer = c.connected()
    reset(peer)
    c.wait_error(s)
    c.send(s, b"x")
    c.send(s, b"x")
    c.recv(s, 10)


@script
def reset_seen_by_option(c: Calls) -> None:
    s, peer = c.connected()
    reset(peer)
    c.wait_error(s)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.recv(s, 10)
    c.send(s, b"x")


@script
def reset_ends_waiting_calls(c: Calls) -> None:
    s, peer = c.connected()
    threading.Timer(0.05, lambda: reset(peer)).start()
    c.recv(s, 10)
    s, peer = c.connected()
    threading.Timer(0.05, peer.close).start()
    c.recv(s, 10)


@script
def broken_pipe_signals(c: Calls) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGPIPE, lambda number, _frame: seen.append(number))
    try:
        s = c.create()
        c.send(s, b"x", 0)
        c.note("signals", len(seen))
        c.send(s, b"x", socket.MSG_NOSIGNAL)
        c.note("signals", len(seen))
        s, peer = c.connected()
        c.do("shutdown", s, socket.SHUT_WR)
        c.send(s, b"x", 0)
        c.note("signals", len(seen))
        peer.close()
    finally:
        signal.signal(signal.SIGPIPE, before)


def peer_end(c: Calls, peer: socket.socket) -> None:
    try:
        c.note("peer", peer.recv(100).hex())
        c.note("peer", peer.recv(100).hex())
    except OSError as error:
        c.note("peer", errno.errorcode[error.errno or 0])


@script
def close_with_unread_data(c: Calls) -> None:
    s, peer = c.connected()
    peer.sendall(b"unread")
    c.wait(s, select.POLLIN)
    c.close(s)
    peer_end(c, peer)
    s, peer = c.connected()
    peer.sendall(b"read")
    c.wait(s, select.POLLIN)
    c.recv(s, 100)
    c.send(s, b"all is well")
    c.close(s)
    peer_end(c, peer)


@script
def close_lingering(c: Calls) -> None:
    for value in ((1, 0), (1, 5), (0, 5)):
        s, peer = c.connected()
        c.set(s, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", *value))
        c.get(s, socket.SOL_SOCKET, socket.SO_LINGER, 8)
        c.send(s, b"x")
        if value == (1, 0):
            c.note("peer", peer.recv(1).hex())
        c.close(s)
        peer_end(c, peer)
        peer.close()


@script
def interrupted(c: Calls) -> None:
    for flags in ("restart", "no restart"):
        s, peer = c.connected()
        signal.signal(signal.SIGALRM, lambda _number, _frame: None)
        signal.siginterrupt(signal.SIGALRM, flags != "restart")
        signal.siginterrupt(signal.SIGINT, flags != "restart")
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        threading.Timer(0.2, lambda peer=peer: peer.sendall(b"late")).start()
        c.recv(s, 10)
        if flags == "no restart":
            until(lambda s=s: c.call("recv", s, ctypes.create_string_buffer(9), 9, socket.MSG_DONTWAIT) > 0)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        interrupted_poll = c.call("poll", (PollFd * 1)(PollFd(s, select.POLLIN, 0)), ctypes.c_ulong(1), 1000)
        c.note("poll", errno.errorcode[-interrupted_poll])
        c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 1, 0))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        c.recv(s, 10)
        peer.close()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


# --- options -----------------------------------------------------------------------------------------


@script
def options(c: Calls) -> None:
    s, _peer = c.connected()
    for option in (
        socket.SO_TYPE,
        socket.SO_DOMAIN,
        socket.SO_PROTOCOL,
        socket.SO_ERROR,
        socket.SO_ACCEPTCONN,
        socket.SO_REUSEADDR,
        socket.SO_KEEPALIVE,
        socket.SO_OOBINLINE,
    ):
        c.get(s, socket.SOL_SOCKET, option)
        c.get(s, socket.SOL_SOCKET, option, 2)
    for option in (socket.SO_TYPE, socket.SO_DOMAIN, socket.SO_ERROR, socket.SO_ACCEPTCONN):
        c.set(s, socket.SOL_SOCKET, option, 1)
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
        (socket.SOL_SOCKET, socket.SO_RCVLOWAT, 5),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 7),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 12345),
        (socket.IPPROTO_IP, socket.IP_TOS, 16),
        (socket.IPPROTO_IP, socket.IP_TTL, 33),
    ):
        c.set(s, level, option, value)
        c.get(s, level, option)
        c.set(s, level, option, b"\1\0", 2)
    c.set(s, socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 0)
    c.set(s, socket.IPPROTO_TCP, 9999, 1)
    c.get(s, socket.IPPROTO_TCP, 9999)
    c.set(s, socket.SOL_SOCKET, 9999, 1)
    c.set(s, 9999, 1, 1)
    c.get(s, 9999, 1)
    c.get(s, socket.IPPROTO_TCP, socket.TCP_INFO, 8, record=False)
    c.get(s, socket.IPPROTO_TCP, socket.TCP_MAXSEG, record=False)
    c.get(s, socket.SOL_SOCKET, socket.SO_TYPE, -1 & 0)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, -1))
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 1_000_000))


@script
def buffers(c: Calls) -> None:
    s = c.create()
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        c.set(s, socket.SOL_SOCKET, option, 20000)
        c.get(s, socket.SOL_SOCKET, option)
        c.set(s, socket.SOL_SOCKET, option, 1)
        c.get(s, socket.SOL_SOCKET, option)


@script
def controls(c: Calls) -> None:
    s, peer = c.connected()
    number = ctypes.c_int(-1)
    peer.sendall(b"12345")
    c.wait(s, select.POLLIN)
    c.do("ioctl", s, termios.FIONREAD, ctypes.byref(number))
    c.note("unread", number.value)
    number.value = 1
    c.do("ioctl", s, termios.FIONBIO, ctypes.byref(number))
    c.do("fcntl", s, fcntl.F_GETFL)
    number.value = 0
    c.do("ioctl", s, termios.FIONBIO, ctypes.byref(number))
    c.do("fcntl", s, fcntl.F_GETFL)
    c.do("fcntl", s, fcntl.F_GETFD)
    c.do("fcntl", s, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    c.do("fcntl", s, fcntl.F_GETFD)
    c.do("fcntl", s, 9999, 0)
    c.do("fcntl", 0x3FFFFFFF, fcntl.F_GETFL)
    c.send(s, b"x")
    c.note("peer", peer.recv(1).hex())

    def queued() -> int:
        assert c.call("ioctl", s, SIOCOUTQ, ctypes.byref(number)) == 0
        return int(number.value)

    until(lambda: queued() == 0)
    c.do("ioctl", s, 0x12345678, ctypes.byref(ctypes.create_string_buffer(8192)))
    c.do("ioctl", s, termios.FIONREAD, None)


@script
def bad_descriptor(c: Calls) -> None:
    s = c.create()
    c.close(s)
    c.recv(s, 1)
    c.send(s, b"x")
    c.connect(s, 1)
    c.bind(s, 0)
    c.do("listen", s, 1)
    c.accept(s)
    c.do("shutdown", s, 0)
    c.name("getsockname", s)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.set(s, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    c.events(s)
    c.close(s)


# --- epoll -------------------------------------------------------------------------------------------


class Set:
    """epoll on either side."""

    def __init__(self, c: Calls) -> None:
        self.c = c
        if c.is_kernel:
            self.handle: Any = c.call("epoll_create1", 0)
            c.opened.append(self.handle)
        else:
            c.native.xts_epoll_ctx_create.restype = ctypes.c_void_p
            self.handle = ctypes.c_void_p(c.native.xts_epoll_ctx_create())

    def control(self, op: int, s: int, events: int = 0) -> None:
        event = EpollEvent(events, 42)
        self.c.do("epoll_ctl", self.handle, op, s, ctypes.byref(event))

    def wait(self, timeout_ms: int = 0, size: int = 8) -> list[int]:
        events = (EpollEvent * size)()
        n = self.c.call("epoll_wait", self.handle, events, size, timeout_ms)
        found = [events[i].events for i in range(max(n, 0))]
        self.c.note("epoll_wait", found if n >= 0 else errno.errorcode[-n])
        return found


@script
def epoll_level(c: Calls) -> None:
    s, peer = c.connected()
    e = Set(c)
    e.control(EPOLL_CTL_ADD, s, select.EPOLLIN)
    e.control(EPOLL_CTL_ADD, s, select.EPOLLIN)
    e.wait()
    peer.sendall(b"ab")
    e.wait(5000)
    e.wait()
    c.recv(s, 1)
    e.wait()
    c.recv(s, 1)
    e.wait()
    e.control(EPOLL_CTL_MOD, s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP)
    e.wait()
    e.control(EPOLL_CTL_DEL, s)
    e.control(EPOLL_CTL_DEL, s)
    e.control(EPOLL_CTL_MOD, s, select.EPOLLIN)
    e.control(77, s, select.EPOLLIN)
    e.wait()
    e.wait(0, 0)


@script
def epoll_edge(c: Calls) -> None:
    s, peer = c.connected()
    e = Set(c)
    e.control(EPOLL_CTL_ADD, s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    e.wait()
    e.wait()
    peer.sendall(b"a")
    e.wait(5000)
    e.wait()
    peer.sendall(b"b")
    e.wait(5000)
    c.recv(s, 1)
    e.wait()
    e.control(EPOLL_CTL_MOD, s, select.EPOLLIN | select.EPOLLET)
    e.wait()
    c.recv(s, 10)
    peer.close()
    e.wait(5000)
    e.wait()


@script
def epoll_oneshot_and_ends(c: Calls) -> None:
    s, peer = c.connected()
    e = Set(c)
    e.control(EPOLL_CTL_ADD, s, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT)
    peer.sendall(b"a")
    e.wait(5000)
    peer.sendall(b"b")
    e.wait(20)
    e.control(EPOLL_CTL_MOD, s, select.EPOLLRDHUP | select.EPOLLONESHOT)
    e.wait()
    peer.close()
    e.wait(5000)
    e.control(EPOLL_CTL_MOD, s, select.EPOLLOUT)
    e.wait()
    c.do("shutdown", s, socket.SHUT_WR)
    e.wait(5000)
    c.close(s)
    e.wait()


@script
def epoll_reset(c: Calls) -> None:
    s, peer = c.connected()
    e = Set(c)
    e.control(EPOLL_CTL_ADD, s, 0)
    reset(peer)
    e.wait(5000)
    fresh = c.create()
    e.control(EPOLL_CTL_ADD, fresh, select.EPOLLIN | select.EPOLLOUT)
    c.close(s)
    e.wait()


@script
def poll_many(c: Calls) -> None:
    pairs = [c.connected() for _ in range(3)]
    fds = (PollFd * 5)(*(PollFd(s, select.POLLIN, 0) for s, _ in pairs), PollFd(-1, 1, 7), PollFd(0x3FFFFFFF, 1, 0))
    c.do("poll", fds, ctypes.c_ulong(5), 0)
    c.note("events", [f.revents for f in fds])
    threading.Timer(0.02, lambda: pairs[1][1].sendall(b"x")).start()
    c.do("poll", fds, ctypes.c_ulong(3), 5000)
    c.note("events", [f.revents for f in fds])
    c.do("poll", fds, ctypes.c_ulong(1), 30)


def main() -> None:
    side = sys.argv[1]
    wanted = sys.argv[2:] or list(SCRIPTS)
    calls = Calls(None if side == "kernel" else side)
    traces: dict[str, Any] = {}
    for name in wanted:
        failure = None
        try:
            SCRIPTS[name](calls)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        traces[name] = calls.finish() + ([["failed", failure]] if failure else [])
    json.dump(traces, sys.stdout)


if __name__ == "__main__":
    main()
