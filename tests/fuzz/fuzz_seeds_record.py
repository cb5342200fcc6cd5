"""Where the corpus of fuzz_record begins: TCP sides with each field, and with each mistake that a reader looks for; and
its dictionary."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from xts_messages.wire import record_table as table
from xts_messages.wire.record_form import WIDTHS, Field, Form, Record, Table

#: First byte: what lies next to the record, and that its whole length is not set right (fuzz_record.c).
TCP4, TCP6, NOTHING, UDP, AN_OBJECT, AS_IT_IS = 0, 1, 2, 3, 4, 16


def field_of(number: int, value: bytes) -> bytes:
    return struct.pack(">HHI", number, 0, len(value)) + value


def _whole(fields: bytes, version: int = table.VERSION, compatible: int = table.COMPATIBLE) -> bytes:
    return struct.pack(">HHI", version, compatible, len(fields)) + fields


def _value(of: Table, field: Field, largest: bool) -> bytes:
    if field.form is Form.RECORD:
        return body(of, of.records[field.of], largest)
    if field.form is Form.LIST:
        part = body(of, of.records[field.of], largest)
        return (struct.pack(">I", len(part)) + part) * (1 + largest)
    if field.form in (Form.OCTETS, Form.STREAM):
        return bytes(field.most or 0) if field.form is Form.OCTETS else b"stream"
    if field.name == "bytes":  # of a run or a PDU; there are as many as in the stream
        return (3 if largest else 6).to_bytes(4, "big")
    if field.name == "at":
        return (largest * 5).to_bytes(4, "big")
    number = field.most_legal if largest else field.least_legal
    return number.to_bytes(WIDTHS.get(field.form, 1), "big")


def body(
    of: Table, record: Record, largest: bool, *, but: tuple[str, ...] = (), values: Mapping[str, int] | None = None
) -> bytes:
    """All fields, or all but some, the smallest or largest, and these values."""
    fields = sorted((field for field in record.fields if field.name not in but), key=lambda one: one.number)
    given = {
        field.number: values[field.name].to_bytes(WIDTHS[field.form], "big")
        for field in fields
        if values and field.name in values
    }
    return b"".join(field_of(field.number, given.get(field.number) or _value(of, field, largest)) for field in fields)


def record_programs() -> list[bytes]:
    """Whole records of both kinds of addresses, without each field, and such as nobody writes."""
    side = table.TCP_SIDE
    least, most = body(table.TABLE, side, False), body(table.TABLE, side, True)
    return [
        bytes([NOTHING]) + _whole(least),
        bytes([TCP6 | AN_OBJECT]) + _whole(most),
        bytes([TCP6]) + _whole(body(table.TABLE, side, True, but=("pushed",))),
        *(bytes([NOTHING]) + _whole(body(table.TABLE, side, False, but=(field.name,))) for field in side.fields),
        bytes([TCP4]) + _whole(field_of(1, b"\1") + field_of(2, b"\4") + field_of(3, b"\0") + field_of(10, b"")),
        bytes([UDP]) + _whole(field_of(1, b"\1") + field_of(2, b"\4") + field_of(3, b"\0") + field_of(10, b"")),
        bytes([NOTHING]) + _whole(least + field_of(99, b"later"), version=2),
        bytes([NOTHING]) + _whole(least, version=2, compatible=2),
        bytes([NOTHING | AS_IT_IS]) + _whole(least)[:-3],
        bytes([NOTHING]) + _whole(field_of(2, b"\4") * 2),
    ]


def tokens_of(of: Table) -> list[bytes]:
    """What fields have in front, with the length that is the right one for most, and the ends of bounds."""
    fields = [field for record in of.records.values() for field in record.fields]
    heads = {struct.pack(">HHI", field.number, 0, len(_value(of, field, False))) for field in fields}
    ends = {
        (field.most_legal + step).to_bytes(9, "big")[-WIDTHS[field.form] :]
        for field in fields
        if field.form in WIDTHS
        for step in (0, 1)
    }
    return sorted(heads | ends)


def record_tokens() -> list[bytes]:
    return tokens_of(table.TABLE)
