"""Scripts of calls: options, and waiting with epoll and poll."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import select
import socket
import struct
import termios
import threading
from typing import Any

from beds.calls import EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, SIOCOUTQ, Calls, reset, until
from beds.libc_structs import EpollEvent, PollFd
from beds.scripts import script

# --- options ------------------------------------------------------------------------------------------


@script("calls")
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


@script("calls")
def devices(c: Calls) -> None:
    """Bound to none, which is how they are."""
    to_index = 62  # SO_BINDTOIFINDEX
    idle, (connected, _peer) = c.create(), c.connected()
    for s in (idle, connected):
        for name, length in (
            (None, 0),
            (b"", 0),
            (b"", 1),
            (b"\0lo", 4),
            (b"none-such", 9),
            (b"none-such-of-any-name", 21),
        ):
            c.set(s, socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name, length)
        c.do("setsockopt", s, socket.SOL_SOCKET, socket.SO_BINDTODEVICE, None, 3)
        c.do("setsockopt", s, socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo", ctypes.c_uint(-1))
        for size in (0, 1, 16):
            c.get(s, socket.SOL_SOCKET, socket.SO_BINDTODEVICE, size)
        c.set(s, socket.SOL_SOCKET, to_index, 0)
        c.set(s, socket.SOL_SOCKET, to_index, -1)
        c.set(s, socket.SOL_SOCKET, to_index, b"", 0)
        c.get(s, socket.SOL_SOCKET, to_index)


@script("calls")
def buffers(c: Calls) -> None:
    s = c.create()
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        c.set(s, socket.SOL_SOCKET, option, 20000)
        c.get(s, socket.SOL_SOCKET, option)
        c.set(s, socket.SOL_SOCKET, option, 1)
        c.get(s, socket.SOL_SOCKET, option)


@script("calls")
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


@script("calls")
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


# --- epoll --------------------------------------------------------------------------------------------


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


@script("calls")
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


@script("calls")
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


@script("calls")
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


@script("calls")
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


@script("calls")
def poll_many(c: Calls) -> None:
    pairs = [c.connected() for _ in range(3)]
    fds = (PollFd * 5)(*(PollFd(s, select.POLLIN, 0) for s, _ in pairs), PollFd(-1, 1, 7), PollFd(0x3FFFFFFF, 1, 0))
    c.do("poll", fds, ctypes.c_ulong(5), 0)
    c.note("events", [f.revents for f in fds])
    threading.Timer(0.02, lambda: pairs[1][1].sendall(b"x")).start()
    c.do("poll", fds, ctypes.c_ulong(3), 5000)
    c.note("events", [f.revents for f in fds])
    c.do("poll", fds, ctypes.c_ulong(1), 30)
