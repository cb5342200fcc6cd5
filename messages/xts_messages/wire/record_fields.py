"""Fields of the records of pushed protocols (record_framing.py, record_messages.py), all of which have defaults."""

from __future__ import annotations

from .record_form import Field, Form, Privacy

#: Since which version of the table.
SINCE = 2
CONTROL_BYTES = 16
#: Of a protocol, with what its peer and its host have sent and nobody has taken.
STATE_MAX = 1 << 26

#: As ULP_IN_BYTES and ULP_FRAMING_HEAD_MAX (ulp.h, framing.h).
AHEAD_MAX = 4096
HEAD_MAX = 256


def numeric(number: int, name: str, form: Form, meaning: str, most: int | None = None) -> Field:
    return Field(number, name, form, meaning, default=0, most=most, since=SINCE)


def u8(number: int, name: str, meaning: str, most: int | None = None) -> Field:
    return numeric(number, name, Form.U8, meaning, most)


def u16(number: int, name: str, meaning: str, most: int | None = None) -> Field:
    return numeric(number, name, Form.U16, meaning, most)


def u32(number: int, name: str, meaning: str, most: int | None = None) -> Field:
    return numeric(number, name, Form.U32, meaning, most)


def u64(number: int, name: str, meaning: str) -> Field:
    return numeric(number, name, Form.U64, meaning)


def flag(number: int, name: str, meaning: str) -> Field:
    return numeric(number, name, Form.FLAG, meaning)


def octets(number: int, name: str, meaning: str, most: int, privacy: Privacy = Privacy.CONTENT) -> Field:
    return Field(number, name, Form.OCTETS, meaning, default=0, most=most, since=SINCE, privacy=privacy)


def part(number: int, name: str, of: str, meaning: str) -> Field:
    return Field(number, name, Form.RECORD, meaning, default=0, since=SINCE, c_type=f"struct {of}", of=of)


def stream(number: int, name: str, meaning: str, most: int, c_type: str) -> Field:
    return Field(
        number,
        name,
        Form.STREAM,
        meaning,
        default=0,
        most=most,
        since=SINCE,
        privacy=Privacy.CONTENT,
        c_type=f"struct {c_type}",
        ops=f"{c_type}_stream",
    )


def ahead(number: int) -> Field:
    return stream(number, "in", "bytes read ahead", AHEAD_MAX, "ulp_in")


def waiting(number: int, name: str, meaning: str) -> Field:
    return stream(number, name, meaning, STATE_MAX, "ulp_out")
