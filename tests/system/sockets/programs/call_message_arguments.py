"""Scripts of calls: what comes with the data. Places for addresses, control messages, more bytes than there can be."""

from __future__ import annotations

import ctypes
import select
import socket
import struct
import threading
from typing import Any

from beds.calls import Calls, address
from beds.datagram_calls import bound, datagram, udp_peer
from beds.libc_structs import Message
from beds.scripts import script
from system.sockets.programs.call_arguments import NOW, PLAIN, header

SIZES = (2**31, 2**63 - 1, 2**63, 2**64 - 1)


def _receive_with_address(c: Calls, s: int, send: Any) -> None:
    """Where the address cannot be written, the data is gone. A stream socket has no address to write."""
    room = ctypes.create_string_buffer(128)
    at = ctypes.addressof(room)
    for place in (*PLAIN, at):
        for length in (0, 1, 16, 28, 2**31 - 1, 2**32 - 1):
            if length == 2**31 - 1 and place not in (0, at):
                continue
            told = ctypes.c_uint32(length)
            send()
            n = c.do("recvfrom", s, ctypes.byref(room, 64), 4, 0, ctypes.c_void_p(place), ctypes.byref(told))
            c.note("length", told.value if n >= 0 else "any")
            if length < 2**31 - 1:
                made = header(at + 64, 4, name=place, name_bytes=length)
                send()
                n = c.do("recvmsg", s, ctypes.byref(made), 0)
                c.note("length", made.name_bytes if n >= 0 else "any")
        send()
        c.do("recvfrom", s, ctypes.byref(room, 64), 4, 0, room, ctypes.c_void_p(place) if place != at else None)
        c.recv(s, 9, socket.MSG_DONTWAIT)


@script("calls")
def places_for_addresses(c: Calls) -> None:
    s, peer = c.connected()

    def send() -> None:
        peer.sendall(b"four")
        c.wait(s, select.POLLIN)

    _receive_with_address(c, s, send)


@script("calls")
def places_for_addresses_of_datagrams(c: Calls) -> None:
    s, port = bound(c)
    with udp_peer() as peer:

        def send() -> None:
            peer.sendto(b"four", ("127.0.0.1", port))
            c.wait(s, select.POLLIN)

        _receive_with_address(c, s, send)


@script("calls")
def more_bytes_than_there_can_be(c: Calls) -> None:
    """A call with one piece moves what there is. Nothing is sent here, since the memory ends before that."""
    s, peer = c.connected()
    listener, fresh = c.create(), c.create()
    c.bind(listener, 0)
    c.do("listen", listener, 1)
    u = datagram(c)
    room = ctypes.create_string_buffer(64)
    at = ctypes.addressof(room)
    for size in SIZES:
        for each in (s, u, listener, fresh):
            c.do("recv", each, room, ctypes.c_size_t(size), NOW)
            c.do("recvmsg", each, ctypes.byref(header(at, size)), NOW)
        peer.sendall(b"all")
        c.wait(s, select.POLLIN)
        c.do("recv", s, room, ctypes.c_size_t(size), NOW)
        for each in (u, listener):
            c.do("send", each, room, ctypes.c_size_t(size), NOW)
            c.do("sendmsg", each, ctypes.byref(header(at, size)), NOW)


def _control(level: int, kind: int, data: bytes = bytes(4), length: int | None = None) -> bytes:
    size = 16 + len(data)
    return struct.pack("=QII", size if length is None else length, level, kind) + data + bytes(-size % 8)


#: What a program says for sockets of any kind, and what it should not have said.
CONTROLS = {
    "rights": _control(socket.SOL_SOCKET, socket.SCM_RIGHTS),
    "credentials": _control(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, bytes(12)),
    "unknown": _control(socket.SOL_SOCKET, 99),
    "level": _control(99, 1),
    "short": _control(socket.SOL_SOCKET, socket.SCM_RIGHTS, length=8),
    "long": _control(socket.SOL_SOCKET, socket.SCM_RIGHTS, length=100),
    "two": _control(socket.SOL_SOCKET, socket.SCM_RIGHTS) + _control(99, 1),
    "two, one wrong": _control(socket.SOL_SOCKET, socket.SCM_RIGHTS) + _control(socket.SOL_SOCKET, 99),
}
OF_DATAGRAMS = {"address": _control(socket.IPPROTO_IP, 8, bytes(12)), "class": _control(socket.IPPROTO_IP, 1)}


@script("calls")
def controls_that_are_not_for_this_socket(c: Calls) -> None:
    """A socket without a peer says that first."""
    s, peer = c.connected()
    listener = c.create()
    c.bind(listener, 0)
    c.do("listen", listener, 1)
    room = ctypes.create_string_buffer(256)
    at = ctypes.addressof(room)
    with udp_peer() as other:
        u, alone = datagram(c), datagram(c)
        c.connect(u, other.getsockname()[1])
        for name, control in (CONTROLS | OF_DATAGRAMS).items():
            room.raw = control + bytes(256 - len(control))
            made = header(at + 200, 4, control=at, control_bytes=len(control))
            for each in (s, listener, c.create(), alone, *([u] if name in CONTROLS else [])):
                n = c.do("sendmsg", each, ctypes.byref(made), NOW)
                c.note(name, (peer if each == s else other).recv(9).hex() if n > 0 else "")
        made = header(at + 200, 4, control=at, control_bytes=2**31 - 1)
        for each in (s, listener, u, alone):
            c.do("sendmsg", each, ctypes.byref(made), NOW)


@script("calls")
def addresses_of_no_bytes(c: Calls) -> None:
    """None for sendmsg(), and too short for sendto()."""
    room = ctypes.create_string_buffer(64)
    at = ctypes.addressof(room)
    s, peer = c.connected()
    with udp_peer() as other:
        u, six, alone = datagram(c), datagram(c, socket.AF_INET6), datagram(c)
        c.connect(u, other.getsockname()[1])
        c.connect(six, other.getsockname()[1], "::ffff:127.0.0.1")
        for each in (s, u, six, alone):
            n = c.do("sendmsg", each, ctypes.byref(header(at, 4, name=at, name_bytes=0)), NOW)
            c.note("peer", (peer if each == s else other).recv(9).hex() if n > 0 else "")
            n = c.do("sendto", each, b"four", 4, NOW, address(9), 0)
            c.note("peer", (peer if each == s else other).recv(9).hex() if n > 0 else "")


#: MSG_CMSG_COMPAT, which the kernel keeps for itself.
KERNELS_FLAG = ctypes.c_uint(1 << 31)


@script("calls")
def a_flag_that_is_the_kernels(c: Calls) -> None:
    """It is refused where there is a struct msghdr, before anything else is looked at, and means nothing elsewhere."""
    s, peer = c.connected()
    room = ctypes.create_string_buffer(64)
    made = header(ctypes.addressof(room), 4)
    several = (Message * 1)(Message(made, 0))
    with udp_peer() as other:
        u = datagram(c)
        c.connect(u, other.getsockname()[1])
        for each in (s, u):
            (peer.sendall if each == s else lambda data: other.sendto(data, c.name("getsockname", u)))(b"data")
            c.wait(each, select.POLLIN)
            c.do("recvmsg", each, ctypes.byref(made), KERNELS_FLAG)
            c.do("recvmmsg", each, several, 1, KERNELS_FLAG, None)
            c.do("sendmsg", each, ctypes.byref(made), KERNELS_FLAG)
            for count in (0, 1):
                c.do("sendmmsg", each, several, count, KERNELS_FLAG)
            c.do("send", each, room, 4, KERNELS_FLAG)
            c.do("recv", each, room, 4, KERNELS_FLAG)
            c.note("data", room.raw[:4].hex())


@script("calls")
def a_wait_without_room_for_a_byte(c: Calls) -> None:
    """Whatever ends it, its result is 0: it received all that it could."""
    s, peer = c.connected()
    room = ctypes.create_string_buffer(64)
    empty = header(ctypes.addressof(room), 0)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@2l", 0, 20_000))
    for flags in (0, socket.MSG_PEEK, socket.MSG_TRUNC, socket.MSG_WAITALL, socket.MSG_DONTWAIT):
        c.do("recv", s, room, 0, flags)
        c.do("recvmsg", s, ctypes.byref(empty), flags)
    c.do("recv", s, room, 1, 0)
    for part in (threading.Timer(0.05, peer.sendall, [b"data"]), threading.Timer(0.05, peer.close)):
        c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@2l", 0, 0))
        part.start()
        c.do("recv", s, room, 0, 0)
        part.join()
        c.recv(s, 10)
    u, _port = bound(c)
    c.set(u, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@2l", 0, 20_000))
    c.do("recv", u, room, 0, 0)
