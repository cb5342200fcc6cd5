"""What scripts about groups are made with: the values of Linux's options, and sockets. They run in a network namespace
with the interfaces of multicast_namespace.py."""

from __future__ import annotations

import ctypes
import os
import select
import socket
import struct

from beds.calls import DEADLINE_S, Calls, address

IP, IPV6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
IP_UNBLOCK_SOURCE, IP_BLOCK_SOURCE, IP_ADD_SOURCE, IP_DROP_SOURCE, IP_MSFILTER = 37, 38, 39, 40, 41
JOIN, BLOCK, UNBLOCK, LEAVE, JOIN_SOURCE, LEAVE_SOURCE, MSFILTER = 42, 43, 44, 45, 46, 47, 48
IP_PKTINFO, IP_MULTICAST_ALL, IPV6_MULTICAST_ALL = 8, 49, 29
GROUP, OTHER, GROUP6 = "239.7.7.1", "239.7.7.2", "ff15::7:1"
#: Of the namespace's interfaces (multicast_namespace.py).
MC0, MC1, MC0_V6 = "10.77.0.1", "10.77.1.1", "fd77::1"


def inet(text: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)


def mreq(group: str, interface: str | int = 0) -> bytes:
    """struct ip_mreq, or ip_mreqn where the interface is an index."""
    if isinstance(interface, str):
        return inet(group) + inet(interface)
    return inet(group) + bytes(4) + struct.pack("=i", interface)


def source4(group: str, source: str, interface: str = MC0) -> bytes:
    """struct ip_mreq_source"""
    return inet(group) + inet(interface) + inet(source)


def mreq6(group: str, interface: int) -> bytes:
    return inet(group) + struct.pack("=I", interface)


def storage(host: str) -> bytes:
    return address(0, host).ljust(128, b"\0")


def group_req(group: str, interface: int) -> bytes:
    return struct.pack("=Ixxxx", interface) + storage(group)


def source_req(group: str, source: str, interface: int) -> bytes:
    return group_req(group, interface) + storage(source)


def index(name: str) -> int:
    return socket.if_nametoindex(name)


def level_of(group: str) -> int:
    return IPV6 if ":" in group else IP


def datagram(c: Calls, family: int = socket.AF_INET) -> int:
    s = c.call("socket", family, socket.SOCK_DGRAM, 0)
    assert s >= 0, os.strerror(-s)
    c.opened.append(s)
    return s


def bound(c: Calls, host: str = "0.0.0.0", port: int = 0) -> tuple[int, int]:
    """Bound with SO_REUSEADDR; the socket and its port."""
    s = datagram(c, socket.AF_INET6 if ":" in host else socket.AF_INET)
    c.call("setsockopt", s, socket.SOL_SOCKET, socket.SO_REUSEADDR, struct.pack("=i", 1), 4)
    where = address(port, host)
    r = c.call("bind", s, where, len(where))
    assert r == 0, os.strerror(-r)
    buffer, length = ctypes.create_string_buffer(28), ctypes.c_uint(28)
    assert c.call("getsockname", s, buffer, ctypes.byref(length)) == 0
    return s, int(struct.unpack(">H", buffer.raw[2:4])[0])


def sender(source: str = MC0, name: str = "mc0") -> socket.socket:
    """A socket of the kernel's, that sends to groups out of an interface."""
    if ":" in source:
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        made.setsockopt(IPV6, socket.IPV6_MULTICAST_IF, index(name))
    else:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(IP, socket.IP_MULTICAST_IF, mreq("0.0.0.0", index(name)))
    made.bind((source, 0))
    made.settimeout(DEADLINE_S)
    return made


def expect(c: Calls, s: int, *words: str) -> None:
    """These come, and nothing else: the last datagram of a test is one that each socket gets."""
    for word in words:
        buffer = ctypes.create_string_buffer(64)
        c.wait(s, select.POLLIN)
        n = c.call("recv", s, buffer, 64, 0)
        c.note("received", buffer.raw[: max(n, 0)].decode())
        assert n == len(word), (n, buffer.raw, word)
    c.do("recv", s, ctypes.create_string_buffer(64), 64, socket.MSG_DONTWAIT)


def index_or_zero(name: str) -> int:
    """Of an interface that may not be here."""
    return dict((name, index) for index, name in socket.if_nameindex()).get(name, 0)
