"""Receive callbacks (xts_register_recv_callback()): `python recv_callback.py LIBRARY`, with a proxy. Prints results."""

from __future__ import annotations

import ctypes
import json
import select
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

from beds.calls import Calls, address, until
from beds.datagram_calls import bound, datagram, udp_peer
from beds.ulp_calls import push
from xts_messages.wire.ulps import ULPS

DROP, RECV, HOLD = 0, 1, 2
SO_TIMESTAMPNS, IP_RECVTTL = 35, 12
LINES = next(ulp.number for ulp in ULPS if ulp.name == "LINES")


class Packet(ctypes.Structure):
    """struct xts_packet"""

    _fields_ = (
        ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("segment_bytes", ctypes.c_size_t),
        ("address", ctypes.c_void_p), ("address_bytes", ctypes.c_uint32), ("stamp_ns", ctypes.c_uint64),
        ("control", ctypes.c_void_p), ("control_bytes", ctypes.c_size_t), ("s", ctypes.c_int),
    )  # fmt: skip


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Packet), ctypes.c_void_p)
FREE: dict[str, Any] = {}


def data_of(packet: Any) -> bytes:
    return ctypes.string_at(packet.contents.data, packet.contents.bytes)


def register(c: Calls, s: int, look: Callable[[Any], int]) -> Any:
    """The callback has to live as long as it is registered."""
    made = CALLBACK(lambda packet, _: look(packet))
    assert c.call("register_recv_callback", s, made, None) == 0
    return made


def pump(c: Calls, s: int, option: int = socket.SO_BROADCAST) -> None:
    """A call that waits for the proxy, and takes what comes meanwhile."""
    value, length = ctypes.create_string_buffer(4), ctypes.c_uint(4)
    assert c.call("getsockopt", s, socket.SOL_SOCKET, option, value, ctypes.byref(length)) == 0


def received(c: Calls, s: int, size: int = 70_000) -> bytes | None:
    buffer = ctypes.create_string_buffer(size)
    n = c.call("recv", s, buffer, size, socket.MSG_DONTWAIT)
    return buffer.raw[:n] if n >= 0 else None


def verdicts(c: Calls) -> Any:
    """Each verdict does what it says, in order, with datagrams of every size."""
    s, port = bound(c)
    seen: list[bytes] = []
    held: list[Any] = []

    def look(packet: Any) -> int:
        data = data_of(packet)
        seen.append(data)
        if data[:1] == b"h":
            held.append(packet)
        return {b"d": DROP, b"q": RECV, b"h": HOLD}[data[:1]]

    keep = register(c, s, look)
    sent = [kind + b"x" * size for size in (0, 10, 5000, 60_000) for kind in (b"d", b"q", b"h")]
    with udp_peer() as peer:
        for data in sent:
            peer.sendto(data, ("127.0.0.1", port))
            until(lambda data=data: pump(c, s) or (seen and seen[-1] == data))  # type: ignore[misc]
        assert seen == sent
        queued = [received(c, s) for _ in range(4)]
        assert queued == [data for data in sent if data[:1] == b"q"] and received(c, s) is None
        assert [data_of(packet) for packet in held] == [data for data in sent if data[:1] == b"h"]
        for packet in held:
            FREE["packet_free"](packet)
        assert c.call("register_recv_callback", s, None, None) == 0
        peer.sendto(b"dropped no more", ("127.0.0.1", port))
        c.wait(s, select.POLLIN)
        assert received(c, s) == b"dropped no more" and len(seen) == len(sent)
    del keep
    return len(seen)


def what_it_sees(c: Calls) -> Any:
    """Address, stamp, control data."""
    s, port = bound(c)
    assert c.call("setsockopt", s, socket.IPPROTO_IP, IP_RECVTTL, struct.pack("=i", 1), 4) == 0
    assert c.call("setsockopt", s, socket.SOL_SOCKET, SO_TIMESTAMPNS, struct.pack("=i", 1), 4) == 0
    out: list[Any] = []

    def look(packet: Any) -> int:
        p = packet.contents
        control = ctypes.string_at(p.control, p.control_bytes)
        address = ctypes.string_at(p.address, p.address_bytes)
        kinds = []
        while control:
            length, level, kind = struct.unpack_from("=Qii", control)
            kinds.append((level, kind))
            control = control[length + -length % 8 :]
        out.extend([struct.unpack(">H", address[2:4])[0], p.stamp_ns, sorted(kinds), p.s == s])
        return DROP

    keep = register(c, s, look)
    with udp_peer() as peer:
        peer.sendto(b"look", ("127.0.0.1", port))
        until(lambda: pump(c, s) or bool(out))  # type: ignore[func-returns-value]
        assert out[0] == peer.getsockname()[1] and out[1] > 10**18 and out[3]
        assert out[2] == [(socket.IPPROTO_IP, socket.IP_TTL), (socket.SOL_SOCKET, SO_TIMESTAMPNS)]
    del keep
    return "seen"


def held_takes_credits(c: Calls) -> Any:
    """Who holds everything gets no more, until something is given back; also by the callback itself."""
    s, port = bound(c)
    held: list[Any] = []

    def look(packet: Any) -> int:
        held.append(packet)
        if len(held) > 1000:  # the window is smaller
            FREE["packet_free"](held.pop(0))
        return HOLD

    keep = register(c, s, look)
    with udp_peer() as peer:

        def fill() -> int:
            before = -1
            while before != len(held):
                before = len(held)
                for _ in range(20):
                    peer.sendto(bytes(10_000), ("127.0.0.1", port))
                for _ in range(20):
                    pump(c, s)
            return len(held)

        first = fill()
        assert 10 <= first <= 22, first
        while held:
            FREE["packet_free"](held.pop())
        assert 10 <= fill() <= 22
        c.call("close", s)
        c.opened.remove(s)
        while held:
            FREE["packet_free"](held.pop())  # of a socket that is closed
    del keep
    return "bounded"


def connected_lines(c: Calls) -> tuple[int, socket.socket]:
    """A message socket that receives lines, and its peer."""
    s = c.call("socket", socket.AF_INET, socket.SOCK_SEQPACKET, 0)
    assert s >= 0
    c.opened.append(s)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert c.call("connect", s, address(listener.getsockname()[1]), 16) == 0
        peer, _ = listener.accept()
    assert push(c, s, "PUSH_ULP_RX", LINES) == 0
    return s, peer


def pdus(c: Calls) -> Any:
    """Each verdict, with PDUs of every size that come in any number of messages, and what is queued in between."""
    s, peer = connected_lines(c)
    seen: list[bytes] = []
    held: list[Any] = []

    def look(packet: Any) -> int:
        data = data_of(packet)
        assert packet.contents.s == s and packet.contents.address_bytes == 16
        seen.append(data)
        if data[:1] == b"h":
            held.append(packet)
        return {b"d": DROP, b"q": RECV, b"h": HOLD}[data[:1]]

    keep = register(c, s, look)
    sizes = (0, 10, 700, 5000)  # what is queued and held fits into the window
    sent = [kind + b"x" * size for size in sizes for kind in (b"d", b"q", b"h", b"d", b"q", b"d")]
    stream = b"".join(line + b"\n" for line in sent)
    with peer:
        for at in range(0, len(stream), 7777):
            peer.sendall(stream[at : at + 7777])
            whole = stream[: at + 7777].count(b"\n")
            until(lambda whole=whole: pump(c, s, socket.SO_KEEPALIVE) or len(seen) == whole)  # type: ignore[misc]
        assert seen == sent
        queued = [received(c, s) for _ in range(2 * len(sizes))]
        assert queued == [line for line in sent if line[:1] == b"q"] and received(c, s) is None
        assert [data_of(packet) for packet in held] == [line for line in sent if line[:1] == b"h"]
        for packet in held[::2]:
            FREE["packet_free"](packet)
        for _ in range(100):  # the window goes through several times
            seen.clear()
            peer.sendall(b"d" + bytes(50_000) + b"\n")
            until(lambda: pump(c, s, socket.SO_KEEPALIVE) or bool(seen))  # type: ignore[func-returns-value]
        assert c.call("register_recv_callback", s, None, None) == 0
        peer.sendall(b"dropped no more\n")
        c.wait(s, select.POLLIN)
        assert received(c, s) == b"dropped no more"
        c.call("close", s)
        c.opened.remove(s)
        for packet in held[1::2]:
            FREE["packet_free"](packet)
    del keep
    return "each"


def refusals(c: Calls) -> Any:
    keep = CALLBACK(lambda packet, _: DROP)
    stream = c.create()
    again = datagram(c)
    return [c.call("register_recv_callback", number, keep, None) for number in (stream, 12345, again)]


def called_from_within(c: Calls) -> Any:
    s, port = bound(c)
    keep = register(c, s, lambda packet: c.call("recv", s, None, 0, socket.MSG_DONTWAIT))
    with udp_peer() as peer:
        peer.sendto(b"call me", ("127.0.0.1", port))
        until(lambda: pump(c, s) is not None)
    del keep
    return "survived"


def main() -> None:
    c = Calls(sys.argv[1])
    FREE["packet_free"] = c.native.xts_packet_free
    FREE["packet_free"].restype = None
    wanted = sys.argv[2:] or ["verdicts", "what_it_sees", "held_takes_credits", "pdus", "refusals"]
    print(json.dumps({name: globals()[name](c) for name in wanted}))


if __name__ == "__main__":
    main()
