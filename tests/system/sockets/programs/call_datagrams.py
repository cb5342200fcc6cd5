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

from beds.calls import DEADLINE_S, SIOCOUTQ, Calls, address, until
from beds.datagram_calls import bound, datagram, pending, port_of, recvfrom, sendto, udp_peer
from beds.scripts import script
from xts_lab.free_ports import free_port

ALL = 0x2047 | select.POLLOUT
UDP_SEGMENT = 103
NOWHERE = struct.pack("=H", socket.AF_UNSPEC) + bytes(14)


def _exchange(c: Calls, host: str) -> None:
    s, port = bound(c, host)
    with udp_peer(host) as peer:
        c.name("getsockname", s)
        c.name("getpeername", s)
        for data in (b"one", b"", b"x" * 1000, os.urandom(20_000), os.urandom(60_000)):
            sendto(c, s, data, peer.getsockname()[1], host)
            got, source = peer.recvfrom(70_000)
            c.note("peer", [got == data, source[0], source[1] == port])
            peer.sendto(data[::-1], (host, port))
            c.note("reversed", recvfrom(c, s, 70_000) == data[::-1])
        c.close(s)


@script("calls")
def datagrams_both_ways(c: Calls) -> None:
    _exchange(c, "127.0.0.1")


@script("calls")
def datagrams_both_ways_v6(c: Calls) -> None:
    _exchange(c, "::1")


@script("calls")
def datagram_truncated(c: Calls) -> None:
    s, port = bound(c)
    with udp_peer() as peer:
        for word in (b"0123456789", b"abcdefghij", b"ABCDEFGHIJ", b"", b"last"):
            peer.sendto(word, ("127.0.0.1", port))
        c.wait(s, select.POLLIN)
        recvfrom(c, s, 4)
        recvfrom(c, s, 4, socket.MSG_TRUNC)
        recvfrom(c, s, 0)
        recvfrom(c, s, 4)
        recvfrom(c, s, 10)
        recvfrom(c, s, 10, socket.MSG_DONTWAIT)


@script("calls")
def datagram_peeked(c: Calls) -> None:
    s, port = bound(c)
    with udp_peer() as peer:
        recvfrom(c, s, 4, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        peer.sendto(b"0123456789", ("127.0.0.1", port))
        c.wait(s, select.POLLIN)
        pending(c, s)
        recvfrom(c, s, 4, socket.MSG_PEEK)
        recvfrom(c, s, 0, socket.MSG_PEEK | socket.MSG_TRUNC)
        recvfrom(c, s, 20, socket.MSG_PEEK | socket.MSG_WAITALL)
        recvfrom(c, s, 20)
        pending(c, s)
        peer.sendto(b"", ("127.0.0.1", port))
        c.wait(s, select.POLLIN)
        pending(c, s)
        c.events(s, ALL)
        recvfrom(c, s, 20)
        c.events(s, ALL)


@script("calls")
def datagram_connected(c: Calls) -> None:
    s = datagram(c)
    with udp_peer() as one, udp_peer() as two:
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
        recvfrom(c, s, 100)
        recvfrom(c, s, 100, socket.MSG_DONTWAIT)
        sendto(c, s, b"to two", two.getsockname()[1])
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
        sendto(c, s, b"unconnected", one.getsockname()[1])
        c.note("one", one.recv(100).decode())


@script("calls")
def datagram_keeps_its_address(c: Calls) -> None:
    """The address of a bind() without a port outlasts the port, which connect() to nobody gives back; a port that the
    program has chosen stays, too."""
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "0.0.0.0")):
        s, port = bound(c, host) if host != "0.0.0.0" else (datagram(c, family), 0)
        if not port:
            c.bind(s, 0, host)
        with udp_peer("127.0.0.1" if host == "0.0.0.0" else host) as peer:
            to = peer.getsockname()[1], peer.getsockname()[0]
            for _ in range(2):
                c.connect(s, *to)
                c.do("connect", s, NOWHERE, 16)
                c.name("getsockname", s)
                sendto(c, s, b"again", *to)
                data, source = peer.recvfrom(100)
                c.note("peer", [data.decode(), source[0], source[1] == port_of(c, s)])
                c.name("getsockname", s)
                peer.sendto(b"back", source)
                recvfrom(c, s, 100)
            again = datagram(c, family)  # the port of the first bind is free again
            if port:
                c.bind(again, port, host)
            chosen = port_of(c, again) if port else 0
            c.connect(again, *to)
            c.do("connect", again, NOWHERE, 16)
            c.note("its own port stays", [port_of(c, again) == chosen, bool(chosen)])


@script("calls")
def datagram_is_sent_before_a_connect(c: Calls) -> None:
    """One that takes several messages, too: its refusal by ICMP is not that of the socket's peer, which there was none
    of, and it needs no port after connect() to nobody has given that back."""
    port = free_port()
    for _ in range(20):
        s = datagram(c)
        sendto(c, s, bytes(65_507), port)
        c.connect(s, port)
        c.events(s, ALL)
        c.do("connect", s, NOWHERE, 16)
        for size in (65_507, 7):
            sendto(c, s, bytes(size), port)
            c.do("connect", s, NOWHERE, 16)
        c.name("getsockname", s)
        c.close(s)


@script("calls")
def datagram_wrong_addresses(c: Calls) -> None:
    s, six = datagram(c), datagram(c, socket.AF_INET6)
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
def datagram_to_an_address_without_family(c: Calls) -> None:
    """A program that has filled in address and port, and no family: the kernel takes it for AF_INET."""
    with udp_peer() as peer:
        where = NOWHERE[:2] + address(peer.getsockname()[1])[2:]
        for s in (datagram(c), bound(c)[0]):
            c.do("sendto", s, b"x", 1, 0, where, 15)
            c.do("sendto", s, b"no family", 9, 0, where, 16)
            c.note("peer", peer.recv(100).decode())
            c.do("sendto", s, b"x", 1, 0, NOWHERE, 16)


@script("calls")
def datagram_to_v4_from_v6(c: Calls) -> None:
    s = datagram(c, socket.AF_INET6)
    with udp_peer() as peer:
        sendto(c, s, b"by AF_INET", peer.getsockname()[1])
        data, source = peer.recvfrom(100)
        c.note("peer", [data.decode(), source[0]])
        peer.sendto(b"back", source)
        recvfrom(c, s, 100)
        sendto(c, s, b"mapped", peer.getsockname()[1], "::ffff:127.0.0.1")
        c.note("peer", peer.recv(100).decode())
        c.connect(s, peer.getsockname()[1], "::ffff:127.0.0.1")
        c.name("getpeername", s)
        c.do("send", s, b"connected", 9, 0)
        c.note("peer", peer.recv(100).decode())
        only = datagram(c, socket.AF_INET6)
        c.set(only, socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sendto(c, only, b"x", peer.getsockname()[1])
        c.connect(only, peer.getsockname()[1])


@script("calls")
def datagram_sizes(c: Calls) -> None:
    s, six = datagram(c), datagram(c, socket.AF_INET6)
    for each in (s, six):
        c.call("setsockopt", each, socket.SOL_SOCKET, socket.SO_SNDBUF, struct.pack("=i", 1 << 20), 4)
    with udp_peer() as peer, udp_peer("::1") as peer6:
        for each in (peer, peer6):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        for size in (65_507, 65_508, 65_535, 65_536, 100_000):
            sendto(c, s, bytes(size), peer.getsockname()[1])
        c.note("received", len(peer.recv(70_000)))
        for size in (65_527, 65_528, 65_535, 65_536, 100_000):
            sendto(c, six, bytes(size), peer6.getsockname()[1], "::1")
        c.note("received", len(peer6.recv(70_000)))
        sendto(c, six, bytes(65_508), peer.getsockname()[1], "::ffff:127.0.0.1")
        sendto(c, s, b"", peer.getsockname()[1])
        c.note("received", len(peer.recv(70_000)))


@script("calls")
def datagram_refused(c: Calls) -> None:
    """The error of ICMP is the next call's; then all is well again."""
    port = free_port()
    s = datagram(c)
    c.connect(s, port)
    c.do("send", s, b"x", 1, 0)
    c.wait(s, 0)  # POLLERR
    c.events(s, ALL)
    recvfrom(c, s, 10)
    c.events(s, ALL)
    recvfrom(c, s, 10, socket.MSG_DONTWAIT)
    c.do("send", s, b"x", 1, 0)
    c.wait(s, 0)
    c.do("send", s, b"y", 1, 0)
    c.do("send", s, b"x", 1, 0)
    c.wait(s, 0)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)


@script("calls")
def datagram_waits(c: Calls) -> None:
    s, port = bound(c)
    c.events(s, ALL)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
    recvfrom(c, s, 10)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
    with udp_peer() as peer:

        def later() -> None:
            time.sleep(0.05)
            peer.sendto(b"late", ("127.0.0.1", port))

        threading.Thread(target=later).start()
        recvfrom(c, s, 10)
        threading.Thread(target=later).start()
        c.events(s, select.POLLIN, int(DEADLINE_S * 1000))
        recvfrom(c, s, 10)
    lazy = datagram(c, flags=socket.SOCK_NONBLOCK)
    recvfrom(c, lazy, 10)
    c.do("fcntl", s, fcntl.F_GETFL)
    c.do("fcntl", lazy, fcntl.F_GETFL)


@script("calls")
def datagram_shut_down(c: Calls) -> None:
    s, port = bound(c)
    c.do("shutdown", s, 3)
    c.do("shutdown", s, socket.SHUT_WR)
    with udp_peer() as peer:
        sendto(c, s, b"x", peer.getsockname()[1])
        c.events(s, ALL)
        c.connect(s, peer.getsockname()[1])
        c.do("shutdown", s, socket.SHUT_RD)
        c.events(s, ALL)
        peer.sendto(b"still", ("127.0.0.1", port))
        until(lambda: c.call("recv", s, ctypes.create_string_buffer(9), 9, socket.MSG_PEEK | socket.MSG_DONTWAIT) == 5)
        recvfrom(c, s, 10)
        recvfrom(c, s, 10, socket.MSG_DONTWAIT)
        recvfrom(c, s, 10)
    c.do("listen", s, 1)
    c.do("accept", s, None, None)


@script("calls")
def datagram_options(c: Calls) -> None:
    s = datagram(c)
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
    pending(c, s)


@script("calls")
def datagram_many(c: Calls) -> None:
    """Many sockets, each with its own datagrams; some close with what they have not read."""
    sockets = [bound(c) for _ in range(60)]
    with udp_peer() as peer:
        for number, (_, port) in enumerate(sockets):
            for i in range(3):
                peer.sendto(f"{number} {i}".encode(), ("127.0.0.1", port))
        for s, _ in sockets[::2]:
            c.wait(s, select.POLLIN)
            for _ in range(3):
                recvfrom(c, s, 100)
        for s, port in sockets[::3]:
            sendto(c, s, str(port).encode(), peer.getsockname()[1])
            data, source = peer.recvfrom(100)
            c.note("own port", data == str(source[1]).encode() == str(port).encode())


@script("calls")
def datagram_path_mtu(c: Calls) -> None:
    """IP_MTU_DISCOVER and IP_MTU, with every value of the former."""
    ip, ip6 = (socket.IPPROTO_IP, 10, 14), (socket.IPPROTO_IPV6, 23, 24)  # IP_MTU_DISCOVER, IP_MTU
    for family, host, (level, discover, mtu) in (
        (socket.AF_INET, "127.0.0.1", ip), (socket.AF_INET6, "::1", ip6), (socket.AF_INET6, "::ffff:127.0.0.1", ip),
    ):  # fmt: skip
        s = datagram(c, family)
        c.get(s, level, discover)
        for value in (0, 1, 2, 3, 4, 5, 6, -1):
            c.set(s, level, discover, value)
            c.get(s, level, discover)
        if level == socket.IPPROTO_IP and family == socket.AF_INET:
            c.get(s, level, mtu)  # of no path
        with udp_peer("127.0.0.1" if "." in host else host) as peer:
            c.set(s, level, discover, 2)
            c.connect(s, peer.getsockname()[1], host)
            c.get(s, level, mtu)
            c.do("send", s, bytes(60_000), 60_000, 0)
            c.note("received", len(peer.recv(70_000)))
        c.set(s, level, mtu, 1500)
