"""Scripts of calls: joining groups, leaving them, filters, the options of senders."""

from __future__ import annotations

import ctypes
import socket
import struct

from beds.calls import Calls
from beds.groups import (
    BLOCK,
    GROUP,
    GROUP6,
    IP,
    IP_ADD_SOURCE,
    IP_BLOCK_SOURCE,
    IP_DROP_SOURCE,
    IP_MSFILTER,
    IP_MULTICAST_ALL,
    IP_UNBLOCK_SOURCE,
    IPV6,
    IPV6_MULTICAST_ALL,
    JOIN,
    JOIN_SOURCE,
    LEAVE,
    LEAVE_SOURCE,
    MC0,
    MC1,
    MSFILTER,
    OTHER,
    UNBLOCK,
    datagram,
    group_req,
    index,
    inet,
    level_of,
    mreq,
    mreq6,
    source4,
    source_req,
    storage,
)
from beds.scripts import script


@script("multicast")
def errors_of_membership(c: Calls) -> None:
    s = datagram(c)
    add, drop = socket.IP_ADD_MEMBERSHIP, socket.IP_DROP_MEMBERSHIP
    c.set(s, IP, add, mreq(GROUP, MC0))
    c.set(s, IP, add, mreq(GROUP, MC0))
    c.set(s, IP, add, mreq(GROUP, index("mc0")))
    c.set(s, IP, add, mreq(GROUP, MC1))
    c.set(s, IP, drop, mreq(GROUP, "0.0.0.0"))
    c.set(s, IP, drop, mreq(GROUP, MC1))
    c.set(s, IP, drop, mreq(GROUP, MC1))
    c.set(s, IP, drop, mreq(OTHER, MC0))
    c.set(s, IP, add, mreq("10.1.1.1", MC0))
    c.set(s, IP, drop, mreq("10.1.1.1", MC0))
    c.set(s, IP, add, mreq(GROUP, "10.99.9.9"))
    c.set(s, IP, add, mreq(GROUP, 4711))
    c.set(s, IP, drop, mreq(GROUP, 4711))
    for option in (add, drop):
        c.set(s, IP, option, mreq(GROUP, MC0), 7)
        c.set(s, IP, option, b"")
        c.set(s, IP, option, mreq(GROUP, MC0) + bytes(100))
    c.set(s, IPV6, socket.IPV6_JOIN_GROUP, mreq6(GROUP6, index("mc0")))
    c.get(s, IP, add)


@script("multicast")
def errors_of_membership_v6(c: Calls) -> None:
    s, mc0 = datagram(c, socket.AF_INET6), index("mc0")
    join, leave = socket.IPV6_JOIN_GROUP, socket.IPV6_LEAVE_GROUP
    c.set(s, IPV6, join, mreq6(GROUP6, mc0))
    c.set(s, IPV6, join, mreq6(GROUP6, mc0))
    c.set(s, IPV6, leave, mreq6(GROUP6, index("mc1")))
    c.set(s, IPV6, leave, mreq6(GROUP6, mc0))
    c.set(s, IPV6, leave, mreq6(GROUP6, mc0))
    c.set(s, IPV6, join, mreq6("fd77::1", mc0))
    c.set(s, IPV6, leave, mreq6("fd77::1", mc0))
    c.set(s, IPV6, join, mreq6(GROUP6, 4711))
    c.set(s, IPV6, join, mreq6(GROUP6, mc0), 19)
    c.set(s, IPV6, join, mreq6(GROUP6, 0))
    c.set(s, IPV6, leave, mreq6(GROUP6, 0))
    c.set(s, IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP, MC0))  # a socket of both families
    c.set(s, IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP, MC0))


@script("multicast")
def errors_of_groups(c: Calls) -> None:
    """The protocol-independent options."""
    mc0 = index("mc0")
    for family, group, other in ((socket.AF_INET, GROUP, GROUP6), (socket.AF_INET6, GROUP6, GROUP)):
        s, level = datagram(c, family), level_of(group)
        c.set(s, level, JOIN, group_req(group, mc0))
        c.set(s, level, JOIN, group_req(group, mc0))
        c.set(s, level, JOIN, group_req(other, mc0))
        c.set(s, level, LEAVE, group_req(other, mc0))
        c.set(s, level, JOIN, group_req(group, mc0), 100)
        c.set(s, level, JOIN, group_req(group, 4711))
        c.set(s, level, LEAVE, group_req(group, mc0))
        c.set(s, level, LEAVE, group_req(group, mc0))


@script("multicast")
def errors_of_sources(c: Calls) -> None:
    mc0 = index("mc0")
    for family, group, ones in (
        (socket.AF_INET, GROUP, ("10.77.0.8", "10.77.0.9")),
        (socket.AF_INET6, GROUP6, ("fd77::8", "fd77::9")),
    ):
        s, level = datagram(c, family), level_of(group)
        first, second = (source_req(group, one, mc0) for one in ones)
        for option, value in (
            (BLOCK, first), (LEAVE_SOURCE, first), (JOIN_SOURCE, first), (JOIN_SOURCE, first), (JOIN_SOURCE, second),
            (BLOCK, first), (UNBLOCK, first), (LEAVE_SOURCE, first), (LEAVE_SOURCE, second), (LEAVE_SOURCE, second),
            (JOIN_SOURCE, first[:200]), (JOIN_SOURCE, source_req(group, "::1" if level == IP else "10.1.1.1", mc0)),
        ):  # fmt: skip
            c.set(s, level, option, value)
        c.set(s, level, JOIN, group_req(group, mc0))
        for option, value in ((BLOCK, first), (BLOCK, first), (UNBLOCK, second), (UNBLOCK, first), (UNBLOCK, first)):
            c.set(s, level, option, value)
        c.set(s, level, LEAVE, group_req(group, mc0))


@script("multicast")
def errors_of_old_sources(c: Calls) -> None:
    s, one, two = datagram(c), source4(GROUP, "10.77.0.8"), source4(GROUP, "10.77.0.9")
    for option, value in (
        (IP_BLOCK_SOURCE, one), (IP_DROP_SOURCE, one), (IP_ADD_SOURCE, one), (IP_ADD_SOURCE, one), (IP_ADD_SOURCE, two),
        (IP_BLOCK_SOURCE, one), (IP_DROP_SOURCE, one), (IP_DROP_SOURCE, two), (IP_DROP_SOURCE, two),
        (IP_ADD_SOURCE, one[:11]), (IP_ADD_SOURCE, one + b"x"), (socket.IP_ADD_MEMBERSHIP, mreq(GROUP, MC0)),
        (IP_BLOCK_SOURCE, one), (IP_BLOCK_SOURCE, one), (IP_UNBLOCK_SOURCE, two), (IP_UNBLOCK_SOURCE, one),
    ):  # fmt: skip
        c.set(s, IP, option, value)


@script("multicast")
def most_memberships(c: Calls) -> None:
    """net.ipv4.igmp_max_memberships and igmp_max_msf are 20 and 10 by default; the test leaves them so."""
    s, many = datagram(c), datagram(c)
    for number in range(22):
        c.set(s, IP, socket.IP_ADD_MEMBERSHIP, mreq(f"239.7.8.{number}", MC0))
    c.set(s, IP, socket.IP_DROP_MEMBERSHIP, mreq("239.7.8.3", MC0))
    c.set(s, IP, socket.IP_ADD_MEMBERSHIP, mreq("239.7.9.1", MC0))
    for number in range(12):
        c.set(many, IP, IP_ADD_SOURCE, source4(GROUP, f"10.77.0.{number + 20}"))


def _filter(c: Calls, s: int, group: str) -> None:
    """getsockopt(MCAST_MSFILTER): the head of struct group_filter."""
    head = struct.pack("=Ixxxx", index("mc0")) + storage(group) + struct.pack("=II", 0, 0)
    buffer, length = ctypes.create_string_buffer(head, len(head)), ctypes.c_uint(len(head))
    r = c.do("getsockopt", s, level_of(group), MSFILTER, buffer, ctypes.byref(length))
    if r == 0:
        c.note("filter", [length.value, *struct.unpack("=II", buffer.raw[136:144])])


@script("multicast")
def whole_filters(c: Calls) -> None:
    for family, group, source in ((socket.AF_INET, GROUP, "10.77.0.8"), (socket.AF_INET6, GROUP6, "fd77::8")):
        s, level = datagram(c, family), level_of(group)
        head = struct.pack("=Ixxxx", index("mc0")) + storage(group)
        include, exclude = (head + struct.pack("=II", mode, 1) + storage(source) for mode in (1, 0))
        _filter(c, s, group)
        c.set(s, level, MSFILTER, include)
        c.set(s, level, JOIN, group_req(group, index("mc0")))
        _filter(c, s, group)
        too_few = head + struct.pack("=II", 1, 2) + storage(source)
        for value in (include, exclude, include[:144], include[:100], too_few):
            c.set(s, level, MSFILTER, value)
            _filter(c, s, group)
    s = datagram(c)
    c.set(s, IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP, MC0))
    c.set(s, IP, IP_MSFILTER, inet(GROUP) + inet(MC0) + struct.pack("=II", 1, 1) + inet("10.77.0.8"))
    _filter(c, s, GROUP)


@script("multicast")
def options_of_senders(c: Calls) -> None:
    s = datagram(c)
    for option, values in (
        (socket.IP_MULTICAST_TTL, (1, 0, 255, 256, -1, -2, b"\x07", b"")),
        (socket.IP_MULTICAST_LOOP, (0, 1, 7, b"\0", b"")),
        (IP_MULTICAST_ALL, (0, 1, 2, b"\0", b"\1", b"")),
        (
            socket.IP_MULTICAST_IF,
            (
                inet(MC0), inet("10.99.9.9"), inet("0.0.0.0"), mreq(GROUP, MC1), mreq(GROUP, index("mc0")),
                mreq(GROUP, 4711), b"\1\2", inet("127.0.0.1"),
            ),
        ),
    ):  # fmt: skip
        c.get(s, IP, option)
        for value in values:
            c.set(s, IP, option, value)
            c.get(s, IP, option)
        c.get(s, IP, option, 1)


@script("multicast")
def options_of_senders_v6(c: Calls) -> None:
    s = datagram(c, socket.AF_INET6)
    for option, values in (
        (socket.IPV6_MULTICAST_HOPS, (1, 0, 255, 256, -1, -2, b"\x07")),
        (socket.IPV6_MULTICAST_LOOP, (0, 1, 7, b"\0")),
        (IPV6_MULTICAST_ALL, (0, 1, 2, b"\0")),
        (socket.IPV6_MULTICAST_IF, (index("mc0"), 4711, 0, b"\0", 1)),
    ):
        c.get(s, IPV6, option)
        for value in values:
            c.set(s, IPV6, option, value)
            c.get(s, IPV6, option)
    four = datagram(c)
    c.set(four, IPV6, socket.IPV6_MULTICAST_HOPS, 3)
    c.set(four, IPV6, IPV6_MULTICAST_ALL, 1)
    c.get(four, IPV6, IPV6_MULTICAST_ALL)
