"""Scripts of calls: what comes and goes with datagrams (control data, trains, counts), and many of them in one call.
The peers are the kernel's, on this host."""

from __future__ import annotations

import ctypes
import select
import socket
import struct
from typing import Any

from beds.calls import Calls, address, until
from beds.datagram_calls import bound, datagram, recvfrom, sendto, udp_peer
from beds.datagram_control import control, controls, message, sendmsg
from beds.libc_structs import Header, Message, Vector
from beds.scripts import script
from xts_lab.free_ports import free_port

ALL = 0x2047 | select.POLLOUT
IP_RECVERR, IPV6_RECVERR, UDP_CORK = 11, 25, 1
UDP_SEGMENT, UDP_GRO, IP_PKTINFO, IP_RECVTTL, IP_RECVTOS, SO_RXQ_OVFL = 103, 104, 8, 12, 13, 40


@script("calls")
def datagram_control_received(c: Calls) -> None:
    s, port = bound(c)
    for option in (IP_PKTINFO, IP_RECVTTL, IP_RECVTOS):
        c.set(s, socket.IPPROTO_IP, option, 1)
    with udp_peer() as peer:
        peer.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 7)
        peer.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
        peer.sendto(b"with control", ("127.0.0.1", port))
        c.wait(s, select.POLLIN)
        message(c, s, 100, socket.MSG_PEEK)
        message(c, s, 4)


@script("calls")
def datagram_control_received_v6(c: Calls) -> None:
    s, port = bound(c, "::1")
    for option in (socket.IPV6_RECVPKTINFO, socket.IPV6_RECVHOPLIMIT, socket.IPV6_RECVTCLASS):
        c.set(s, socket.IPPROTO_IPV6, option, 1)
    with udp_peer("::1") as peer:
        peer.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 7)
        peer.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0x28)
        peer.sendto(b"with control", ("::1", port))
        message(c, s, 100)


def _received(peer: socket.socket) -> list[Any]:
    data, control, _, _ = peer.recvmsg(100, 256)
    return [data.decode(), sorted([level, kind, value.hex()] for level, kind, value in control)]


@script("calls")
def datagram_control_sent(c: Calls) -> None:
    s = datagram(c)
    number = struct.Struct("=i").pack
    with udp_peer() as peer:
        where = address(peer.getsockname()[1])
        for option in (IP_RECVTTL, IP_RECVTOS):
            peer.setsockopt(socket.IPPROTO_IP, option, 1)
        ip = socket.IPPROTO_IP
        sendmsg(c, s, b"ttl", where, control((ip, socket.IP_TTL, number(9)), (ip, socket.IP_TOS, b"\x10")))
        c.note("peer", _received(peer))
        source = struct.pack("=i", 0) + socket.inet_aton("127.0.0.9") + bytes(4)
        sendmsg(c, s, b"from", where, control((ip, IP_PKTINFO, source)))
        c.note("source", peer.recvfrom(100)[1][0])
        for wrong in (
            (ip, socket.IP_TTL, number(0)), (ip, socket.IP_TTL, number(256)), (ip, socket.IP_TTL, b"\1"),
            (ip, socket.IP_TOS, number(256)), (ip, 99, number(1)), (socket.SOL_SOCKET, 9999, number(1)),
            (socket.IPPROTO_UDP, UDP_SEGMENT, number(1)), (socket.IPPROTO_UDP, 99, b"\1\0"),
        ):  # fmt: skip
            sendmsg(c, s, b"wrong", where, control(wrong))
        sendmsg(c, s, b"other level", where, control((socket.IPPROTO_TCP, 1, number(1))))
        c.note("peer", peer.recv(100).decode())


@script("calls")
def datagram_train(c: Calls) -> None:
    s = datagram(c)
    with udp_peer() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        where = address(peer.getsockname()[1])
        c.set(s, socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
        sendto(c, s, bytes(3500), peer.getsockname()[1])
        c.note("received", [len(peer.recv(5000)) for _ in range(4)])
        sendto(c, s, bytes(1000), peer.getsockname()[1])
        c.note("received", len(peer.recv(5000)))
        train = control((socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", 300)))
        sendmsg(c, s, bytes(700), where, train)
        c.note("received", [len(peer.recv(5000)) for _ in range(3)])


@script("calls")
def datagram_train_received(c: Calls) -> None:
    """UDP_GRO: a train in one piece, with the length of its segments."""
    s, port = bound(c)
    with udp_peer() as peer:
        peer.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
        c.set(s, socket.IPPROTO_UDP, UDP_GRO, 1)
        for size, room in ((3500, 5000), (2000, 5000), (1000, 5000), (300, 5000), (3500, 1200)):
            peer.sendto(bytes(size), ("127.0.0.1", port))
            message(c, s, room)
        c.set(s, socket.IPPROTO_UDP, UDP_GRO, 0)
        peer.sendto(bytes(3500), ("127.0.0.1", port))
        for _ in range(4):
            message(c, s, 5000)
        message(c, s, 5000, socket.MSG_DONTWAIT)


@script("calls")
def datagram_gathered(c: Calls) -> None:
    """MSG_MORE and UDP_CORK: one datagram of several calls, to where the first one says."""
    s = datagram(c)
    more = socket.MSG_MORE
    with udp_peer() as peer, udp_peer() as other:
        where, elsewhere = address(peer.getsockname()[1]), address(other.getsockname()[1])

        def send(data: bytes, flags: int, to: bytes | None) -> None:
            c.do("sendto", s, data, len(data), flags, to, 0 if to is None else len(to))

        send(b"one ", more, where)
        send(b"", more, None)
        send(b"two ", more, elsewhere)
        send(b"x" * 70_000, 0, where)  # which no datagram can have: the others stay
        send(b"three", 0, where)
        c.note("peer", peer.recv(100).decode())
        c.set(s, socket.IPPROTO_UDP, UDP_CORK, 1)
        c.get(s, socket.IPPROTO_UDP, UDP_CORK)
        for word in (b"a", b"b", b"c"):
            send(word, 0, where)
        c.set(s, socket.IPPROTO_UDP, UDP_CORK, 0)
        c.note("peer", peer.recv(100).decode())
        c.get(s, socket.IPPROTO_UDP, UDP_CORK)
        send(b"x" * 60_000, more, where)
        send(b"y" * 6_000, more, where)  # which is too much: all of it is dropped
        send(b"alone", 0, where)
        c.note("peer", peer.recv(100).decode())
        c.set(s, socket.IPPROTO_UDP, UDP_SEGMENT, 100)
        for _ in range(5):
            send(b"z" * 50, more, where)
        send(b"", 0, where)
        c.note("train", [len(peer.recv(500)) for _ in range(3)])
        send(b"", more, where)
        send(b"", 0, where)
        c.note("empty", len(peer.recv(500)))
        send(b"no address", more, None)
        c.set(s, socket.IPPROTO_UDP, UDP_CORK, 0)
        send(b"closed with it", more, where)


def _error(c: Calls, s: int, size: int = 100) -> None:
    """MSG_ERRQUEUE: what was sent, and struct sock_extended_err with the address of the offender. Waits for one: the
    pending error comes before."""
    c.wait(s, 0)
    before = len(c.trace)

    def has_come() -> bool:
        del c.trace[before:]
        message(c, s, size, socket.MSG_ERRQUEUE)
        return c.trace[before] != ["recvmsg", "EAGAIN"]

    until(has_come)


@script("calls")
def datagram_errors_queued(c: Calls) -> None:
    s = datagram(c)
    port = free_port()
    message(c, s, 100, socket.MSG_ERRQUEUE)
    c.set(s, socket.IPPROTO_IP, IP_RECVERR, 1)
    c.get(s, socket.IPPROTO_IP, IP_RECVERR)
    c.bind(s, 0)
    sendto(c, s, b"one", port)
    c.wait(s, 0)  # POLLERR
    recvfrom(c, s, 10, socket.MSG_DONTWAIT)
    _error(c, s)
    c.events(s, ALL)
    sendto(c, s, b"the second", port)
    _error(c, s, 4)
    recvfrom(c, s, 10, socket.MSG_DONTWAIT)  # with the last one the pending error has gone
    c.events(s, ALL)
    message(c, s, 100, socket.MSG_ERRQUEUE)
    c.set(s, socket.IPPROTO_IP, IP_RECVERR, 0)
    sendto(c, s, b"unnoticed", port)  # as the socket is not connected
    recvfrom(c, s, 10, socket.MSG_DONTWAIT)


@script("calls")
def datagram_errors_queued_v6(c: Calls) -> None:
    s, _ = bound(c, "::1")
    with udp_peer("::1") as gone:
        port = gone.getsockname()[1]
    c.set(s, socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
    sendto(c, s, b"six", port, "::1")
    _error(c, s)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.events(s, ALL)


@script("calls")
def datagram_drops_counted(c: Calls) -> None:
    """SO_RXQ_OVFL: what has been received and what has been dropped is all that was sent."""
    s, port = bound(c)
    c.set(s, socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
    c.get(s, socket.SOL_SOCKET, SO_RXQ_OVFL)
    with udp_peer() as peer:
        peer.sendto(b"before", ("127.0.0.1", port))
        message(c, s, 100)
        c.set(s, socket.SOL_SOCKET, socket.SO_RCVBUF, 5000)
        c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200_000))
        for _ in range(2000):
            peer.sendto(bytes(1000), ("127.0.0.1", port))
        received = 0
        buffer = ctypes.create_string_buffer(1000)
        while c.call("recv", s, buffer, 1000, 0) == 1000:
            received += 1
        peer.sendto(b"after", ("127.0.0.1", port))
        items = controls(c, s)
        c.note("told", len(items))
        level, kind, value = items[0]
        dropped = int.from_bytes(value, "little")
        c.note("dropped", [level, kind, len(value), dropped > 0, received + dropped])


def _messages(datas: list[bytes], where: bytes) -> tuple[Any, list[Any]]:
    """struct mmsghdr to or from an address, and what they point to."""
    kept: list[Any] = []
    made = (Message * len(datas))()
    for one, data in zip(made, datas, strict=True):
        text, name = ctypes.create_string_buffer(data, max(len(data), 1)), ctypes.create_string_buffer(where, 28)
        vector = Vector(ctypes.addressof(text), len(data))
        kept += [text, name, vector]
        one.header = Header(ctypes.addressof(name), len(where), ctypes.pointer(vector), 1, None, 0, 0)
    return made, kept


def _recvmmsg(c: Calls, s: int, count: int, flags: int = 0, *, timeout: Any = None, size: int = 100) -> None:
    made, kept = _messages([bytes(size)] * count, bytes(28))
    n = c.do("recvmmsg", s, made, count, flags, timeout)
    for i in range(max(n, 0)):
        text = kept[3 * i].raw[: min(made[i].bytes, size)]
        c.note("message", [made[i].bytes, text.hex(), made[i].header.name_bytes, made[i].header.flags])


@script("calls")
def datagram_messages_sent(c: Calls) -> None:
    s = datagram(c)
    with udp_peer() as peer:
        where = address(peer.getsockname()[1])
        for datas in (
            [b"one", b"", b"three" * 100], [b"%d" % i for i in range(100)], [b"before", bytes(65_508), b"after"],
            [bytes(65_508)], [b"a" * 20_000, b"b" * 100, b"c" * 20_000],
        ):  # fmt: skip
            made, _kept = _messages(datas, where)
            n = c.do("sendmmsg", s, made, len(datas), 0)
            c.note("lengths", [one.bytes for one in made][: max(n, 0)])
            c.note("peer", [peer.recv(70_000) == data for data in datas[: max(n, 0)]])
        made, _kept = _messages([b"x"], where[:8])
        c.do("sendmmsg", s, made, 1, 0)
        c.do("sendmmsg", s, made, 0, 0)
        c.do("sendmmsg", s, None, 1, 0)


@script("calls")
def datagram_messages_received(c: Calls) -> None:
    s, port = bound(c)
    wrong, soon = (ctypes.create_string_buffer(struct.pack("ll", *t)) for t in ((0, -1), (0, 1)))
    with udp_peer() as peer:
        _recvmmsg(c, s, 3, socket.MSG_DONTWAIT)
        _recvmmsg(c, s, 3, timeout=wrong)
        for word in (b"one", b"two", b"", b"a longer one", b"five", b"six"):
            peer.sendto(word, ("127.0.0.1", port))
        _recvmmsg(c, s, 2)
        _recvmmsg(c, s, 2, size=4)
        _recvmmsg(c, s, 1, timeout=soon)
        _recvmmsg(c, s, 9, 0x10000)  # MSG_WAITFORONE
        _recvmmsg(c, s, 0)
        _recvmmsg(c, s, 3, socket.MSG_DONTWAIT)
        c.connect(s, peer.getsockname()[1])
        peer.close()
        c.do("send", s, b"refused", 7, 0)
        c.wait(s, 0)
        _recvmmsg(c, s, 3, socket.MSG_DONTWAIT)
