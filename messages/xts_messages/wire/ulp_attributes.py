"""Conversion of protocol parameters, and of answers about protocols, between Python values and their wire form
(`ulps.py`).

Names are those of the table in small letters. Integers are `int`, FLAG is `bool`, STRING `str`, BYTES `bytes`; a
parameter that may be repeated takes a list or tuple of values. Nothing here does I/O or blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .ulps import BY_NAME, BY_NUMBER, FAULTS, Attribute, Item, Type, Ulp

Value = int | bool | str | bytes
Parameters = Mapping[str, Value | Sequence[Value] | None]

_WIDTHS = {Type.U8: 1, Type.U16: 2, Type.U32: 4, Type.U64: 8}
_HEAD = struct.Struct("!HH")


def _table(ulp: Ulp | str) -> Ulp:
    if isinstance(ulp, Ulp):
        return ulp
    try:
        return BY_NAME[ulp.upper()]
    except KeyError:
        raise ValueError(f"there is no protocol {ulp!r}: one of {', '.join(sorted(BY_NAME)).lower()}") from None


def _encode_integer(value: Value, width: int, what: str) -> bytes:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} is an integer, not {type(value).__name__}")
    least = -(1 << 63) if width == 8 else 0
    if not least <= value < 1 << 8 * width:
        raise ValueError(f"{what} has {8 * width} bits: {value} does not fit")
    return (value % (1 << 8 * width)).to_bytes(width, "big")


def _encode_value(kind: Type, value: Value, what: str) -> bytes:
    if kind in _WIDTHS:
        return _encode_integer(value, _WIDTHS[kind], what)
    if kind is Type.STRING:
        if not isinstance(value, str):
            raise TypeError(f"{what} is a str, not {type(value).__name__}")
        if not value or "\0" in value:
            raise ValueError(f"{what} is neither empty nor has a zero byte: {value!r}")
        return value.encode()
    if kind is Type.BYTES:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"{what} is bytes, not {type(value).__name__}")
        return bytes(value)
    return b""


def _values(attribute: Attribute, given: Value | Sequence[Value] | None, what: str) -> list[Value]:
    if given is None:
        return []
    if attribute.type is Type.FLAG:
        if not isinstance(given, bool):
            raise TypeError(f"{what} is True or False, not {given!r}")
        return [True] if given else []
    if isinstance(given, list | tuple):
        if not attribute.repeated:
            raise TypeError(f"{what} has one value")
        return list(given)
    return [given]  # type: ignore[list-item]


def encode_attributes(ulp: Ulp | str, parameters: Parameters) -> bytes:
    """The attributes of a push. A value of None (for a flag, False) leaves the parameter out. ValueError or TypeError,
    with the parameter's name, for parameters or values that the table does not allow. The proxy checks the rest."""
    ulp = _table(ulp)
    known = {a.name.lower(): a for a in ulp.attributes}
    if unknown := sorted(set(parameters) - set(known)):
        raise ValueError(f"{ulp.name.lower()} has no parameter {unknown[0]!r}: {', '.join(known) or 'it has none'}")
    encoded = bytearray()
    for name, attribute in known.items():
        what = f"{ulp.name.lower()}: {name}"
        values = _values(attribute, parameters.get(name), what)
        if attribute.required and not values:
            raise ValueError(f"{what} is required: {attribute.meaning}")
        for value in values:
            data = _encode_value(attribute.type, value, what)
            if len(data) > 0xFFFF:
                raise ValueError(f"{what} is too long: {len(data)} bytes")
            encoded += _HEAD.pack(attribute.number, len(data)) + data
    return bytes(encoded)


def _decode_value(kind: Type, data: bytes, what: str) -> Value:
    if kind in _WIDTHS and len(data) != _WIDTHS[kind]:
        raise ValueError(f"{what} has {_WIDTHS[kind]} bytes, not {len(data)}")
    if kind in _WIDTHS:
        return int.from_bytes(data, "big")
    if kind is Type.STRING:
        return data.decode()
    if kind is Type.BYTES:
        return data
    if data:
        raise ValueError(f"{what} is a flag and has no value")
    return True


def decode_attributes(ulp: Ulp | str, data: bytes) -> dict[str, Value | list[Value]]:
    """The parameters of a push, by name; a repeated one is a list. ValueError for malformed bytes."""
    ulp = _table(ulp)
    known = {a.number: a for a in ulp.attributes}
    parameters: dict[str, Value | list[Value]] = {}
    at = 0
    while at < len(data):
        if len(data) - at < _HEAD.size:
            raise ValueError(f"parameters end within the head of one, at byte {at}")
        number, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if length > len(data) - at:
            raise ValueError(f"parameter {number} says {length} bytes, and {len(data) - at} are left")
        attribute = known.get(number)
        if attribute is None:
            raise ValueError(f"{ulp.name.lower()} has no parameter {number}")
        name = attribute.name.lower()
        value = _decode_value(attribute.type, data[at : at + length], f"{ulp.name.lower()}: {name}")
        at += length
        if attribute.repeated:
            values = parameters.setdefault(name, [])
            assert isinstance(values, list)
            values.append(value)
        elif name in parameters:
            raise ValueError(f"{ulp.name.lower()}: {name} is there twice")
        else:
            parameters[name] = value
    return parameters


def find_item(ulp: Ulp | str, name: str) -> Item:
    """An item that ULP_INFO reports about a protocol, by its name in small letters. ValueError: no such item."""
    ulp = _table(ulp)
    for item in ulp.items:
        if item.name == name.upper():
            return item
    names = ", ".join(item.name.lower() for item in ulp.items)
    raise ValueError(f"{ulp.name.lower()} does not report {name!r}: {names or 'it reports nothing'}")


def decode_item(item: Item, data: bytes) -> Value:
    """The value of a complete item. ValueError for a wrong length."""
    return _decode_value(item.type, data, item.name.lower())


@dataclass(frozen=True, slots=True)
class UlpError:
    """Why a protocol made the connection fail, or why the last push was refused. `fault` is a name from FAULTS, in
    small letters; "" with `error` 0 if nothing has happened."""

    error: int
    fault: str
    text: str


def decode_error(data: bytes) -> UlpError:
    """Decodes the answer to ULP_ERROR. ValueError for a malformed one."""
    if len(data) < _HEAD.size:
        raise ValueError(f"an answer to ULP_ERROR has 4 bytes or more, not {len(data)}")
    error, number = _HEAD.unpack_from(data)
    number &= 0xFF  # above it is the protocol
    names = {fault: name.lower() for name, (fault, _, _) in FAULTS.items()}
    fault = names.get(number, str(number)) if number else ""
    return UlpError(error, fault, data[_HEAD.size :].decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class Offer:
    """A protocol that a proxy offers. `name`: in small letters, or its number if this side does not know it."""

    number: int
    name: str
    version: int
    receive: bool
    send: bool


def decode_list(data: bytes) -> list[Offer]:
    """Decodes the answer to ULP_LIST. ValueError for a malformed one."""
    if len(data) % 5:
        raise ValueError(f"an answer to ULP_LIST has 5 bytes for each protocol, not {len(data)} in all")
    offers = []
    for number, version, directions in struct.iter_unpack("!HHB", data):
        name = BY_NUMBER[number].name.lower() if number in BY_NUMBER else str(number)
        offers.append(Offer(number, name, version, bool(directions & 1), bool(directions & 2)))
    return offers
