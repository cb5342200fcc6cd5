"""What RECORDS.md says of records, once more: written and read in Python, as the table declares them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from xts_messages.wire import record_table as table
from xts_messages.wire.record_form import WIDTHS, Field, Form, Record

#: By field: a number, a bool (descriptors and objects: is there one?), bytes, the values of a part, or a list of them.
Values = dict[str, Any]


class BadRecordError(Exception):
    """It is not a record of this table, or a value is not legal."""


def write(record: Record, values: Values, version: int = table.VERSION, compatible: int = table.COMPATIBLE) -> bytes:
    """The record; fields that are not in `values` are left out."""
    body = fields_written(record, values)
    return struct.pack("!HHI", version, compatible, len(body)) + body


def fields_written(record: Record, values: Values) -> bytes:
    """The fields alone, as they are in a part or an element."""
    named = {field.name: field for field in record.fields}
    ordered = sorted(((named[name], value) for name, value in values.items()), key=lambda one: one[0].number)
    return b"".join(field_written(field.number, _value_written(field, value)) for field, value in ordered)


def field_written(number: int, value: bytes) -> bytes:
    return struct.pack("!HHI", number, 0, len(value)) + value


def _value_written(field: Field, value: Any) -> bytes:
    if field.form in (Form.STREAM, Form.OCTETS):
        return bytes(value)
    if field.form is Form.RECORD:
        return fields_written(table.RECORDS[field.of], value)
    if field.form is Form.LIST:
        parts = [fields_written(table.RECORDS[field.of], one) for one in value]
        return b"".join(struct.pack("!I", len(part)) + part for part in parts)
    return int(value).to_bytes(WIDTHS.get(field.form, 1), "big")


def read(record: Record, data: bytes) -> Values:
    """The values of a record of this version; BadRecordError."""
    if len(data) < 8 or struct.unpack_from("!HHI", data) != (table.VERSION, table.COMPATIBLE, len(data) - 8):
        raise BadRecordError("head")
    return _fields_read(record, data[8:])


def _fields_read(record: Record, data: bytes) -> Values:
    numbered = {field.number: field for field in record.fields}
    values: Values = {}
    before = 0
    while data:
        if len(data) < 8:
            raise BadRecordError("head of a field")
        number, zero, length = struct.unpack_from("!HHI", data)
        value, data = data[8 : 8 + length], data[8 + length :]
        if zero or number <= before or number not in numbered or len(value) < length:
            raise BadRecordError(f"field {number}")
        before = number
        values[numbered[number].name] = _value_read(numbered[number], value)
    missing = [f.name for f in record.fields if f.default is None and f.name not in values]
    if missing:
        raise BadRecordError(f"missing: {missing}")
    return values


def _value_read(field: Field, data: bytes) -> Any:
    if field.form is Form.RECORD:
        return _fields_read(table.RECORDS[field.of], data)
    if field.form is Form.LIST:
        parts = [_fields_read(table.RECORDS[field.of], part) for part in _elements(data)]
        _within(field, len(parts))
        return parts
    if field.form in (Form.STREAM, Form.OCTETS):
        _within(field, len(data))
        if field.form is Form.OCTETS and len(data) != field.most:
            raise BadRecordError(field.name)
        return data
    if len(data) != WIDTHS.get(field.form, 1):
        raise BadRecordError(field.name)
    number = int.from_bytes(data, "big")
    _within(field, number)
    return number


def _within(field: Field, number: int) -> None:
    if number > field.most_legal or (field.values and number not in field.values):
        raise BadRecordError(f"{field.name}: {number}")


def _elements(data: bytes) -> Iterator[bytes]:
    while data:
        if len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            raise BadRecordError("element")
        length = int.from_bytes(data[:4], "big")
        yield data[4 : 4 + length]
        data = data[4 + length :]


def whole(record: Record, values: Values) -> Values:
    """With the defaults of what is not there, as it is written again."""
    full: Values = {}
    for field in record.fields:
        if field.form is Form.RECORD:
            full[field.name] = whole(table.RECORDS[field.of], values[field.name])
        elif field.form is Form.LIST:
            full[field.name] = [whole(table.RECORDS[field.of], one) for one in values.get(field.name, [])]
        elif field.form is Form.OCTETS:
            full[field.name] = values.get(field.name, bytes(field.most or 0))
        elif field.form is Form.STREAM:
            full[field.name] = values.get(field.name, b"")
        else:
            full[field.name] = values.get(field.name, field.default)
    return full
