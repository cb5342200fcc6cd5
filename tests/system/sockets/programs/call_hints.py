"""Scripts of calls: options that change nothing on an offloaded socket, and those that this host's kernel answers."""

from __future__ import annotations

import ctypes
import errno
import select
import socket
import struct
from typing import Any

from beds.calls import Calls
from beds.datagram_calls import datagram
from beds.libc_structs import Header, Vector
from beds.scripts import script

SOL, TCP, IP, IP6 = socket.SOL_SOCKET, socket.IPPROTO_TCP, socket.IPPROTO_IP, socket.IPPROTO_IPV6
TCP_INQ, TCP_CM_INQ, TCP_SAVE_SYN, TCP_SAVED_SYN = 36, 36, 27, 28

#: By number, as the kernel's headers have them.
HINTS = {
    "SO_BUSY_POLL": (SOL, 46), "SO_PREFER_BUSY_POLL": (SOL, 69), "SO_BUSY_POLL_BUDGET": (SOL, 70),
    "SO_TXREHASH": (SOL, 74), "SO_CNX_ADVICE": (SOL, 53), "SO_DEBUG": (SOL, 1),
    "SO_BUF_LOCK": (SOL, 72), "IP_FREEBIND": (IP, 15), "IP_PKTINFO": (IP, 8), "IP_RECVTOS": (IP, 13),
    "IP_RECVTTL": (IP, 12), "IP_RECVERR": (IP, 11), "SO_BSDCOMPAT": (SOL, 14), "SO_PASSCRED": (SOL, 16),
    "SO_PASSSEC": (SOL, 34), "SO_PASSPIDFD": (SOL, 76), "SO_PASSRIGHTS": (SOL, 83),
}  # fmt: skip
OF_STREAMS = {
    "SO_RXQ_OVFL": (SOL, 40), "SO_SELECT_ERR_QUEUE": (SOL, 45), "TCP_THIN_DUPACK": (TCP, 17), "TCP_INQ": (TCP, TCP_INQ),
    "TCP_SAVE_SYN": (TCP, TCP_SAVE_SYN), "IP_RECVOPTS": (IP, 6), "IP_RETOPTS": (IP, 7), "IP_RECVORIGDSTADDR": (IP, 20),
    "IP_CHECKSUM": (IP, 23), "IP_RECVFRAGSIZE": (IP, 25), "SO_RCVPRIORITY": (SOL, 82), "SO_WIFI_STATUS": (SOL, 41),
    "IP_PASSSEC": (IP, 18), "IP_MULTICAST_IF": (IP, 32), "IP_MULTICAST_TTL": (IP, 33), "IP_MULTICAST_LOOP": (IP, 34),
    "IP_MULTICAST_ALL": (IP, 49),
}  # fmt: skip
#: Off is what they are anyway.
OFF = {
    "SO_MARK": (SOL, 36), "SO_ZEROCOPY": (SOL, 60), "IP_TRANSPARENT": (IP, 19), "IP_UNICAST_IF": (IP, 50),
    "IP_LOCAL_PORT_RANGE": (IP, 51), "SO_TIMESTAMP": (SOL, 29), "SO_TIMESTAMPNS": (SOL, 35),
}  # fmt: skip
OF_SIX = {
    "IPV6_RECVPKTINFO": (IP6, 49), "IPV6_RECVHOPLIMIT": (IP6, 51), "IPV6_RECVTCLASS": (IP6, 66),
    "IPV6_RECVERR": (IP6, 25), "IPV6_FREEBIND": (IP6, 78), "IPV6_AUTOFLOWLABEL": (IP6, 70),
    "IPV6_ADDR_PREFERENCES": (IP6, 72), "IPV6_DONTFRAG": (IP6, 62), "IPV6_MULTICAST_IF": (IP6, 17),
    "IPV6_MULTICAST_HOPS": (IP6, 18), "IPV6_MULTICAST_LOOP": (IP6, 19), "IPV6_MULTICAST_ALL": (IP6, 29),
    "IPV6_2292PKTINFO": (IP6, 2), "IPV6_2292HOPLIMIT": (IP6, 8), "IPV6_2292RTHDR": (IP6, 5), "IPV6_FLOWINFO": (IP6, 11),
    "IPV6_2292HOPOPTS": (IP6, 3), "IPV6_2292DSTOPTS": (IP6, 4),
}  # fmt: skip
ANSWERED = {
    "SO_PEERCRED": (SOL, 17), "SO_INCOMING_NAPI_ID": (SOL, 56), "SO_NETNS_COOKIE": (SOL, 71),
    "SO_ORIGINAL_DST": (IP, 80), "IP_OPTIONS": (IP, 4), "SO_PEERGROUPS": (SOL, 59), "SO_PEERPIDFD": (SOL, 77),
    "SO_BPF_EXTENSIONS": (SOL, 48),
}  # fmt: skip


def _set_and_get(c: Calls, s: int, option: tuple[int, int], values: tuple[int | bytes, ...]) -> None:
    c.get(s, *option)
    for value in values:
        c.set(s, *option, value)
        for size in (0, 1, 4, 8):
            c.get(s, *option, size)


@script("calls")
def hints(c: Calls) -> None:
    for name, option in (HINTS | OF_STREAMS).items():
        (s, _peer), idle = c.connected(), c.create()
        for each in (s, idle):
            c.note(name, "")
            _set_and_get(c, each, option, (1, 0, 1, 7, -1, b"\1", b""))


@script("calls")
def which_processor(c: Calls) -> None:
    """(The kernel's own connection knows it without being told.)"""
    _set_and_get(c, c.create(), (SOL, 49), (1, 0, -1))


@script("calls")
def datagram_hints(c: Calls) -> None:
    for name in ("SO_BUSY_POLL", "SO_PREFER_BUSY_POLL", "SO_TXREHASH", "SO_CNX_ADVICE", "IP_FREEBIND"):
        c.note(name, "")
        _set_and_get(c, datagram(c), HINTS[name], (1, 0, 1, 7, -1, b"\1", b""))


@script("calls")
def hints_of_six(c: Calls) -> None:
    for name, option in OF_SIX.items():
        c.note(name, "")
        _set_and_get(c, c.create(socket.AF_INET6), option, (1, 0, 1, 2, -1, b"\1", b""))


@script("calls")
def what_prevents_is_off(c: Calls) -> None:
    for name, option in OFF.items():
        for s in (c.create(), c.connected()[0]):
            c.note(name, "")
            _set_and_get(c, s, option, (0, b"\0", b""))


@script("calls")
def answers_of_this_host(c: Calls) -> None:
    for name, option in ANSWERED.items():
        for s in (c.create(), c.connected()[0], datagram(c)):
            c.note(name, "")
            for size in (64, 12, 8, 4, 0):
                c.get(s, *option, size)
            if name != "IP_OPTIONS":  # a route, which the proxy refuses
                c.set(s, *option, 1)


@script("calls")
def whether_it_is_mptcp(c: Calls) -> None:
    for s in (c.create(), c.connected()[0]):
        for size in (8, 4, 1, 0):
            c.get(s, TCP, 43, size)


@script("calls")
def times_of_64_bits(c: Calls) -> None:
    """SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW, which programs for 32 bits use."""
    for new, old in ((66, 20), (67, 21)):
        for s in (c.create(), c.connected()[0], datagram(c)):
            c.set(s, SOL, new, struct.pack("qq", 1, 500000))
            for size in (16, 8, 4):
                c.get(s, SOL, new, size)
                c.get(s, SOL, old, size)
            c.set(s, SOL, new, 1)
            c.set(s, SOL, new, struct.pack("qq", 0, 2000000))


@script("calls")
def cookies(c: Calls) -> None:
    """Each socket's own, and always the same."""
    one, other = c.connected()[0], datagram(c)
    first = [c.get(s, SOL, 57, 8, record=False) for s in (one, other)]
    c.note("again", [c.get(s, SOL, 57, 8, record=False) for s in (one, other)] == first)
    c.note("own", first[0] != first[1] and all(first))
    c.get(one, SOL, 57, 4)
    c.get(one, SOL, 57, 16, record=False)


@script("calls")
def buffers_by_force(c: Calls) -> None:
    """Whoever may is given what SO_SNDBUF would give."""
    s = c.create()
    for option in (32, 33):
        c.get(s, SOL, option)
        c.note("set", c.call("setsockopt", s, SOL, option, struct.pack("=i", 20_000), 4) in (0, -errno.EPERM))


@script("calls")
def names_of_congestion_control(c: Calls) -> None:
    s, _peer = c.connected()
    for name in (b"no-such-one", b"reno", b"x", b""):
        c.set(s, TCP, socket.TCP_CONGESTION, name)


def _received(c: Calls, s: int, size: int) -> None:
    """recvmsg(2), with its control messages."""
    data, control = ctypes.create_string_buffer(size), ctypes.create_string_buffer(64)
    piece = Vector(ctypes.addressof(data), size)
    header = Header(None, 0, ctypes.pointer(piece), 1, ctypes.addressof(control), 64, 0)
    n = c.do("recvmsg", s, ctypes.byref(header), socket.MSG_DONTWAIT)
    items: Any = control.raw[: header.control_bytes].hex() if n >= 0 else ""
    c.note("control", items)


@script("calls")
def bytes_that_are_left(c: Calls) -> None:
    s, peer = c.connected()
    c.set(s, TCP, TCP_INQ, 1)
    c.set(s, TCP, TCP_INQ, 2)
    peer.sendall(b"0123456789")
    c.wait(s, select.POLLIN)
    for size in (1, 3, 6):
        _received(c, s, size)
    _received(c, s, 1)
    peer.sendall(b"x")
    peer.close()
    c.wait(s, select.POLLRDHUP)
    _received(c, s, 1)
    _received(c, s, 1)
    c.set(s, TCP, TCP_INQ, 0)
    _received(c, s, 1)


@script("calls")
def the_first_segment_is_saved(c: Calls) -> None:
    listener = c.create()
    c.bind(listener, 0)
    c.set(listener, TCP, TCP_SAVE_SYN, 1)
    c.set(listener, SOL, 46, 3)  # SO_BUSY_POLL, for whoever may
    c.do("listen", listener, 1)
    where, length = ctypes.create_string_buffer(28), ctypes.c_uint(28)
    assert c.call("getsockname", listener, where, ctypes.byref(length)) == 0
    with socket.create_connection(("127.0.0.1", struct.unpack(">H", where.raw[2:4])[0])):
        c.wait(listener, select.POLLIN)
        s = c.call("accept4", listener, None, None, 0)
        c.opened.append(s)
        c.get(s, SOL, 46)
        c.get(s, TCP, TCP_SAVE_SYN)
        saved, room = ctypes.create_string_buffer(200), ctypes.c_uint(200)
        c.do("getsockopt", s, TCP, TCP_SAVED_SYN, saved, ctypes.byref(room))
        c.note("saved", [room.value, saved.raw[12:16].hex(), saved.raw[33:34].hex()])  # from where, and the flag SYN
