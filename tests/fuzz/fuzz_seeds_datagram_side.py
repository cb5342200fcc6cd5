"""Where the corpus of fuzz_datagram_side begins: datagram sockets with each field, and with each mistake that a reader
looks for."""

from __future__ import annotations

import struct

from fuzz_seeds_record import field_of
from xts_messages.wire import datagram
from xts_messages.wire import record_table as table
from xts_messages.wire.codec import Endpoint
from xts_messages.wire.datagram import Datagram
from xts_messages.wire.record_form import WIDTHS, Field, Form

#: First byte: the descriptor next to the record (fuzz_datagram_side.c).
UDP4, UDP6, TCP, NOTHING, AS_IT_IS = 0, 1, 2, 3, 16

TO = Endpoint.of("192.0.2.1", 53)
ONE, TWO = (datagram.encode(Datagram(data, TO)) for data in (b"one", b"the second"))
WAITING = struct.pack(">I", 0) + ONE + struct.pack(">I", 111) + TWO
GROUP = field_of(1, b"\4") + field_of(2, bytes([239, 1, 1, 1]).ljust(16, b"\0")) + field_of(3, bytes(4))
#: Values of fields whose bytes are not free.
GIVEN: dict[str, bytes] = {
    "fd": b"\1",
    "waiting": WAITING,
    "unsent": b"rest" + ONE + TWO,
    "data_left": (4).to_bytes(4, "big"),
    "returned": TWO,
    "returning": TWO[:-3],
    "coming": bytes(4),
    "lost": b"\0",
    "groups": struct.pack(">I", len(GROUP)) + GROUP,
    "filter_instructions": (1).to_bytes(4, "big"),
    "filter_name": b"dns",
}


def _value(field: Field) -> bytes:
    number = field.least_legal if field.values else min(field.most_legal, 77)
    return GIVEN.get(field.name) or number.to_bytes(WIDTHS.get(field.form, 1), "big")


def _record(*but: str, **changed: bytes) -> bytes:
    fields = sorted((one for one in table.DATAGRAM_SIDE.fields if one.name not in but), key=lambda one: one.number)
    assert all(one.name in GIVEN for one in fields if one.form in (Form.STREAM, Form.LIST))
    body = b"".join(field_of(one.number, changed.get(one.name, _value(one))) for one in fields)
    return struct.pack(">HHI", table.VERSION, table.COMPATIBLE, len(body)) + body


def datagram_side_programs() -> list[bytes]:
    coming, yes = (4).to_bytes(4, "big"), b"\1"
    return [
        bytes([UDP4]) + _record(),
        bytes([UDP6]) + _record(ip_version=b"\6"),
        bytes([UDP4]) + _record(waiting=WAITING[:-4], coming=coming),
        bytes([UDP4]) + _record(lost=yes, coming=coming),
        *(bytes([UDP4]) + _record(one.name) for one in table.DATAGRAM_SIDE.fields),
        bytes([TCP]) + _record(),
        bytes([NOTHING]) + _record(),
        bytes([UDP4 | AS_IT_IS]) + _record()[:-3],
        bytes([UDP4]) + _record(waiting=WAITING[:-4]),
        bytes([UDP4]) + _record(lost=yes),
        bytes([UDP4]) + _record(data_left=(1000).to_bytes(4, "big")),
        bytes([UDP4]) + _record(returned=TWO[:-1]),
        bytes([UDP4]) + _record(returning=TWO),
        bytes([UDP4]) + _record(filter_instructions=(2).to_bytes(4, "big")),
    ]
