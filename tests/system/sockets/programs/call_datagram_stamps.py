"""Scripts of calls: time stamps of datagrams. The peers are the kernel's, on this host, and so is the device's clock:
a stamp is recorded as whether it is one of the last minute."""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import Any

from beds.calls import Calls, address, until
from beds.datagram_calls import bound, recvfrom, sendto, udp_peer
from beds.datagram_control import Item, control, recvmsg, sendmsg
from beds.scripts import script

ALL = 0x2047 | select.POLLOUT
IP_RECVERR, IP_PKTINFO, IPV6_RECVERR, SCM_TS_OPT_ID = 11, 8, 25, 81
TIMESTAMP, TIMESTAMPNS, TIMESTAMPING = 29, 35, 37
TIMESTAMP_NEW, TIMESTAMPNS_NEW, TIMESTAMPING_NEW = 63, 64, 65
#: Units of a second that the second word of a stamp counts.
FINE = {TIMESTAMP: 10**6, TIMESTAMP_NEW: 10**6, TIMESTAMPNS: 10**9, TIMESTAMPNS_NEW: 10**9}
#: linux/net_tstamp.h
TX_SOFTWARE, RX_SOFTWARE, SOFTWARE, OPT_ID, TX_SCHED = 1 << 1, 1 << 3, 1 << 4, 1 << 7, 1 << 8
OPT_CMSG, OPT_TSONLY, OPT_STATS, OPT_TX_SWHW = 1 << 10, 1 << 11, 1 << 12, 1 << 14
SENT = TX_SOFTWARE | SOFTWARE | OPT_ID


def _recent(seconds: int, fraction: int, units: int) -> str:
    if not seconds and not fraction:
        return "none"
    return "recent" if abs(time.time() - seconds - fraction / units) < 60 else f"{seconds} s, {fraction}"


def _shown(item: Item) -> list[Any]:
    """A control item without its time."""
    level, kind, value = item
    if level != socket.SOL_SOCKET or kind not in (*FINE, TIMESTAMPING, TIMESTAMPING_NEW):
        return [level, kind, value.hex()]
    words = struct.unpack(f"={len(value) // 8}q", value)
    units = FINE.get(kind, 10**9)
    return [level, kind, [_recent(*words[at : at + 2], units) for at in range(0, len(words), 2)]]


def _received(c: Calls, s: int, size: int = 100, flags: int = 0) -> None:
    n, data, header, items = recvmsg(c, s, size, flags)
    c.result("recvmsg", n)
    c.note("message", [data.hex(), header.name_bytes, header.flags])
    c.note("control", sorted(map(_shown, items), key=str))


def _queued(c: Calls, s: int, *, tail: int = 0) -> None:
    """The next entry of the error queue, once it is there. What is quoted begins with headers that nobody chooses: of
    it the length and the last bytes are recorded."""
    got: list[Any] = []

    def has_come() -> bool:
        got[:] = recvmsg(c, s, 1000, socket.MSG_ERRQUEUE)
        return bool(got[0] >= 0)

    until(has_come)
    n, data, header, items = got
    c.note("queued", [n, data[len(data) - tail :].hex(), header.name_bytes, header.flags])
    c.note("control", sorted(map(_shown, items), key=str))


def _until_stamped(c: Calls, s: int, peer: socket.socket, where: tuple[str, int]) -> None:
    """The kernel begins to stamp what it receives a moment after the first socket has asked for it."""

    def is_stamped() -> bool:
        peer.sendto(b"stamped?", where)
        c.wait(s, select.POLLIN)
        return bool(recvmsg(c, s, 100)[3])

    until(is_stamped)


@script("calls")
def datagram_stamped(c: Calls) -> None:
    s, port = bound(c)
    with udp_peer() as peer:
        for option in FINE:
            c.set(s, socket.SOL_SOCKET, option, 1)
            for other in FINE:
                c.get(s, socket.SOL_SOCKET, other)
            peer.sendto(b"stamped", ("127.0.0.1", port))
            c.wait(s, select.POLLIN)
            _received(c, s, flags=socket.MSG_PEEK)
            _received(c, s)
        c.set(s, socket.SOL_SOCKET, TIMESTAMP, 7)
        c.get(s, socket.SOL_SOCKET, TIMESTAMP)
        c.set(s, socket.SOL_SOCKET, TIMESTAMPNS, 0)
        c.get(s, socket.SOL_SOCKET, TIMESTAMP)
        peer.sendto(b"not stamped", ("127.0.0.1", port))
        _received(c, s)
        peer.sendto(b"before the option", ("127.0.0.1", port))
        c.wait(s, select.POLLIN)
        c.set(s, socket.SOL_SOCKET, TIMESTAMPNS, 1)
        _received(c, s)
        c.set(s, socket.SOL_SOCKET, TIMESTAMP, b"\1")
        c.set(s, socket.SOL_SOCKET, TIMESTAMPNS, None, 0)


@script("calls")
def datagram_stamping_received(c: Calls) -> None:
    s, port = bound(c)
    with udp_peer() as peer:
        for option in (TIMESTAMPING, TIMESTAMPING_NEW):
            c.set(s, socket.SOL_SOCKET, option, RX_SOFTWARE | SOFTWARE)
            for other in (TIMESTAMPING, TIMESTAMPING_NEW):
                c.get(s, socket.SOL_SOCKET, other, 8)
            _until_stamped(c, s, peer, ("127.0.0.1", port))
            peer.sendto(b"stamped", ("127.0.0.1", port))
            _received(c, s)
            c.set(s, socket.SOL_SOCKET, TIMESTAMPNS, 1)
            peer.sendto(b"twice", ("127.0.0.1", port))
            _received(c, s)
            c.set(s, socket.SOL_SOCKET, TIMESTAMPNS, 0)
        for wrong in (1 << 31, 1 << 25, OPT_STATS):
            c.set(s, socket.SOL_SOCKET, TIMESTAMPING, struct.pack("=I", wrong))
        c.set(s, socket.SOL_SOCKET, TIMESTAMPING, RX_SOFTWARE)  # made, and not reported
        peer.sendto(b"unreported", ("127.0.0.1", port))
        _received(c, s)
        c.set(s, socket.SOL_SOCKET, TIMESTAMPING, 0)
        c.get(s, socket.SOL_SOCKET, TIMESTAMPING)
        peer.sendto(b"no more", ("127.0.0.1", port))
        _received(c, s)


@script("calls")
def datagram_stamps_of_sending(c: Calls) -> None:
    """On the error queue, by number: without what was sent, and with it."""
    s, _ = bound(c)
    with udp_peer() as peer:
        port = peer.getsockname()[1]
        c.set(s, socket.SOL_SOCKET, TIMESTAMPING, SENT | OPT_TSONLY)
        for word in (b"one", b"two", b"three"):
            sendto(c, s, word, port)
            c.wait(s, 0)  # POLLERR
            c.events(s, ALL)
            _queued(c, s)
        c.events(s, ALL)
        c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
        recvfrom(c, s, 10, socket.MSG_DONTWAIT)
        c.set(s, socket.SOL_SOCKET, TIMESTAMPING, SENT | OPT_TSONLY | TX_SCHED)
        sendto(c, s, b"two stamps", port)
        _queued(c, s)
        _queued(c, s)
        c.set(s, socket.SOL_SOCKET, TIMESTAMPING, 0)
        c.set(s, socket.SOL_SOCKET, TIMESTAMPING, SENT)
        sendto(c, s, b"quoted", port)
        _queued(c, s, tail=6)
        c.note("received", [peer.recv(100).decode() for _ in range(5)])


@script("calls")
def datagram_stamps_of_some(c: Calls) -> None:
    """Asked for with a datagram, and numbered by the program."""
    s, _ = bound(c)
    level = socket.SOL_SOCKET
    with udp_peer() as peer:
        where = address(peer.getsockname()[1])
        asks = struct.pack("=I", TX_SOFTWARE)
        c.set(s, level, TIMESTAMPING, SOFTWARE | OPT_TSONLY | OPT_CMSG)
        c.set(s, socket.IPPROTO_IP, IP_PKTINFO, 1)
        sendto(c, s, b"not this", peer.getsockname()[1])
        sendmsg(c, s, b"this", where, control((level, TIMESTAMPING, asks)))
        _queued(c, s)
        sendmsg(c, s, b"no number", where, control((level, SCM_TS_OPT_ID, asks)))
        c.set(s, level, TIMESTAMPING, SOFTWARE | OPT_TSONLY | OPT_ID)
        number = struct.pack("=I", 4711)
        sendmsg(c, s, b"numbered", where, control((level, TIMESTAMPING_NEW, asks), (level, SCM_TS_OPT_ID, number)))
        _queued(c, s)
        for wrong in ((TIMESTAMPING, b"\1\0"), (TIMESTAMPING, struct.pack("=I", SOFTWARE)), (SCM_TS_OPT_ID, bytes(8))):
            sendmsg(c, s, b"wrong", where, control((level, *wrong)))
        _received(c, s, flags=socket.MSG_ERRQUEUE)


@script("calls")
def datagram_stamps_v6(c: Calls) -> None:
    s, port = bound(c, "::1")
    with udp_peer("::1") as peer, udp_peer("::1") as gone:
        c.set(s, socket.SOL_SOCKET, TIMESTAMPING, SENT | OPT_TSONLY | RX_SOFTWARE)
        c.set(s, socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
        nobody = gone.getsockname()[1]
        gone.close()
        sendto(c, s, b"six", peer.getsockname()[1], "::1")
        _queued(c, s)
        _until_stamped(c, s, peer, ("::1", port))
        peer.sendto(b"back", ("::1", port))
        _received(c, s)
        sendto(c, s, b"to nobody", nobody, "::1")
        _queued(c, s)
        _queued(c, s, tail=4)
