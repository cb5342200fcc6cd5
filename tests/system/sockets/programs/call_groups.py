"""Scripts of calls: datagrams from groups and to them."""

from __future__ import annotations

import ctypes
import select
import socket
import struct

from beds.calls import DEADLINE_S, Calls, address
from beds.groups import (
    GROUP,
    GROUP6,
    IP,
    IP_BLOCK_SOURCE,
    IP_MULTICAST_ALL,
    IP_PKTINFO,
    IP_UNBLOCK_SOURCE,
    IPV6,
    IPV6_MULTICAST_ALL,
    JOIN,
    JOIN_SOURCE,
    LEAVE,
    LEAVE_SOURCE,
    MC0,
    MC0_V6,
    MC1,
    OTHER,
    bound,
    datagram,
    expect,
    group_req,
    index,
    inet,
    level_of,
    mreq,
    mreq6,
    sender,
    source4,
    source_req,
)
from beds.libc_structs import Header, Vector
from beds.scripts import script


def _receives(c: Calls, anywhere: str, group: str, value: bytes, options: tuple[int, int]) -> None:
    """`value`: of both options, for joining and leaving."""
    source = MC0_V6 if ":" in group else MC0
    s, port = bound(c, anywhere)
    own, port_of_own = bound(c, group, port)
    assert port == port_of_own
    level = level_of(group)
    with sender(source) as peer:
        peer.sendto(b"nobody", (group, port))
        c.set(s, level, options[0], value)
        peer.sendto(b"one", (group, port))
        expect(c, s, "one")
        c.set(own, level, options[0], value)
        peer.sendto(b"both", (group, port))
        expect(c, s, "both")
        c.note("second", True)
        buffer = ctypes.create_string_buffer(64)
        c.wait(own, select.POLLIN)
        while c.call("recv", own, buffer, 64, socket.MSG_DONTWAIT) != 4:
            pass  # "one": IP_MULTICAST_ALL
        c.set(own, level, options[1], value)
        c.set(s, level, options[1], value)
        peer.sendto(b"nobody", (group, port))
        peer.sendto(b"direct", (source, port))
        expect(c, s, "direct")


@script("multicast")
def group_is_received(c: Calls) -> None:
    options = (socket.IP_ADD_MEMBERSHIP, socket.IP_DROP_MEMBERSHIP)
    _receives(c, "0.0.0.0", GROUP, mreq(GROUP, MC0), options)


@script("multicast")
def group_is_received_by_index(c: Calls) -> None:
    _receives(c, "0.0.0.0", GROUP, group_req(GROUP, index("mc0")), (JOIN, LEAVE))


@script("multicast")
def group_is_received_v6(c: Calls) -> None:
    options = (socket.IPV6_JOIN_GROUP, socket.IPV6_LEAVE_GROUP)
    _receives(c, "::", GROUP6, mreq6(GROUP6, index("mc0")), options)


@script("multicast")
def joined_before_bound(c: Calls) -> None:
    s = datagram(c)
    for number in range(18):
        c.set(s, IP, JOIN, group_req(f"239.7.9.{number}", index("mc0")))
    c.set(s, IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP, MC0))
    c.set(s, IP, LEAVE, group_req("239.7.9.3", index("mc0")))
    c.bind(s, 0, "0.0.0.0")
    name = c.name("getsockname", s)
    assert name
    with sender() as peer:
        for group in ("239.7.9.3", "239.7.9.17", GROUP):
            peer.sendto(group.encode(), (group, name[1]))
        expect(c, s, "239.7.9.17", GROUP)


@script("multicast")
def interfaces_are_apart(c: Calls) -> None:
    """Joined on one interface: what comes by another is not received."""
    s, port = bound(c)
    c.set(s, IP, IP_MULTICAST_ALL, 0)
    c.set(s, IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP, MC0))
    with sender() as zero, sender(MC1, "mc1") as one:
        one.sendto(b"not here", (GROUP, port))
        zero.sendto(b"here", (GROUP, port))
        zero.sendto(b"no member", (OTHER, port))
        zero.sendto(b"direct", (MC0, port))
        expect(c, s, "here", "direct")


@script("multicast")
def sources_are_filtered(c: Calls) -> None:
    only, port = bound(c)
    but, _ = bound(c, port=port)
    c.set(only, IP, JOIN_SOURCE, source_req(GROUP, MC0, index("mc0")))
    c.set(but, IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP, MC0))
    c.set(but, IP, IP_BLOCK_SOURCE, source4(GROUP, MC0))
    with sender() as one, sender("10.77.0.2") as two:
        one.sendto(b"first", (GROUP, port))
        two.sendto(b"second", (GROUP, port))
        one.sendto(b"third", (GROUP, port))
        expect(c, only, "first", "third")
        expect(c, but, "second")
        c.set(but, IP, IP_UNBLOCK_SOURCE, source4(GROUP, MC0))
        c.set(only, IP, LEAVE_SOURCE, source_req(GROUP, MC0, index("mc0")))
        c.set(only, IP, IP_MULTICAST_ALL, 0)
        one.sendto(b"fourth", (GROUP, port))
        expect(c, but, "fourth")
        c.do("recv", only, ctypes.create_string_buffer(64), 64, socket.MSG_DONTWAIT)


@script("multicast")
def all_groups_of_the_machine(c: Calls) -> None:
    """IP_MULTICAST_ALL, the default: a socket that has joined nothing gets what another has joined."""
    everything, port = bound(c)
    member, _ = bound(c, port=port)
    nothing, _ = bound(c, port=port)
    c.set(nothing, IP, IP_MULTICAST_ALL, 0)
    for s in (everything, nothing):
        c.get(s, IP, IP_PKTINFO)
        c.get(s, IP, IP_MULTICAST_ALL)
    with sender() as peer, sender(MC1, "mc1") as one:
        c.set(member, IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP, MC0))
        one.sendto(b"elsewhere", (GROUP, port))
        peer.sendto(b"to all", (GROUP, port))
        expect(c, everything, "to all")
        expect(c, member, "to all")
        for s in (everything, nothing):
            c.get(s, IP, IP_PKTINFO)
            c.get(s, IP, IP_MULTICAST_ALL)
        c.set(everything, IP, IP_MULTICAST_ALL, 0)
        peer.sendto(b"again", (GROUP, port))
        expect(c, member, "again")
        c.close(member)
        c.set(nothing, IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP, MC0))
        peer.sendto(b"last", (GROUP, port))
        expect(c, nothing, "last")
        c.do("recv", everything, ctypes.create_string_buffer(64), 64, socket.MSG_DONTWAIT)


@script("multicast")
def all_groups_of_the_machine_v6(c: Calls) -> None:
    everything, port = bound(c, "::")
    member, _ = bound(c, "::", port)
    nothing, _ = bound(c, "::", port)
    c.set(nothing, IPV6, IPV6_MULTICAST_ALL, 0)
    with sender(MC0_V6) as peer:
        c.set(member, IPV6, JOIN, group_req(GROUP6, index("mc0")))
        peer.sendto(b"to all", (GROUP6, port))
        expect(c, everything, "to all")
        expect(c, member, "to all")
        c.do("recv", nothing, ctypes.create_string_buffer(64), 64, socket.MSG_DONTWAIT)
    with sender() as peer:
        c.set(member, IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP, MC0))
        c.get(everything, IP, IP_MULTICAST_ALL)
        peer.sendto(b"members", (GROUP, port))
        expect(c, member, "members")
        c.do("recv", everything, ctypes.create_string_buffer(64), 64, socket.MSG_DONTWAIT)
        c.set(everything, IP, IP_MULTICAST_ALL, 1)
        peer.sendto(b"everybody", (GROUP, port))
        expect(c, everything, "everybody")
        expect(c, member, "everybody")


def _control(c: Calls, s: int) -> None:
    """recvmsg(2): control data; the interface by its name."""
    data, control = ctypes.create_string_buffer(64), ctypes.create_string_buffer(256)
    vector = Vector(ctypes.addressof(data), 64)
    header = Header(None, 0, ctypes.pointer(vector), 1, ctypes.addressof(control), 256, 0)
    c.wait(s, select.POLLIN)
    c.do("recvmsg", s, ctypes.byref(header), 0)
    at = 0
    while at + 16 <= header.control_bytes:
        length, level, kind = struct.unpack_from("=Qii", control, at)
        c.note("control", [level, kind, control.raw[at + 16 : at + length].hex()])
        at += length + -length % 8


@script("multicast")
def destination_is_told(c: Calls) -> None:
    s, port = bound(c)
    six, port6 = bound(c, "::")
    c.set(s, IP, IP_PKTINFO, 1)
    c.set(six, IPV6, socket.IPV6_RECVPKTINFO, 1)
    c.set(s, IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP, MC0))
    c.set(six, IPV6, socket.IPV6_JOIN_GROUP, mreq6(GROUP6, index("mc0")))
    with sender() as peer, sender(MC0_V6) as peer6:
        peer.sendto(b"x", (GROUP, port))
        _control(c, s)
        peer6.sendto(b"x", (GROUP6, port6))
        _control(c, six)
        c.set(s, IP, IP_PKTINFO, 0)
        c.set(six, IPV6, socket.IPV6_RECVPKTINFO, 0)
        peer.sendto(b"x", (GROUP, port))
        _control(c, s)
        peer6.sendto(b"x", (GROUP6, port6))
        _control(c, six)


def member(group: str, name: str) -> socket.socket:
    """A socket of the kernel's that has joined the group."""
    made = socket.socket(socket.AF_INET6 if ":" in group else socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("::" if ":" in group else "0.0.0.0", 0))
    made.setsockopt(level_of(group), JOIN, group_req(group, index(name)))
    made.setsockopt(IP, 12, 1)  # IP_RECVTTL
    made.settimeout(DEADLINE_S)
    return made


def _sendto(c: Calls, s: int, data: bytes, port: int, host: str) -> None:
    """`host` may have the name of an interface: `ff02::1%mc0`."""
    plain, _, scope = host.partition("%")
    where = address(port, plain)
    if scope:
        where = where[:24] + struct.pack("=I", index(scope))
    c.do("sendto", s, data, len(data), 0, where, len(where))


@script("multicast")
def sent_to_a_group(c: Calls) -> None:
    s = datagram(c)
    with member(GROUP, "mc0") as zero, member(GROUP, "mc1") as one:
        for value, peer in ((inet(MC0), zero), (mreq(GROUP, index("mc1")), one)):
            c.set(s, IP, socket.IP_MULTICAST_IF, value)
            c.set(s, IP, socket.IP_MULTICAST_TTL, 5)
            _sendto(c, s, b"by option", peer.getsockname()[1], GROUP)
            data, control, _, source = peer.recvmsg(100, 100)
            c.note("peer", [data.decode(), control[0][2].hex(), source[0]])
        # An interface that comes with the datagram goes before that of the option.
        text, where = ctypes.create_string_buffer(b"by datagram"), address(zero.getsockname()[1], GROUP)
        name = ctypes.create_string_buffer(where, len(where))
        info = struct.pack("=i", index("mc0")) + bytes(8)
        extra = ctypes.create_string_buffer(struct.pack("=Qii", 16 + len(info), IP, IP_PKTINFO) + info + bytes(4), 32)
        vector = Vector(ctypes.addressof(text), 11)
        header = Header(ctypes.addressof(name), 16, ctypes.pointer(vector), 1, ctypes.addressof(extra), 32, 0)
        c.do("sendmsg", s, ctypes.byref(header), 0)
        c.note("peer", zero.recv(100).decode())
        c.connect(s, zero.getsockname()[1], GROUP)
        c.set(s, IP, socket.IP_MULTICAST_IF, inet(MC0))
        c.do("send", s, b"connected", 9, 0)


@script("multicast")
def sent_to_a_group_v6(c: Calls) -> None:
    s = datagram(c, socket.AF_INET6)
    with member(GROUP6, "mc0") as zero, member("ff02::7:7", "mc1") as one:
        c.set(s, IPV6, socket.IPV6_MULTICAST_IF, index("mc0"))
        _sendto(c, s, b"by option", zero.getsockname()[1], GROUP6)
        c.note("peer", zero.recv(100).decode())
        c.set(s, IPV6, socket.IPV6_MULTICAST_IF, 0)
        _sendto(c, s, b"by scope", one.getsockname()[1], "ff02::7:7%mc1")
        c.note("peer", one.recv(100).decode())


@script("multicast")
def own_datagrams_come_back(c: Calls) -> None:
    """IP_MULTICAST_LOOP is the sender's."""
    s, port = bound(c)
    c.set(s, IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP, MC0))
    c.set(s, IP, socket.IP_MULTICAST_IF, inet(MC0))
    _sendto(c, s, b"looped", port, GROUP)
    expect(c, s, "looped")
    c.set(s, IP, socket.IP_MULTICAST_LOOP, 0)
    _sendto(c, s, b"not looped", port, GROUP)
    c.set(s, IP, socket.IP_MULTICAST_LOOP, 1)
    _sendto(c, s, b"again", port, GROUP)
    expect(c, s, "again")


@script("multicast")
def streams_join_nothing(c: Calls) -> None:
    s = c.create()
    assert c.call("setsockopt", s, IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP, MC0), 8) < 0
