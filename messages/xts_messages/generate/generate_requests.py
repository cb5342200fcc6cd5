"""Generates the encoding of a host's requests, the messages that have a token: `host_lib/native/core/request_encode.h`.

One struct has the fields of all requests. A field of the same name means the same in each.
"""

from __future__ import annotations

from collections.abc import Iterator

from xts_messages.wire import wire_table as table
from xts_messages.wire.wire_table import Message

from .generate_c import member


def requests() -> list[Message]:
    """The messages with a token that a host may send; native/link/link_control.c makes those of the link."""
    sent = [m for m in table.MESSAGES if m.sender == "host" and m.sequenced]
    return [m for m in sent if any(f.name == "token" for f in m.fields)]


def _case(m: Message) -> Iterator[str]:
    yield f"\tcase {m.name}: {{"
    yield f"\t\tstruct xts_{m.stem} m = {{"
    yield from (f"\t\t\t.{f.name} = r->{f.name}," for f in m.fields)
    yield "\t\t};"
    yield ""
    yield f"\t\txts_{m.stem}_encode(frame, &m);"
    yield f"\t\treturn XTS_{m.stem.upper()}_BYTES;"
    yield "\t}"


def header() -> str:
    """The text of request_encode.h."""
    members: dict[str, str] = {}
    for field in (field for m in requests() for field in m.fields):
        declaration, _ = member(field)
        assert members.setdefault(field.name, declaration) == declaration, "one name, two types"
    lines = [
        "/* Generated from messages/xts_messages/wire/wire_table.py by"
        " `python -m xts_messages.generate`. Do not edit. */",
        "#ifndef XTS_REQUEST_ENCODE_H",
        "#define XTS_REQUEST_ENCODE_H",
        "",
        '#include "wire/wire.h"',
        "",
        "/* The fields of all requests. */",
        "struct request_fields {",
        *(f"\t{declaration}" for declaration in members.values()),
        "};",
        "",
        "/* Encodes the fields that a request of this type has, behind the head. Returns the bytes of both; 0: no",
        " * request has this type. */",
        "/* NOLINTNEXTLINE(readability-function-size): one case for each request */",
        "static inline uint32_t request_encode(uint8_t *frame, uint8_t type, const struct request_fields *r)",
        "{",
        "\tswitch (type) {",
        *(line for m in requests() for line in _case(m)),
        "\tdefault:",
        "\t\treturn 0;",
        "\t}",
        "}",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)
