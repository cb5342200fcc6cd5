"""Scripts of calls: datagram sockets. The peers are the kernel's, on this host."""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import socket
import struct
import threading
import time
from typing import Any

from beds.calls import DEADLINE_S, SIOCOUTQ, Calls, address, until
from beds.libc_structs import Header, Vector
from beds.scripts import script

FIONREAD = 0x541B
ALL = 0x2047 | select.POLLOUT
UDP_SEGMENT, IP_PKTINFO, IP_RECVTTL, IP_RECVTOS = 103, 8, 12, 13
NOWHERE = struct.pack("=H", socket.AF_UNSPEC) + bytes(14)


def _datagram(c: Calls, family: int = socket.AF_INET, flags: int = 0) -> int:
    s = c.call("socket", family, socket.SOCK_DGRAM | flags, 0)
    assert s >= 0, os.strerror(-s)
    c.opened.append(s)
    return s


def _peer(host: str = "127.0.0.1") -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(DEADLINE_S)
    made.bind((host, 0))
    return made


def _port(c: Calls, s: int) -> int:
    """Of a socket that is bound; not recorded."""
    buffer, length = ctypes.create_string_buffer(28), ctypes.c_uint(28)
    assert c.call("getsockname", s, buffer, ctypes.byref(length)) == 0
    return int(struct.unpack(">H", buffer.raw[2:4])[0])


def _bound(c: Calls, host: str = "127.0.0.1") -> tuple[int, int]:
    """A bound socket of this side, and its port."""
    s = _datagram(c, socket.AF_INET6 if ":" in host else socket.AF_INET)
    where = address(0, host)
    assert c.call("bind", s, where, len(where)) == 0
    return s, _port(c, s)


def _sendto(c: Calls, s: int, data: bytes, port: int, host: str = "127.0.0.1") -> int:
    where = address(port, host)
    return c.do("sendto", s, data, len(data), 0, where, len(where))


def _recvfrom(c: Calls, s: int, size: int, flags: int = 0) -> bytes:
    data, where, length = ctypes.create_string_buffer(max(size, 1)), ctypes.create_string_buffer(28), ctypes.c_uint(28)
    n = c.do("recvfrom", s, data, size, flags, where, ctypes.byref(length))
    family = struct.unpack("=H", where.raw[:2])[0]
    c.note("from", [length.value, family, where.raw[4:8].hex() if family == socket.AF_INET else where.raw[8:24].hex()])
    got = data.raw[: min(max(n, 0), size)]
    c.note("data", got.hex() if len(got) <= 64 else len(got))
    return got


def _pending(c: Calls, s: int) -> int:
    number = ctypes.c_int(-1)
    c.do("ioctl", s, ctypes.c_ulong(FIONREAD), ctypes.byref(number))
    c.note("FIONREAD", number.value)
    return number.value


def _exchange(c: Calls, host: str) -> None:
    s, port = _bound(c, host)
    with _peer(host) as peer:
        c.name("getsockname", s)
        c.name("getpeername", s)
        for data in (b"one", b"", b"x" * 1000, os.urandom(20_000), os.urandom(60_000)):
            _sendto(c, s, data, peer.getsockname()[1], host)
            got, source = peer.recvfrom(70_000)
            c.note("peer", [got == data, source[0], source[1] == port])
            peer.sendto(data[::-1], (host, port))
            c.note("reversed", _recvfrom(c, s, 70_000) == data[::-1])
        c.close(s)


@script("calls")
def datagrams_both_ways(c: Calls) -> None:
    _exchange(c, "127.0.0.1")


@script("calls")
def datagrams_both_ways_v6(c: Calls) -> None:
    _exchange(c, "::1")


@script("calls")
def datagram_truncated(c: Calls) -> None:
    s, port = _bound(c)
    with _peer() as peer:
        for word in (b"0123456789", b"abcdefghij", b"ABCDEFGHIJ", b"", b"last"):
            peer.sendto(word, ("127.0.0.1", port))
        c.wait(s, select.POLLIN)
        _recvfrom(c, s, 4)
        _recvfrom(c, s, 4, socket.MSG_TRUNC)
        _recvfrom(c, s, 0)
        _recvfrom(c, s, 4)
        _recvfrom(c, s, 10)
        _recvfrom(c, s, 10, socket.MSG_DONTWAIT)


@script("calls")
def datagram_peeked(c: Calls) -> None:
    s, port = _bound(c)
    with _peer() as peer:
        _recvfrom(c, s, 4, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        peer.sendto(b"0123456789", ("127.0.0.1", port))
        c.wait(s, select.POLLIN)
        _pending(c, s)
        _recvfrom(c, s, 4, socket.MSG_PEEK)
        _recvfrom(c, s, 0, socket.MSG_PEEK | socket.MSG_TRUNC)
        _recvfrom(c, s, 20, socket.MSG_PEEK | socket.MSG_WAITALL)
        _recvfrom(c, s, 20)
        _pending(c, s)
        peer.sendto(b"", ("127.0.0.1", port))
        c.wait(s, select.POLLIN)
        _pending(c, s)
        c.events(s, ALL)
        _recvfrom(c, s, 20)
        c.events(s, ALL)


@script("calls")
def datagram_connected(c: Calls) -> None:
    s = _datagram(c)
    with _peer() as one, _peer() as two:
        c.do("send", s, b"x", 1, 0)
        c.name("getpeername", s)
        c.connect(s, one.getsockname()[1])
        c.name("getsockname", s)
        c.name("getpeername", s)
        c.do("send", s, b"to one", 6, 0)
        data, source = one.recvfrom(100)
        c.note("one", data.decode())
        two.sendto(b"not for it", source)
        one.sendto(b"for it", source)
        _recvfrom(c, s, 100)
        _recvfrom(c, s, 100, socket.MSG_DONTWAIT)
        _sendto(c, s, b"to two", two.getsockname()[1])
        c.note("two", two.recv(100).decode())
        c.connect(s, two.getsockname()[1])
        c.do("send", s, b"two again", 9, 0)
        data, again = two.recvfrom(100)
        c.note("two", [data.decode(), again == source])
        c.do("connect", s, NOWHERE, 16)
        c.name("getpeername", s)
        c.do("send", s, b"x", 1, 0)
        c.do("connect", s, NOWHERE, 16)
        c.do("connect", s, NOWHERE, 1)
        _sendto(c, s, b"unconnected", one.getsockname()[1])
        c.note("one", one.recv(100).decode())


@script("calls")
def datagram_wrong_addresses(c: Calls) -> None:
    s, six = _datagram(c), _datagram(c, socket.AF_INET6)
    v6, unix = address(9, "::1"), struct.pack("=H", socket.AF_UNIX) + b"/nowhere".ljust(26, b"\0")
    for where, length in ((v6, 28), (unix, 28), (address(9), 15), (address(9), 2), (address(0), 16), (NOWHERE, 1)):
        c.do("sendto", s, b"x", 1, 0, where, length)
        c.do("connect", s, where, length)
    c.do("connect", s, None, 16)
    for where, length in ((unix, 28), (v6, 20), (v6, 1), (address(0, "::1"), 28)):
        c.do("sendto", six, b"x", 1, 0, where, length)
    for where, length in ((unix, 28), (v6, 20), (v6, 1)):
        c.do("connect", six, where, length)
    c.do("sendto", six, b"x", 1, 0, NOWHERE, 16)
    c.do("sendto", s, b"x", 1, socket.MSG_OOB, address(9), 16)
    c.bind(s, 0, "127.0.0.1", 8)
    c.do("bind", s, v6, 28)
    c.bind(s, 0)
    c.bind(s, 0)


@script("calls")
def datagram_to_v4_from_v6(c: Calls) -> None:
    s = _datagram(c, socket.AF_INET6)
    with _peer() as peer:
        _sendto(c, s, b"by AF_INET", peer.getsockname()[1])
        data, source = peer.recvfrom(100)
        c.note("peer", [data.decode(), source[0]])
        peer.sendto(b"back", source)
        _recvfrom(c, s, 100)
        _sendto(c, s, b"mapped", peer.getsockname()[1], "::ffff:127.0.0.1")
        c.note("peer", peer.recv(100).decode())
        c.connect(s, peer.getsockname()[1], "::ffff:127.0.0.1")
        c.name("getpeername", s)
        c.do("send", s, b"connected", 9, 0)
        c.note("peer", peer.recv(100).decode())
        only = _datagram(c, socket.AF_INET6)
        c.set(only, socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        _sendto(c, only, b"x", peer.getsockname()[1])
        c.connect(only, peer.getsockname()[1])


@script("calls")
def datagram_sizes(c: Calls) -> None:
    s, six = _datagram(c), _datagram(c, socket.AF_INET6)
    for each in (s, six):
        c.call("setsockopt", each, socket.SOL_SOCKET, socket.SO_SNDBUF, struct.pack("=i", 1 << 20), 4)
    with _peer() as peer, _peer("::1") as peer6:
        for each in (peer, peer6):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        for size in (65_507, 65_508, 65_535, 65_536, 100_000):
            _sendto(c, s, bytes(size), peer.getsockname()[1])
        c.note("received", len(peer.recv(70_000)))
        for size in (65_527, 65_528, 65_535, 65_536, 100_000):
            _sendto(c, six, bytes(size), peer6.getsockname()[1], "::1")
        c.note("received", len(peer6.recv(70_000)))
        _sendto(c, six, bytes(65_508), peer.getsockname()[1], "::ffff:127.0.0.1")
        _sendto(c, s, b"", peer.getsockname()[1])
        c.note("received", len(peer.recv(70_000)))


@script("calls")
def datagram_refused(c: Calls) -> None:
    """The error of ICMP is the next call's; then all is well again."""
    with _peer() as gone:
        port = gone.getsockname()[1]
    s = _datagram(c)
    c.connect(s, port)
    c.do("send", s, b"x", 1, 0)
    c.wait(s, 0)  # POLLERR
    c.events(s, ALL)
    _recvfrom(c, s, 10)
    c.events(s, ALL)
    _recvfrom(c, s, 10, socket.MSG_DONTWAIT)
    c.do("send", s, b"x", 1, 0)
    c.wait(s, 0)
    c.do("send", s, b"y", 1, 0)
    c.do("send", s, b"x", 1, 0)
    c.wait(s, 0)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)


@script("calls")
def datagram_waits(c: Calls) -> None:
    s, port = _bound(c)
    c.events(s, ALL)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
    _recvfrom(c, s, 10)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
    with _peer() as peer:

        def later() -> None:
            time.sleep(0.05)
            peer.sendto(b"late", ("127.0.0.1", port))

        threading.Thread(target=later).start()
        _recvfrom(c, s, 10)
        threading.Thread(target=later).start()
        c.events(s, select.POLLIN, int(DEADLINE_S * 1000))
        _recvfrom(c, s, 10)
    lazy = _datagram(c, flags=socket.SOCK_NONBLOCK)
    _recvfrom(c, lazy, 10)
    c.do("fcntl", s, fcntl.F_GETFL)
    c.do("fcntl", lazy, fcntl.F_GETFL)


@script("calls")
def datagram_shut_down(c: Calls) -> None:
    s, port = _bound(c)
    c.do("shutdown", s, 3)
    c.do("shutdown", s, socket.SHUT_WR)
    with _peer() as peer:
        _sendto(c, s, b"x", peer.getsockname()[1])
        c.events(s, ALL)
        c.connect(s, peer.getsockname()[1])
        c.do("shutdown", s, socket.SHUT_RD)
        c.events(s, ALL)
        peer.sendto(b"still", ("127.0.0.1", port))
        until(lambda: c.call("recv", s, ctypes.create_string_buffer(9), 9, socket.MSG_PEEK | socket.MSG_DONTWAIT) == 5)
        _recvfrom(c, s, 10)
        _recvfrom(c, s, 10, socket.MSG_DONTWAIT)
        _recvfrom(c, s, 10)
    c.do("listen", s, 1)
    c.do("accept", s, None, None)


@script("calls")
def datagram_options(c: Calls) -> None:
    s = _datagram(c)
    for option in (socket.SO_TYPE, socket.SO_PROTOCOL, socket.SO_DOMAIN, socket.SO_ERROR, socket.SO_ACCEPTCONN):
        c.get(s, socket.SOL_SOCKET, option)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
    c.get(s, socket.SOL_SOCKET, socket.SO_RCVBUF)
    c.set(s, socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
    c.get(s, socket.SOL_SOCKET, socket.SO_SNDBUF)
    where = address(9, "255.255.255.255")
    c.do("connect", s, where, 16)
    c.do("sendto", s, b"x", 1, 0, where, 16)
    c.set(s, socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    c.get(s, socket.SOL_SOCKET, socket.SO_BROADCAST)
    c.set(s, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    c.get(s, socket.IPPROTO_TCP, socket.TCP_NODELAY)
    c.set(s, socket.IPPROTO_IP, socket.IP_TTL, 9)
    c.get(s, socket.IPPROTO_IP, socket.IP_TTL)
    c.set(s, socket.IPPROTO_UDP, UDP_SEGMENT, 70_000)
    c.set(s, socket.IPPROTO_UDP, UDP_SEGMENT, 700)
    c.get(s, socket.IPPROTO_UDP, UDP_SEGMENT)
    number = ctypes.c_int(-1)
    c.do("ioctl", s, ctypes.c_ulong(SIOCOUTQ), ctypes.byref(number))
    c.note("SIOCOUTQ", number.value)
    c.do("ioctl", s, ctypes.c_ulong(0x8905), ctypes.byref(number))  # SIOCATMARK
    _pending(c, s)


def _message(c: Calls, s: int, size: int, flags: int = 0) -> None:
    """recvmsg(2): data, flags, control data."""
    data, control, where = (ctypes.create_string_buffer(n) for n in (max(size, 1), 256, 28))
    vector = Vector(ctypes.addressof(data), size)
    header = Header(
        ctypes.addressof(where), 28, ctypes.pointer(vector), 1, ctypes.addressof(control), len(control), 0
    )  # fmt: skip
    n = c.do("recvmsg", s, ctypes.byref(header), flags)
    c.note("message", [data.raw[: min(max(n, 0), size)].hex(), header.name_bytes, header.flags])
    at, items = 0, []
    while at + 16 <= header.control_bytes:
        length, level, kind = struct.unpack_from("=Qii", control, at)
        items.append([level, kind, control.raw[at + 16 : at + length].hex()])
        at += length + -length % 8
    c.note("control", sorted(items))


@script("calls")
def datagram_control_received(c: Calls) -> None:
    s, port = _bound(c)
    for option in (IP_PKTINFO, IP_RECVTTL, IP_RECVTOS):
        c.set(s, socket.IPPROTO_IP, option, 1)
    with _peer() as peer:
        peer.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 7)
        peer.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
        peer.sendto(b"with control", ("127.0.0.1", port))
        c.wait(s, select.POLLIN)
        _message(c, s, 100, socket.MSG_PEEK)
        _message(c, s, 4)


@script("calls")
def datagram_control_received_v6(c: Calls) -> None:
    s, port = _bound(c, "::1")
    for option in (socket.IPV6_RECVPKTINFO, socket.IPV6_RECVHOPLIMIT, socket.IPV6_RECVTCLASS):
        c.set(s, socket.IPPROTO_IPV6, option, 1)
    with _peer("::1") as peer:
        peer.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 7)
        peer.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0x28)
        peer.sendto(b"with control", ("::1", port))
        _message(c, s, 100)


def _control(*items: tuple[int, int, bytes]) -> bytes:
    out = b""
    for level, kind, value in items:
        out += struct.pack("=Qii", 16 + len(value), level, kind) + value + bytes(-len(value) % 8)
    return out


def _sendmsg(c: Calls, s: int, data: bytes, where: bytes, control: bytes) -> int:
    text, name = ctypes.create_string_buffer(data, max(len(data), 1)), ctypes.create_string_buffer(where, len(where))
    extra = ctypes.create_string_buffer(control, max(len(control), 1))
    vector = Vector(ctypes.addressof(text), len(data))
    header = Header(
        ctypes.addressof(name), len(where), ctypes.pointer(vector), 1, ctypes.addressof(extra), len(control), 0
    )  # fmt: skip
    return c.do("sendmsg", s, ctypes.byref(header), 0)


def _received(peer: socket.socket) -> list[Any]:
    data, control, _, _ = peer.recvmsg(100, 256)
    return [data.decode(), sorted([level, kind, value.hex()] for level, kind, value in control)]


@script("calls")
def datagram_control_sent(c: Calls) -> None:
    s = _datagram(c)
    number = struct.Struct("=i").pack
    with _peer() as peer:
        where = address(peer.getsockname()[1])
        for option in (IP_RECVTTL, IP_RECVTOS):
            peer.setsockopt(socket.IPPROTO_IP, option, 1)
        ip = socket.IPPROTO_IP
        _sendmsg(c, s, b"ttl", where, _control((ip, socket.IP_TTL, number(9)), (ip, socket.IP_TOS, b"\x10")))
        c.note("peer", _received(peer))
        source = struct.pack("=i", 0) + socket.inet_aton("127.0.0.9") + bytes(4)
        _sendmsg(c, s, b"from", where, _control((ip, IP_PKTINFO, source)))
        c.note("source", peer.recvfrom(100)[1][0])
        for wrong in (
            (ip, socket.IP_TTL, number(0)), (ip, socket.IP_TTL, number(256)), (ip, socket.IP_TTL, b"\1"),
            (ip, socket.IP_TOS, number(256)), (ip, 99, number(1)), (socket.SOL_SOCKET, 9999, number(1)),
            (socket.IPPROTO_UDP, UDP_SEGMENT, number(1)), (socket.IPPROTO_UDP, 99, b"\1\0"),
        ):  # fmt: skip
            _sendmsg(c, s, b"wrong", where, _control(wrong))
        _sendmsg(c, s, b"other level", where, _control((socket.IPPROTO_TCP, 1, number(1))))
        c.note("peer", peer.recv(100).decode())


@script("calls")
def datagram_train(c: Calls) -> None:
    s = _datagram(c)
    with _peer() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        where = address(peer.getsockname()[1])
        c.set(s, socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
        _sendto(c, s, bytes(3500), peer.getsockname()[1])
        c.note("received", [len(peer.recv(5000)) for _ in range(4)])
        _sendto(c, s, bytes(1000), peer.getsockname()[1])
        c.note("received", len(peer.recv(5000)))
        train = _control((socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", 300)))
        _sendmsg(c, s, bytes(700), where, train)
        c.note("received", [len(peer.recv(5000)) for _ in range(3)])


@script("calls")
def datagram_many(c: Calls) -> None:
    """Many sockets, each with its own datagrams; some close with what they have not read."""
    sockets = [_bound(c) for _ in range(60)]
    with _peer() as peer:
        for number, (_, port) in enumerate(sockets):
            for i in range(3):
                peer.sendto(f"{number} {i}".encode(), ("127.0.0.1", port))
        for s, _ in sockets[::2]:
            c.wait(s, select.POLLIN)
            for _ in range(3):
                _recvfrom(c, s, 100)
        for s, port in sockets[::3]:
            _sendto(c, s, str(port).encode(), peer.getsockname()[1])
            data, source = peer.recvfrom(100)
            c.note("own port", data == str(source[1]).encode() == str(port).encode())
