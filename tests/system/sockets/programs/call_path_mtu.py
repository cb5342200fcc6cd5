"""Scripts of calls: datagrams that are longer than what an interface carries. In the network of multicast_namespace.py,
where that is 1,500 bytes."""

from __future__ import annotations

import ctypes
import errno
import socket

from beds.calls import Calls, until
from beds.datagram_control import message
from beds.groups import GROUP, GROUP6, IP, IPV6, MC0, datagram, index, inet, level_of
from beds.scripts import script
from system.sockets.programs.call_groups import member

#: IP_MTU_DISCOVER, IP_MTU, IP_RECVERR; and those of IPv6.
OPTIONS = {IP: (10, 14, 11), IPV6: (23, 24, 25)}
DONT, WANT, DO, PROBE, INTERFACE, OMIT = range(6)
LONG = 3000


def _refused(c: Calls, s: int, size: int) -> None:
    """The kernel's send() fails where with an offloaded socket the error is pending a moment later."""
    result = c.call("send", s, bytes(size), size, 0)
    if result == size:
        c.wait_error(s)
        number, length = ctypes.c_int(), ctypes.c_uint(4)
        c.call("getsockopt", s, socket.SOL_SOCKET, socket.SO_ERROR, ctypes.byref(number), ctypes.byref(length))
        result = -number.value
    c.note(f"{size} bytes", result if result >= 0 else errno.errorcode[-result])


def _longer_than_the_path(c: Calls, group: str) -> None:
    level, s = level_of(group), datagram(c, socket.AF_INET6 if ":" in group else socket.AF_INET)
    discover, mtu, recverr = OPTIONS[level]
    if level == IP:
        c.set(s, IP, socket.IP_MULTICAST_IF, inet(MC0))
    else:
        c.set(s, IPV6, socket.IPV6_MULTICAST_IF, index("mc0"))
    fits = 1500 - (28 if level == IP else 48)
    with member(group, "mc0") as peer:
        c.connect(s, peer.getsockname()[1], group)
        c.get(s, level, mtu)
        for value in (DONT, WANT, OMIT):
            c.set(s, level, discover, value)
            c.send(s, bytes(LONG))
            c.note("received", len(peer.recv(4000)))
        for value in (DO, PROBE, INTERFACE):
            c.set(s, level, discover, value)
            c.send(s, bytes(fits))
            c.note("received", len(peer.recv(4000)))
            _refused(c, s, fits + 1)
        c.set(s, level, recverr, 1)
        c.set(s, level, discover, DO)
        _refused(c, s, LONG)
        before = len(c.trace)

        def has_come() -> bool:
            del c.trace[before:]
            message(c, s, 100, socket.MSG_ERRQUEUE)
            return bool(c.trace[before] != ["recvmsg", "EAGAIN"])

        until(has_come)


@script("multicast")
def longer_than_the_path(c: Calls) -> None:
    """IP_MTU_DISCOVER, with what each value makes of a datagram; IP_MTU, and the entry of the error queue."""
    _longer_than_the_path(c, GROUP)


@script("multicast")
def longer_than_the_path_v6(c: Calls) -> None:
    _longer_than_the_path(c, GROUP6)
