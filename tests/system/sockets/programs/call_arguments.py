"""Scripts of calls: arguments that no call can use. Pointers at nothing, lengths and counts that are too large.

The bad pointers are those that the library promises to notice: the first page, the kernel's half of the addresses, and,
for the calls that are not about data, memory that is there and protected.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import select
import socket
import struct
import termios
from collections.abc import Callable
from typing import Any

from beds.calls import SIOCOUTQ, Calls, address
from beds.datagram_calls import bound, datagram, udp_peer
from beds.libc_structs import EpollEvent, Header, Message, PollFd, Vector
from beds.scripts import script
from system.sockets.programs.call_options import Set

#: NULL, what is computed from it, what the kernel has for itself, and what lies between that and all processes.
PLAIN = (0, 3, 4095, 2**64 - 1, 2**64 - 4096, 2**63, 2**56 - 4096)
#: Of the processes' part of the address space: no buffer is above (47 bits on x86-64, 48 on arm64).
USER_SPACE_END = 2**55
NOW = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class Protected:
    """A page that can only be read, or not even that."""

    def __init__(self, protection: int = 0) -> None:
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        self.address = int(libc.mmap(None, mmap.PAGESIZE, protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0))


def pointers(*more: Protected) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(where) for where in (*PLAIN, *(each.address for each in more))]


def header(base: int | None, size: int, **fields: Any) -> Header:
    """struct msghdr with one piece."""
    piece = Vector(base, size)
    made = Header(None, 0, ctypes.pointer(piece), 1, None, 0, 0)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _each_stream(c: Calls) -> list[tuple[int, Any]]:
    """Sockets in several states, and what keeps them there: connected with data to read, connected without, ended by
    the peer, fresh, listening."""
    (full, full_peer), (empty, empty_peer), (ended, ended_peer) = c.connected(), c.connected(), c.connected()
    full_peer.sendall(b"0123456789")
    ended_peer.close()
    for s in (full, ended):
        c.wait(s, select.POLLIN)
    listener = c.create()
    c.bind(listener, 0)
    c.do("listen", listener, 5)
    return [(full, full_peer), (empty, empty_peer), (ended, None), (c.create(), None), (listener, None)]


def _send_all_ways(c: Calls, s: int) -> None:
    for bad in pointers():
        c.do("send", s, bad, 10, NOW)
        c.do("send", s, bad, 0, NOW)
        c.do("sendto", s, bad, 10, NOW, None, 0)
        c.do("sendto", s, b"", 0, NOW, bad, 16)
        c.do("sendmsg", s, bad, NOW)
        c.do("sendmsg", s, ctypes.byref(header(bad.value, 100)), NOW)
        c.do("sendmsg", s, ctypes.byref(header(bad.value, 0)), NOW)
        c.do("sendmmsg", s, bad, 1, NOW)
        empty = header(None, 0)
        empty.vectors = ctypes.cast(bad, ctypes.POINTER(Vector))
        c.do("sendmsg", s, ctypes.byref(empty), NOW)


def _receive_all_ways(c: Calls, s: int) -> None:
    for bad in pointers():
        c.do("recv", s, bad, 4, socket.MSG_DONTWAIT | socket.MSG_PEEK)
        c.do("recv", s, bad, 0, socket.MSG_DONTWAIT)
        c.do("recv", s, bad, 4, socket.MSG_DONTWAIT)
        c.do("recvmsg", s, bad, socket.MSG_DONTWAIT)
        c.do("recvmsg", s, ctypes.byref(header(bad.value, 100)), socket.MSG_DONTWAIT)
        c.do("recvmmsg", s, bad, 1, socket.MSG_DONTWAIT, None)
        empty = header(None, 0)
        empty.vectors = ctypes.cast(bad, ctypes.POINTER(Vector))
        c.do("recvmsg", s, ctypes.byref(empty), socket.MSG_DONTWAIT)


@script("calls")
def arguments_of_sends(c: Calls) -> None:
    for s, peer in _each_stream(c):
        _send_all_ways(c, s)
        del peer
    with udp_peer() as peer:
        s, connected = datagram(c), datagram(c)
        c.connect(connected, peer.getsockname()[1])
        for each in (s, connected):
            _send_all_ways(c, each)
            c.do("sendto", each, None, 4, NOW, address(peer.getsockname()[1]), 16)
            c.do("sendto", each, None, 0, NOW, address(peer.getsockname()[1]), 16)


@script("calls")
def arguments_of_receives(c: Calls) -> None:
    for s, peer in _each_stream(c):
        _receive_all_ways(c, s)
        c.recv(s, 20, socket.MSG_DONTWAIT)
        del peer
    s, _port = bound(c)
    _receive_all_ways(c, s)


@script("calls")
def arguments_of_receives_of_datagrams(c: Calls) -> None:
    """A datagram whose copy fails is gone, and one that is only looked at is not."""
    s, port = bound(c)
    with udp_peer() as peer:
        for bad in pointers():
            never = (bad.value or 0) >= USER_SPACE_END  # refused before anything is received
            for flags in (0, socket.MSG_PEEK, socket.MSG_TRUNC):
                peer.sendto(b"one", ("127.0.0.1", port))
                peer.sendto(b"", ("127.0.0.1", port))
                left = 2
                for room in (bad, bad, None, None, None):
                    if left:  # the second datagram may come later than the first
                        c.wait(s, select.POLLIN)
                    if room is bad:
                        c.do("recv", s, bad, 10, flags)
                        left -= not (never or flags & socket.MSG_PEEK)
                    else:
                        c.recv(s, 10, socket.MSG_DONTWAIT)
                        left -= left > 0


@script("calls")
def discarded(c: Calls) -> None:
    """MSG_TRUNC of a stream copies nothing, whatever the buffer is."""
    s, peer = c.connected()
    peer.sendall(b"0123456789")
    c.wait(s, select.POLLIN)
    small = ctypes.create_string_buffer(b"....", 4)
    c.do("recv", s, None, 2, socket.MSG_TRUNC)
    c.do("recv", s, ctypes.c_void_p(3), 2, socket.MSG_TRUNC)
    c.do("recv", s, small, 3, socket.MSG_TRUNC | socket.MSG_PEEK)
    c.do("recvmsg", s, ctypes.byref(header(None, 2)), socket.MSG_TRUNC)
    c.note("untouched", small.raw.decode())
    c.recv(s, 20, socket.MSG_DONTWAIT)


@script("calls")
def pieces_of_which_one_is_bad(c: Calls) -> None:
    """What comes before it is sent, or received."""
    s, peer = c.connected()
    good = ctypes.create_string_buffer(b"good", 4)
    for before, after in ((1, 1), (0, 1), (2, 0)):
        pieces = (Vector * (before + after + 1))(
            *[Vector(ctypes.addressof(good), 4)] * before, Vector(None, 4), *[Vector(ctypes.addressof(good), 4)] * after
        )
        made = Header(None, 0, pieces, len(pieces), None, 0, 0)
        n = c.do("sendmsg", s, ctypes.byref(made), NOW)
        c.note("peer", peer.recv(99).decode() if n > 0 else "")
        peer.sendall(b"abcdefghijkl")
        c.wait(s, select.POLLIN)
        n = c.do("recvmsg", s, ctypes.byref(made), socket.MSG_DONTWAIT | socket.MSG_PEEK)
        c.recv(s, 20, socket.MSG_DONTWAIT)
        good.raw = b"good"


@script("calls")
def lengths_and_counts(c: Calls) -> None:
    s, peer = c.connected()
    u = datagram(c)
    c.do("connect", u, address(9), 16)
    room = ctypes.create_string_buffer(64)
    at = ctypes.addressof(room)
    for each in (s, u):
        for fields in (
            {"name": at, "name_bytes": 2**32 - 1}, {"name": None, "name_bytes": 2**32 - 1}, {"count": 1025},
            {"count": 2**63}, {"control": at, "control_bytes": 2**31}, {"control": 3, "control_bytes": 40},
            {"control": at, "control_bytes": 15}, {"name": at, "name_bytes": 2**31, "count": 1025},
        ):  # fmt: skip
            c.do("recvmsg", each, ctypes.byref(header(at, 8, **fields)), socket.MSG_DONTWAIT)
        for fields in (
            {"name": at, "name_bytes": 2**32 - 1}, {"count": 1025}, {"count": 2**63},
            {"control": at, "control_bytes": 2**31}, {"control": 3, "control_bytes": 40},
            {"name": 3, "name_bytes": 16, "count": 1025},
        ):  # fmt: skip
            c.do("sendmsg", each, ctypes.byref(header(at, 8, **fields)), NOW)
        c.do("recvmsg", each, ctypes.byref(header(at, 2**63)), socket.MSG_DONTWAIT)
        c.do("sendmsg", each, ctypes.byref(header(at, 2**63)), NOW)
        # the control message is longer than the control data
        struct.pack_into("=QII", room, 0, 4000, socket.SOL_SOCKET, 0)
    c.do("sendmsg", u, ctypes.byref(header(at, 8, control=at, control_bytes=24)), NOW)
    c.do("connect", s, None, 0)
    c.do("connect", c.create(), address(9), 129)
    c.do("connect", c.create(), address(9), 2**32 - 1)
    c.do("bind", c.create(), address(0), 129)
    c.do("bind", c.create(), None, 0)
    c.do("connect", datagram(c), None, 0)
    c.do("bind", datagram(c), None, 0)
    peer.close()


def _names(c: Calls, s: int, guards: tuple[Protected, ...]) -> None:
    room, length = ctypes.create_string_buffer(28), ctypes.c_uint(28)
    for call in ("getsockname", "getpeername"):
        for bad in pointers(*guards):
            c.do(call, s, bad, ctypes.byref(length))
            c.do(call, s, room, bad)
            length.value = 0
            c.do(call, s, bad, ctypes.byref(length))
            length.value = 28
        c.do(call, s, room, ctypes.byref(ctypes.c_uint(2**32 - 1)))


@script("calls")
def arguments_about_addresses(c: Calls) -> None:
    none, reads = Protected(), Protected(mmap.PROT_READ)
    (connected, peer), fresh, u = c.connected(), c.create(), datagram(c)
    c.do("connect", u, address(9), 16)
    for s in (connected, fresh, u):
        _names(c, s, (none, reads))
    for bad in pointers(none):
        for s in (c.create(), datagram(c), connected):
            c.do("connect", s, bad, 16)
            c.do("connect", s, bad, 0)
            c.do("connect", s, bad, 1)
            c.do("bind", s, bad, 16)
            c.do("bind", s, bad, 0)
            c.do("bind", s, bad, 129)
    peer.close()


@script("calls")
def arguments_of_accept(c: Calls) -> None:
    """The connection is accepted first, and lost where its address cannot be told."""
    listener = c.create()
    c.bind(listener, 0)
    room, length = ctypes.create_string_buffer(28), ctypes.c_uint(28)
    for bad in pointers():
        c.do("accept4", listener, bad, ctypes.byref(length), 0)
    c.do("listen", listener, 5)
    port = struct.unpack(">H", _name_of(c, listener)[2:4])[0]
    for bad in pointers():
        for arguments in ((bad, ctypes.byref(length)), (room, bad)):
            with socket.create_connection(("127.0.0.1", port)) as client:
                c.wait(listener, select.POLLIN)
                r = c.call("accept4", listener, *arguments, 0)
                c.note("accept4", "socket" if r >= 0 else errno.errorcode[-r])
                client.settimeout(10)
                c.note("client", _outcome(lambda client=client: client.recv(1).hex()) if r < 0 else "")
                if r >= 0:
                    c.call("close", r)
    c.do("accept4", listener, room, ctypes.byref(length), 0x40)


def _name_of(c: Calls, s: int) -> bytes:
    room, length = ctypes.create_string_buffer(28), ctypes.c_uint(28)
    assert c.call("getsockname", s, room, ctypes.byref(length)) == 0
    return room.raw


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


@script("calls")
def arguments_of_options(c: Calls) -> None:
    none, reads = Protected(), Protected(mmap.PROT_READ)
    (s, peer), u = c.connected(), datagram(c)
    value, length = ctypes.create_string_buffer(16), ctypes.c_uint(4)
    for each in (s, u):
        for level, option in (
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.SOL_SOCKET, socket.SO_RCVLOWAT),
            (socket.IPPROTO_IP, socket.IP_TTL),
        ):  # fmt: skip
            for bad in pointers(none):
                c.do("setsockopt", each, level, option, bad, 4)
                c.do("setsockopt", each, level, option, bad, 0)
                c.do("setsockopt", each, level, option, bad, 2**32 - 1)
            for bad in pointers(none, reads):
                c.do("getsockopt", each, level, option, bad, ctypes.byref(length))
                c.do("getsockopt", each, level, option, value, bad)
            length.value = 0
            c.do("getsockopt", each, level, option, None, ctypes.byref(length))
            c.do("getsockopt", each, level, option, value, ctypes.byref(ctypes.c_uint(2**32 - 1)))
            length.value = 4
    for bad in pointers():
        c.do("ioctl", s, ctypes.c_ulong(termios.FIONREAD), bad)
        c.do("ioctl", s, ctypes.c_ulong(termios.FIONBIO), bad)
    for bad in pointers(none, reads):
        c.do("ioctl", s, ctypes.c_ulong(SIOCOUTQ), bad)
    peer.close()


@script("calls")
def arguments_of_waits(c: Calls) -> None:
    s, peer = c.connected()
    peer.sendall(b"x")
    c.wait(s, select.POLLIN)
    for bad in PLAIN:
        pointer = ctypes.cast(ctypes.c_void_p(bad), ctypes.POINTER(PollFd))
        c.do("poll", pointer, ctypes.c_ulong(0), 0)
        c.do("poll", pointer, ctypes.c_ulong(1), 0)
        c.do("poll", pointer, ctypes.c_ulong(500), 0)
    e = Set(c)
    e.control(1, s, select.EPOLLIN)
    events = (EpollEvent * 4)()
    for bad in PLAIN:
        c.do("epoll_wait", e.handle, ctypes.c_void_p(bad), 4, 0)
        c.do("epoll_ctl", e.handle, 3, s, ctypes.c_void_p(bad))
        c.do("epoll_ctl", e.handle, 9, s, ctypes.c_void_p(bad))
    for count in (0, -1, 2**31 - 1):
        c.do("epoll_wait", e.handle, events, count, 0)
    c.recv(s, 1)
    for bad in PLAIN:  # nothing is ready: the kernel does not find that it cannot write there
        for timeout_ms in (0, 10):
            c.do("epoll_wait", e.handle, ctypes.c_void_p(bad), 4, timeout_ms)
    peer.sendall(b"x")
    c.do("epoll_wait", e.handle, None, 4, -1)  # it waits, and keeps the event
    c.do("epoll_wait", e.handle, None, 4, 0)
    e.wait()


@script("calls")
def times_of_messages(c: Calls) -> None:
    s, port = bound(c)
    made = (Message * 2)()
    with udp_peer() as peer:
        for bad in PLAIN[1:]:
            peer.sendto(b"x", ("127.0.0.1", port))
            c.wait(s, select.POLLIN)
            c.do("recvmmsg", s, made, 2, socket.MSG_DONTWAIT, ctypes.c_void_p(bad))
            c.recv(s, 10, socket.MSG_DONTWAIT)


@script("calls")
def datagrams_to_odd_addresses(c: Calls) -> None:
    s = datagram(c)
    c.connect(s, 0)
    c.name("getpeername", s)
    c.send(s, b"to port 0")
    c.connect(s, 9)
    c.name("getpeername", s)
    six = datagram(c, socket.AF_INET6)
    c.do("setsockopt", six, socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, struct.pack("=i", 1), 4)
    c.connect(six, 9, "::ffff:127.0.0.1")
    c.do("connect", six, address(9), 16)
    where = address(9, "::ffff:127.0.0.1")
    c.do("sendto", six, b"x", 1, 0, where, len(where))
    c.do("sendto", six, b"x", 1, 0, address(9), 16)
