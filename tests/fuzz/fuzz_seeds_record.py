"""Where the corpus of fuzz_record begins: TCP sides with each field, and with each mistake that a reader looks for; and
its dictionary."""

from __future__ import annotations

import struct

from xts_messages import record_table as table
from xts_messages.record_table import WIDTHS, Field, Form, Record

#: First byte: what lies next to the record, and that its whole length is not set right (fuzz_record.c).
TCP4, TCP6, NOTHING, UDP, AN_OBJECT, AS_IT_IS = 0, 1, 2, 3, 4, 16


def _field(number: int, value: bytes) -> bytes:
    return struct.pack(">HHI", number, 0, len(value)) + value


def _whole(body: bytes, version: int = table.VERSION, compatible: int = table.COMPATIBLE) -> bytes:
    return struct.pack(">HHI", version, compatible, len(body)) + body


def _value(field: Field, largest: bool) -> bytes:
    if field.form is Form.RECORD:
        return _body(table.RECORDS[field.of], largest)
    if field.form is Form.LIST:
        part = _body(table.RECORDS[field.of], largest)
        return (struct.pack(">I", len(part)) + part) * (1 + largest)
    if field.form in (Form.OCTETS, Form.STREAM):
        return bytes(field.most or 0) if field.form is Form.OCTETS else b"stream"
    if field.name == "bytes":  # of a run; there are as many as in the stream
        return (3 if largest else 6).to_bytes(4, "big")
    if field.name == "at":
        return (largest * 5).to_bytes(4, "big")
    number = field.most_legal if largest else field.least_legal
    return number.to_bytes(WIDTHS.get(field.form, 1), "big")


def _body(record: Record, largest: bool, *, but: int = 0) -> bytes:
    """All fields, or all but one."""
    fields = sorted((field for field in record.fields if field.number != but), key=lambda one: one.number)
    return b"".join(_field(field.number, _value(field, largest)) for field in fields)


def record_programs() -> list[bytes]:
    """Whole records of both kinds of addresses, without each field, and such as nobody writes."""
    side = table.TCP_SIDE
    least, most = _body(side, False), _body(side, True)
    return [
        bytes([NOTHING]) + _whole(least),
        bytes([TCP6 | AN_OBJECT]) + _whole(most),
        bytes([TCP6]) + _whole(_body(side, True, but=12)),
        *(bytes([NOTHING]) + _whole(_body(side, False, but=field.number)) for field in side.fields),
        bytes([TCP4]) + _whole(_field(1, b"\1") + _field(2, b"\4") + _field(3, b"\0") + _field(10, b"")),
        bytes([UDP]) + _whole(_field(1, b"\1") + _field(2, b"\4") + _field(3, b"\0") + _field(10, b"")),
        bytes([NOTHING]) + _whole(least + _field(99, b"later"), version=2),
        bytes([NOTHING]) + _whole(least, version=2, compatible=2),
        bytes([NOTHING | AS_IT_IS]) + _whole(least)[:-3],
        bytes([NOTHING]) + _whole(_field(2, b"\4") * 2),
    ]


def record_tokens() -> list[bytes]:
    """What fields have in front, with the length that is the right one for most, and the ends of bounds."""
    heads = {
        struct.pack(">HHI", field.number, 0, len(_value(field, False)))
        for record in table.RECORDS.values()
        for field in record.fields
    }
    ends = {
        (field.most_legal + step).to_bytes(9, "big")[-WIDTHS[field.form] :]
        for record in table.RECORDS.values()
        for field in record.fields
        if field.form in WIDTHS
        for step in (0, 1)
    }
    return sorted(heads | ends)
