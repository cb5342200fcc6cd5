"""Where the corpora of fuzz_datagram, fuzz_names and fuzz_host begin."""

from __future__ import annotations

import struct

from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint
from xts_messages.wire.datagram import Datagram, encode, error_item, item

V4, V6 = Endpoint.of("198.18.0.2", 7), Endpoint.of("fd00::2", 7)
NOBODY = Endpoint()
A, SOA, PTR, AAAA, SRV, OPT, IXFR, AXFR, ANY = 1, 6, 12, 28, 33, 41, 251, 252, 255


def records() -> list[bytes]:
    """Each control item by itself, all together, trains, datagrams that are cut off, and what a peer may not say."""
    known = {name: size for name, (_, size, _) in table.DATAGRAM_CONTROLS.items() if name not in ("PKTINFO", "ERROR")}
    items = [item(name, bytes(range(size))) for name, size in known.items()]
    items += [
        item("PKTINFO", V4),
        item("PKTINFO", V6),
        error_item(111, (2, 3, 3), V4),
        error_item(42, (4, 0, 0), NOBODY),
    ]
    datagrams = [
        Datagram(),
        Datagram(b"data", V4),
        Datagram(b"data", V6),
        *(Datagram(b"data", V4, controls=(one,)) for one in items),
        Datagram(b"data", V4, controls=tuple(items[:8])),
        Datagram(bytes(40), V4, segment_bytes=10),
        Datagram(bytes(40), V4, segment_bytes=11, controls=(items[0],)),
        Datagram(b"data", V4, controls=((99, b"unknown"), items[0])),
        Datagram(b"data", V4, controls=((2, b"odd"),)),
        Datagram(b"data", V4, controls=(items[0], items[0])),
        Datagram(b"data", V4, data_bytes=1000),
        Datagram(b"data", V4, control_bytes=3),
        Datagram(b"data", V4, control_bytes=0xFFFC),
    ]
    return [encode(one) for one in datagrams]


def datagram_payloads() -> list[bytes]:
    """How it is cut, and records (fuzz_datagram.c)."""
    every = records()
    whole = [b"".join(every[:8]), b"".join(every[:-3]), every[1] * 40]
    return [bytes([cut]) + payload for payload in every + whole for cut in (0, 15, 63)]


def _name(text: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in text.split(".") if label) + b"\0"


def _question(name: str, kind: int, dns_class: int = 1) -> bytes:
    return _name(name) + struct.pack(">HH", kind, dns_class)


def _message(flags: int, question: bytes, counts: tuple[int, int, int, int], rest: bytes = b"") -> bytes:
    return struct.pack(">HH4H", 0x1234, flags, *counts) + question + rest


def name_exchanges() -> list[bytes]:
    """A query padded with zeros to a multiple of 4, as the target cuts it, only where it has some room behind it: else
    names are chosen that fit. Then the answer (fuzz_names.c)."""
    edns = b"\0" + struct.pack(">HHIH", OPT, 4096, 0, 0)
    option = b"\0" + struct.pack(">HHIH", OPT, 512, 0x8000, 12) + struct.pack(">HH", 10, 8) + bytes(8)
    found = b"\xc0\x0c" + struct.pack(">HHIH", A, 1, 60, 4) + bytes(4)
    exchanges = []
    for name in ("", "a", "ab.c", "abc.test", "www.Example.test", "a" * 63 + ".test", ".".join(["a" * 9] * 25)):
        for kind in (A, AAAA, SOA, PTR, SRV, AXFR, IXFR, ANY):
            question = _question(name, kind)
            for counts, rest in (((1, 0, 0, 0), b""), ((1, 0, 0, 1), edns), ((1, 0, 0, 1), option)):
                query = _message(0x0100, question, counts, rest)
                answers = [
                    _message(0x8180, question, (1, 1, 0, 0), found),
                    _message(0x8183, question.upper(), (1, 0, 0, 0)),
                    _message(0x8380, question, (1, 0, 0, 0)),
                    _message(0x8185, b"", (0, 0, 0, 0)),
                    _message(0x8180, _question("other", kind), (1, 0, 0, 0)),
                ]
                if len(query) % 4 == 0 and len(query) < 1024:
                    exchanges += [bytes([len(query) // 4]) + query + answer for answer in answers]
    return exchanges


def host_programs() -> list[bytes]:
    """Datagram sockets, pushed protocols, and connections that carry data (op_datagram() of host_datagrams.h, op_pdu()
    of host_pdus.h, op_call() of fuzz_host.c)."""

    def datagram(what: int, *rest: int, socket: int = 0) -> bytes:
        return bytes([7, 160, what * 4 + socket, *rest])

    def pdu(what: int, *rest: int, socket: int = 0) -> bytes:
        return bytes([7, 64, what * 8 + socket, *rest])

    def call(what: int, *rest: int, socket: int = 0) -> bytes:
        return bytes([3, what * 8 + socket, *rest])

    look = b"\7\1"
    bind, connect, dissolve, names = (datagram(1, port, how) for port, how in ((7, 3), (7, 4), (0, 0), (0, 1)))
    waiting, lookups = datagram(1, 0, 2), datagram(1, 0, 5) * 20
    options = b"".join(datagram(2, which, 1) + datagram(2, 192 + which, 1) for which in range(22))
    stamps = b"".join(
        datagram(2, which, value) for which, value in ((2, 1), (3, 99), (4, 1), (11, 1), (12, 1), (13, 1))
    )
    send, several, long = datagram(7, 0x14, 90), datagram(7, 0x54, 90, 90, 90, 90), datagram(7, 0x14, 250, 240)
    control = b"".join(datagram(7, 0x30, which, 1) for which in range(5))
    corked = datagram(7, 0x84, 90) + datagram(7, 0x04, 90)
    receive, peek, errors, many = (datagram(10, 0x04, flag, *[90] * 4) for flag in (0, 1, 3, 0x80))
    few = datagram(12, 1, 200, 4, *b"\x01\x20" * 4)
    marked = datagram(12, 0, 6, *b"\x11\xfe\x20" * 6)
    train = datagram(12, 0, 2, *b"\x05\x80\x20" * 2)
    fault, stamp = datagram(12, 0, 1, 0x09, 20, 7), datagram(12, 0, 1, 0x49, 20, 7)
    large = datagram(12, 0, 20, *b"\x02\xfa\x10" * 20)
    callback = b"".join(datagram(4, kind) + few + marked + large for kind in (1, 0, 2)) + datagram(5, 0)
    streams = [
        call(2) + pdu(8, 200) + look + call(4, 4) + pdu(11, 3, 9, 90) + look + call(6, 90, 0) + pdu(11, 240) + look,
        call(9)
        + call(10, 0, 8)
        + pdu(10, 200) * 3
        + look
        + call(11, 1)
        + pdu(11, 2, 90, socket=1)
        + call(6, 90, 0, socket=1),
        call(2) + pdu(8, 200) + pdu(11, 2, 5) * 6 + look + call(13, 1, 1) + call(6, 200, 2) + pdu(11, 250) + look,
    ]
    pushes = [
        pdu(0) + b"".join(pdu(1, request, ulp | 0xC0, 1, 1, 2) for request in range(3)) + call(2) + pdu(8, 200) + look
        for ulp in range(1, 14)
    ]
    pushed = pdu(0) + pdu(1, 2, 0x81, 4, 1) + call(2) + pdu(8, 200) + look
    carry = pdu(5, 0x84, 90) + pdu(5, 0xC4, 90) + pdu(5, 0x25, 90, 1, 1) + pdu(13, 1, 9, 90) + pdu(13, 0x80, 0, 90) * 3
    read = pdu(7, 0x04, 0, *[90] * 4) + pdu(7, 0x00, 1, *[90] * 4)
    tell = b"".join(pdu(1, which, 1, 1) for which in (4, 5, 6, 7, 0x15, 0x85))
    keys = pdu(3, 4) + pdu(3, 9) + pdu(3, 1)
    return [
        bind + send * 3 + few + receive * 3 + names + waiting + lookups + dissolve,
        connect + several + long * 3 + control + corked + few + peek + receive + many + dissolve,
        options + send + stamps + marked + receive * 6 + stamp * 3 + fault + errors * 4,
        connect + stamps + train + large * 3 + receive * 9 + many * 3 + look + datagram(6, 2),
        connect + callback + receive * 4 + datagram(0, 1) + bind + few + receive,
        connect + few + bytes([3, 13 * 8, 1, 1]) + receive + look,
        *streams,
        *pushes,
        pushed + carry * 2 + read * 3 + tell,
        call(2) + pdu(8, 200) + keys + carry + read + tell,
        call(2) + pdu(8, 200) + pdu(1, 0x86, 0, 0) + pdu(11, 2, 90) * 3 + call(6, 90, 2) + pdu(1, 4 + 3, 0, 0) + look,
        pushed + pdu(14, 2, 7) + pdu(14, 6, 7, 1) + pdu(4) + read,
        pdu(1, 3, 5, 1) + pdu(8, 200) + look + carry + read,
    ]
