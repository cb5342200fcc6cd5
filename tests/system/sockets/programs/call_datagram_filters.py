"""Scripts of calls: filters of datagram sockets (SO_ATTACH_FILTER). The peers are the kernel's, on this host."""

from __future__ import annotations

import ctypes
import socket
import struct

from beds.calls import Calls, errno
from beds.classic_bpf import (
    ALL,
    SO_ATTACH_FILTER,
    SO_DETACH_FILTER,
    SO_LOCK_FILTER,
    UDP_BYTES,
    Program,
    begins_with,
    instruction,
    jump,
    load_byte,
    of_length,
    ret,
)
from beds.datagram_calls import bound, datagram, recvfrom, udp_peer
from beds.datagram_control import controls
from beds.scripts import script

SO_RXQ_OVFL = 40


def _attach(c: Calls, s: int, program: Program, length: int | None = None) -> None:
    c.set(s, socket.SOL_SOCKET, SO_ATTACH_FILTER, program.raw, length)


def _show(c: Calls, s: int, room: int) -> None:
    """SO_GET_FILTER: its length counts instructions."""
    buffer, length = ctypes.create_string_buffer(8 * 64), ctypes.c_uint(room)
    r = c.call("getsockopt", s, socket.SOL_SOCKET, SO_ATTACH_FILTER, buffer, ctypes.byref(length))
    shown = buffer.raw[: 8 * length.value if room else 0].hex()
    c.note("filter", [errno.errorcode[-r] if r < 0 else r, length.value, shown])


@script("calls")
def datagram_filtered(c: Calls) -> None:
    s, port = bound(c)
    with udp_peer() as peer:

        def send(*words: bytes) -> None:
            for word in words:
                peer.sendto(word, ("127.0.0.1", port))

        _show(c, s, 64)
        _attach(c, s, Program(begins_with(b"a")))
        _show(c, s, 0)
        _show(c, s, 3)
        _show(c, s, 64)
        send(b"bird", b"ant", b"cat", b"", b"ape", b"dog")
        for _ in range(2):
            recvfrom(c, s, 20)
        recvfrom(c, s, 20, socket.MSG_DONTWAIT)
        _attach(c, s, Program(ret(UDP_BYTES + 3)))  # the first three bytes of each
        send(b"0123456789", b"ab")
        recvfrom(c, s, 20)
        recvfrom(c, s, 20)
        c.set(s, socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        send(b"unfiltered")
        recvfrom(c, s, 20)
        c.set(s, socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        _show(c, s, 64)


@script("calls")
def datagram_filter_locked(c: Calls) -> None:
    s, port = bound(c)
    c.get(s, socket.SOL_SOCKET, SO_LOCK_FILTER)
    _attach(c, s, Program(begins_with(b"a")))
    c.set(s, socket.SOL_SOCKET, SO_LOCK_FILTER, 1)
    c.get(s, socket.SOL_SOCKET, SO_LOCK_FILTER)
    _attach(c, s, Program(ret(ALL)))
    c.set(s, socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    c.set(s, socket.SOL_SOCKET, SO_LOCK_FILTER, 0)
    c.set(s, socket.SOL_SOCKET, SO_LOCK_FILTER, 1)
    with udp_peer() as peer:
        peer.sendto(b"dropped", ("127.0.0.1", port))
        peer.sendto(b"and this not", ("127.0.0.1", port))
        recvfrom(c, s, 20)
    _show(c, s, 64)


@script("calls")
def datagram_filters_refused(c: Calls) -> None:
    s = datagram(c)
    for wrong in (
        b"", load_byte(0), jump(1) + ret(ALL), instruction(0x15, 1, 5, 5) + ret(ALL), instruction(0xFFFF, 0) + ret(0),
        instruction(0x34, 0) + ret(0),  # divides by zero
        instruction(0x60, 16) + ret(0),  # a cell of memory that is not there
    ):  # fmt: skip
        _attach(c, s, Program(wrong))
    good = Program(ret(ALL))
    _attach(c, s, good, 8)
    _attach(c, s, good, 2)
    _attach(c, s, Program(ret(ALL), 4097))
    c.set(s, socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("=H6xQ", 1, 0))
    c.set(s, socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    c.set(s, socket.SOL_SOCKET, SO_DETACH_FILTER, b"\1")
    _attach(c, s, Program(of_length(256)))
    _show(c, s, 0)


@script("calls")
def datagram_filter_counts(c: Calls) -> None:
    """What it drops counts as dropped (SO_RXQ_OVFL)."""
    s, port = bound(c)
    c.set(s, socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
    _attach(c, s, Program(begins_with(b"a")))
    with udp_peer() as peer:
        for word in (*[b"bird"] * 7, b"ant"):
            peer.sendto(word, ("127.0.0.1", port))
        c.note("control", [[level, kind, value.hex()] for level, kind, value in controls(c, s)])


@script("calls")
def datagram_filtered_v6(c: Calls) -> None:
    s, port = bound(c, "::1")
    _attach(c, s, Program(begins_with(b"a")))
    with udp_peer("::1") as peer:
        for word in (b"bird", b"ant"):
            peer.sendto(word, ("::1", port))
        recvfrom(c, s, 20)
        recvfrom(c, s, 20, socket.MSG_DONTWAIT)
