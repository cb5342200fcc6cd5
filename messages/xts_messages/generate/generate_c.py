"""Generates `native/wire/wire.h` from the wire table: constants, wire layout, host-order structs, encode and decode.

The layout is declared twice on purpose. The packed `struct xts_wire_*` leave it to the compiler to place the fields;
the assertions after each compare the result with the offsets and sizes computed here from the table. Encoding and
decoding use the packed structs, so a mistake in either declaration fails to compile.

After one length check, decoding reads each field once, into a private struct: a peer that rewrites shared memory at the
same time can change what we read, but not what we have checked.
"""

from __future__ import annotations

import errno
import itertools
import textwrap
from collections.abc import Iterable, Iterator

from xts_messages.wire import wire_table as table
from xts_messages.wire.wire_table import Field, Kind, Message

_COLUMNS = 120
_TAB = 8
_C_TYPE = {
    Kind.U8: "uint8_t",
    Kind.U16: "uint16_t",
    Kind.U32: "uint32_t",
    Kind.U64: "uint64_t",
    Kind.I32: "int32_t",
    Kind.ENDPOINT: "struct xts_endpoint",
}
_WIRE_TYPE = {
    Kind.U8: "__u8",
    Kind.U16: "__be16",
    Kind.U32: "__be32",
    Kind.U64: "__be64",
    Kind.I32: "__be32",
    Kind.ENDPOINT: "struct xts_wire_endpoint",
}
_BITS = {Kind.U8: "8", Kind.U16: "16", Kind.U32: "32", Kind.U64: "64"}

_PRELUDE = """\
/* Generated from messages/xts_messages/wire/wire_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_WIRE_H
#define XTS_WIRE_H

#include <linux/types.h>

"""

#: Everything from here on needs the C library's headers, which a BPF program cannot include.
_USER_SPACE = """\
#ifndef __bpf__

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A value that has been read is not read again: the compiler may not go back to memory that the peer can change. */
#define XTS_READ(v) __asm__("" : "+r"(v))

static inline uint8_t xts_get8(const uint8_t *p) { uint8_t v = *p; XTS_READ(v); return v; }
static inline uint16_t xts_get16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); XTS_READ(v); return be16toh(v); }
static inline uint32_t xts_get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); XTS_READ(v); return be32toh(v); }
static inline uint64_t xts_get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); XTS_READ(v); return be64toh(v); }
static inline void xts_put8(uint8_t *p, uint8_t v) { *p = v; }
static inline void xts_put16(uint8_t *p, uint16_t v) { v = htobe16(v); memcpy(p, &v, sizeof v); }
static inline void xts_put32(uint8_t *p, uint32_t v) { v = htobe32(v); memcpy(p, &v, sizeof v); }
static inline void xts_put64(uint8_t *p, uint64_t v) { v = htobe64(v); memcpy(p, &v, sizeof v); }
"""

_ENDPOINT = """\
static inline void xts_endpoint_get(struct xts_endpoint *e, const uint8_t *p)
{
	e->port = xts_get16(p + offsetof(struct xts_wire_endpoint, port));
	e->ip_version = xts_get8(p + offsetof(struct xts_wire_endpoint, ip_version));
	e->scope_id = xts_get32(p + offsetof(struct xts_wire_endpoint, scope_id));
	memcpy(e->address, p + offsetof(struct xts_wire_endpoint, address), sizeof e->address);
}

static inline void xts_endpoint_put(uint8_t *p, const struct xts_endpoint *e)
{
	xts_put16(p + offsetof(struct xts_wire_endpoint, port), e->port);
	xts_put8(p + offsetof(struct xts_wire_endpoint, ip_version), e->ip_version);
	xts_put8(p + offsetof(struct xts_wire_endpoint, reserved), 0);
	xts_put32(p + offsetof(struct xts_wire_endpoint, scope_id), e->scope_id);
	memcpy(p + offsetof(struct xts_wire_endpoint, address), e->address, sizeof e->address);
}
"""

_HEAD_ENCODE = """\
/* Writes type, flags, error and id; the link fills in the Ethernet header, seqno and frame_ack (xts_link_seal). */
static inline void xts_head_encode(void *frame, uint8_t type, uint8_t flags, uint16_t error, uint32_t id)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put8(p + offsetof(struct xts_wire_head, type), type);
	xts_put8(p + offsetof(struct xts_wire_head, flags), flags);
	xts_put16(p + offsetof(struct xts_wire_head, error), error);
	xts_put32(p + offsetof(struct xts_wire_head, id), id);
}
"""


def _aligned(rows: Iterable[tuple[str, str]], indent: str = "\t") -> Iterator[str]:
    """Lines of code with their comments in one column, wrapped at the line's end."""
    rows = list(rows)
    width = max(len(code) for code, _ in rows)
    column = _TAB * len(indent) + width + 1
    for code, comment in rows:
        first, *more = textwrap.wrap(comment, _COLUMNS - column - len("/*  */"))
        pad = indent + " " * (width + 1)
        lines = [f"{indent}{code:{width}} /* {first}", *(f"{pad} * {line}" for line in more)]
        yield from lines[:-1]
        yield f"{lines[-1]} */"


def _comment(text: str) -> Iterator[str]:
    """A comment of one line, or of several in the kernel's style."""
    if len(text) + len("/*  */") <= _COLUMNS:
        yield f"/* {text} */"
        return
    yield "/*"
    for line in textwrap.wrap(text, _COLUMNS - len(" * ")):
        yield f" * {line}"
    yield " */"


#: Constants of the table that C has under the same names, with the prefix XTS_.
_CONSTANTS = (
    "ETH_BYTES",
    "HEAD_BYTES",
    "ETH_MIN_BYTES",
    "FRAME_BYTES_MAX",
    "FRAME_BYTES_SINGLE",
    "FRAME_BYTES_LEAST",
    "FRAME_WINDOW_MAX",
    "FRAME_WINDOW_MIN",
    "CONTROL_RESERVE",
    "CREDITS_MAX",
    "PDU_CREDITS",
    "ULP_WINDOW_MIN",
    "CONNECT_PUSH_BYTES",
    "NAME_QUERY_BYTES_MAX",
    "OVER_BYTES_MAX",
    "TOKEN_PAYLOAD_BYTES_MAX",
    "TOKEN_CGROUP_BYTES_MAX",
    "FAMILY_IPV4",
    "FAMILY_IPV6",
    "RELAY_SELF",
    "RELAY_SHIFT",
    "RELAYED_MAX",
    "RELAYED_WINDOW",
    "MOVE_QUIET_MS",
    "SOL_XTS",
    "INTERFACE_STAMPS",
    "OPTION_FILTER",
    "FILTER_BYTES_MAX",
    "FILTER_NAME_BYTES_MAX",
    "DATAGRAM_RECORD_BYTES",
    "DATAGRAM_CONTROL_BYTES_MAX",
    "DATAGRAM_CREDITS",
    "DATAGRAM_WINDOW_MIN",
    "DATAGRAM_WINDOW_DEFAULT",
)


def _constants() -> Iterator[str]:
    values = [("WIRE_VERSION", f"{table.VERSION}u"), ("ETHERTYPE", f"0x{table.ETHERTYPE:04X}u")]
    values += [(name, f"{getattr(table, name)}u") for name in _CONSTANTS]
    for name, value in values:
        yield f"#define XTS_{name:18} {value}"
    yield ""
    yield "enum xts_msg_type {"
    name_width = max(len(m.name) for m in table.MESSAGES)
    yield from _aligned((f"{m.name:{name_width}} = {m.code},", f"{m.sender}: {m.meaning}") for m in table.MESSAGES)
    yield "};"
    yield ""
    yield from _aligned(
        ((f"#define XTS_FLAG_{name:6} 0x{bit:02x}u", meaning) for name, (bit, meaning) in table.FLAGS.items()),
        indent="",
    )
    yield ""
    yield from _aligned(
        (
            (f"#define XTS_FEATURE_{name:7} UINT64_C(0x{bit:x})", meaning)
            for name, (bit, meaning) in table.FEATURES.items()
        ),
        indent="",
    )
    yield ""
    yield "/* Why the proxy refuses a request: in a reply, where other messages have their flags. */"
    yield "enum xts_refusal {"
    yield "\tXTS_REFUSED_NONE, /* not refused, or by the TCP of the device: errno says it all */"
    yield from _aligned(
        (f"XTS_REFUSED_{name:18} = {number},", sentence) for name, (number, _, sentence) in table.REFUSALS.items()
    )
    yield "};"
    yield ""
    yield "/* Parts of a frame's head: what it has. */"
    yield from _aligned(
        ((f"#define XTS_HEAD_{name:8} 0x{bit:02x}u", meaning) for name, (bit, meaning) in table.HEAD_PARTS.items()),
        indent="",
    )
    yield ""
    yield "/* Parts of the head of a frame that is repeated. */"
    yield from _aligned(
        ((f"#define XTS_ARQ_{name:8} 0x{bit:02x}u", meaning) for name, (bit, meaning) in table.ARQ_PARTS.items()),
        indent="",
    )
    yield ""
    yield "/* Further claims of an attach token. */"
    yield "enum xts_token_claim {"
    yield from _aligned(
        (f"XTS_CLAIM_{name:6} = {number},", f"{size} bytes, {meaning}")
        for name, (number, size, meaning) in table.TOKEN_CLAIMS.items()
    )
    yield "};"
    yield ""
    yield "/* Control items of a datagram. */"
    yield "enum xts_datagram_control {"
    yield from _aligned(
        (f"XTS_DATAGRAM_{name:13} = {number},", f"{size} bytes, {meaning}")
        for name, (number, size, meaning) in table.DATAGRAM_CONTROLS.items()
    )
    yield "};"
    yield ""
    yield "/* The fixed part of each message in bytes, Ethernet header included. */"
    for m in table.MESSAGES:
        yield f"#define {_size(m):23} {m.fixed_bytes}u"
    yield ""


def _size(message: Message) -> str:
    return f"XTS_{message.stem.upper()}_BYTES"


def _wire_struct(name: str, rows: list[tuple[str, str, int]], total: int) -> Iterator[str]:
    """A packed struct of (type, member, offset expected) and the assertions that hold it to the table."""
    yield f"struct xts_wire_{name} {{"
    for c_type, member, _ in rows:
        yield f"\t{c_type} {member};"
    yield "} __attribute__((packed));"
    yield f'_Static_assert(sizeof(struct xts_wire_{name}) == {total}, "{name}: size");'
    for _, member, offset in rows:
        bare = member.split("[")[0]
        yield (
            f'_Static_assert(__builtin_offsetof(struct xts_wire_{name}, {bare}) == {offset}, "{name}.{bare}: offset");'
        )


def _placed(fields: Iterable[Field], start: int) -> list[tuple[str, str, int]]:
    rows = []
    for f in fields:
        rows.append((_WIRE_TYPE[f.kind], f.name, start))
        start += f.kind.bytes
    return rows


def _wire_structs() -> Iterator[str]:
    yield "/* The layout on the wire: packed, network byte order. Not for memory that a peer can still change. */"
    yield ""
    fixed = table.Kind.ENDPOINT.bytes - table.ENDPOINT_ADDRESS_BYTES
    yield from _wire_struct(
        "endpoint",
        [*_placed(table.ENDPOINT, 0), ("__u8", f"address[{table.ENDPOINT_ADDRESS_BYTES}]", fixed)],
        table.Kind.ENDPOINT.bytes,
    )
    yield ""
    yield from _wire_struct(
        "head",
        [
            ("__u8", "destination[6]", 0),
            ("__u8", "source[6]", 6),
            ("__be16", "ethertype", 12),
            *_placed(table.HEAD, table.ETH_BYTES),
        ],
        table.HEAD_BYTES,
    )
    yield ""
    yield from _wire_struct("datagram_record", _placed(table.DATAGRAM_RECORD, 0), table.DATAGRAM_RECORD_BYTES)
    yield ""
    yield ""
    for m in table.MESSAGES:
        yield from _wire_struct(
            m.stem, [("struct xts_wire_head", "head", 0), *_placed(m.fields, table.HEAD_BYTES)], m.fixed_bytes
        )
        yield f'_Static_assert({_size(m)} == sizeof(struct xts_wire_{m.stem}), "{m.stem}: constant");'
        yield ""


def _host_struct(name: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield f"struct xts_{name} {{"
    yield from _aligned(rows)
    yield "};"
    yield ""


def member(field: Field) -> tuple[str, str]:
    """Its declaration as a member of a struct in host order, and its meaning."""
    note = field.meaning + (f" ({field.unit})" if field.unit else "")
    return f"{_C_TYPE[field.kind]} {field.name};", note


def _common() -> Iterator[str]:
    """The endpoint and the head."""
    yield "/* An address and port, host order. */"
    yield from _host_struct(
        "endpoint",
        [
            *(member(f) for f in table.ENDPOINT if f.name != "reserved"),
            (f"uint8_t address[{table.ENDPOINT_ADDRESS_BYTES}];", table.ENDPOINT_ADDRESS_MEANING),
        ],
    )
    yield _ENDPOINT
    yield "/* What every message begins with, after the Ethernet header. */"
    yield from _host_struct("head", (member(f) for f in table.HEAD))
    yield "/* frame points at the Ethernet header. Returns 0, or -EBADMSG when it is too short. */"
    yield from _decoder("head", "XTS_HEAD_BYTES", table.HEAD, [])
    yield _HEAD_ENCODE


def _get(stem: str, field: Field) -> str:
    at = f"p + offsetof(struct xts_wire_{stem}, {field.name})"
    if field.kind is Kind.ENDPOINT:
        return f"xts_endpoint_get(&m->{field.name}, {at});"
    if field.kind is Kind.I32:
        return f"m->{field.name} = (int32_t)xts_get32({at});"
    return f"m->{field.name} = xts_get{_BITS[field.kind]}({at});"


def _put(stem: str, field: Field) -> str:
    at = f"p + offsetof(struct xts_wire_{stem}, {field.name})"
    if field.kind is Kind.ENDPOINT:
        return f"xts_endpoint_put({at}, &m->{field.name});"
    if field.kind is Kind.I32:
        return f"xts_put32({at}, (uint32_t)m->{field.name});"
    return f"xts_put{_BITS[field.kind]}({at}, m->{field.name});"


def _illegal(field: Field, value: str) -> Iterator[str]:
    """Conditions under which a value breaks the table's limits."""
    if field.limit is not None:
        yield f"{value} > {field.limit}u"
    if field.values:
        yield " && ".join(f"{value} != {legal}" for legal in field.values)


def _checks(message: Message) -> Iterator[str]:
    """Conditions under which a received message is malformed."""
    for field in message.fields:
        yield from _illegal(field, f"m->{field.name}")
        if field.kind is Kind.ENDPOINT:
            for part in table.ENDPOINT:
                yield from _illegal(part, f"m->{field.name}.{part.name}")
    if message.payload:
        yield f"m->{message.payload} > frame_bytes - {_size(message)}"
        # Bytes that the length field does not cover must be Ethernet's padding; otherwise the length is wrong.
        yield f"m->{message.payload} < frame_bytes - {_size(message)} && frame_bytes > XTS_ETH_MIN_BYTES"


def _decoder(stem: str, size: str, fields: Iterable[Field], checks: Iterable[str]) -> Iterator[str]:
    yield f"static inline int xts_{stem}_decode(struct xts_{stem} *m, const void *frame, size_t frame_bytes)"
    yield "{"
    yield "\tconst uint8_t *p = (const uint8_t *)frame;"
    yield ""
    yield f"\tif (frame_bytes < {size})"
    yield "\t\treturn -EBADMSG;"
    for f in fields:
        yield f"\t{_get(stem, f)}"
    for condition in checks:
        yield f"\tif ({condition})"
        yield "\t\treturn -EBADMSG;"
    yield "\treturn 0;"
    yield "}"
    yield ""


def _datagram_record() -> Iterator[str]:
    fields = [f for f in table.DATAGRAM_RECORD if f.name != "reserved"]
    yield "/* What each datagram begins with, in the payload of SEND_DATAGRAMS and RECV_DATAGRAMS. */"
    yield from _host_struct("datagram_record", (member(f) for f in fields))
    checks = [condition for f in fields if f.kind is not Kind.ENDPOINT for condition in _illegal(f, f"m->{f.name}")]
    checks += [c for part in table.ENDPOINT for c in _illegal(part, f"m->endpoint.{part.name}")]
    yield "/* frame points at the record. Returns 0, or -EBADMSG when it is too short or no record. */"
    yield from _decoder("datagram_record", "XTS_DATAGRAM_RECORD_BYTES", fields, checks)
    yield from _encoder(
        "datagram_record", fields, ["xts_put16(p + offsetof(struct xts_wire_datagram_record, reserved), 0);"]
    )


def _encoder(stem: str, fields: Iterable[Field], more: Iterable[str] = ()) -> Iterator[str]:
    yield f"static inline void xts_{stem}_encode(void *frame, const struct xts_{stem} *m)"
    yield "{"
    yield "\tuint8_t *p = (uint8_t *)frame;"
    yield ""
    for f in fields:
        yield f"\t{_put(stem, f)}"
    yield from (f"\t{line}" for line in more)
    yield "}"
    yield ""


def _message(message: Message) -> Iterator[str]:
    stem = message.stem
    yield from _comment(f"{message.name}: {message.meaning}. id: {message.id_of or 'unused'}.")
    yield from _host_struct(stem, (member(f) for f in message.fields))
    yield from _decoder(stem, _size(message), message.fields, _checks(message))
    yield from _encoder(stem, message.fields)


def _switch(
    signature: str, comment: str, cases: Iterable[tuple[str, str]], default: str, argument: str = "type"
) -> Iterator[str]:
    if comment:
        yield f"/* {comment} */"
    yield f"static inline {signature}"
    yield "{"
    yield f"\tswitch ({argument}) {{"
    for label, value in cases:
        yield f"\tcase {label}: return {value};"
    yield f"\tdefault: return {default};"
    yield "\t}"
    yield "}"
    yield ""


def _secret(message: table.Message) -> tuple[int, int] | None:
    """Where the secret fields of a message begin, and their length: they are next to each other."""
    at, found = table.HEAD_BYTES, []
    for one in message.fields:
        if one.secret:
            found.append((at, one.kind.bytes))
        at += one.kind.bytes
    assert all(first + size == second for (first, size), (second, _) in itertools.pairwise(found))
    return (found[0][0], sum(size for _, size in found)) if found else None


def _type_tables() -> Iterator[str]:
    messages = table.MESSAGES
    yield from _switch(
        "size_t xts_type_bytes(uint8_t type)",
        "The fixed part of a type in bytes, or 0 when the type is unknown.",
        ((m.name, _size(m)) for m in messages),
        "0",
    )
    yield from _switch(
        "uint8_t xts_type_flags(uint8_t type)",
        "The flags that are legal with a type.",
        ((m.name, " | ".join(f"XTS_FLAG_{name}" for name in m.flags)) for m in messages if m.flags),
        "0",
    )
    yield from _switch(
        "uint64_t xts_type_feature(uint8_t type)",
        "The feature that the link has to have negotiated for a type, or 0.",
        ((m.name, f"XTS_FEATURE_{m.feature}") for m in messages if m.feature),
        "0",
    )
    yield from _switch(
        "uint32_t xts_type_secret(uint8_t type)",
        "Where a secret field of a type begins, or 0: whoever knows it has a right by it.",
        ((m.name, str(found[0])) for m in messages if (found := _secret(m))),
        "0",
    )
    yield from _switch(
        "uint32_t xts_type_secret_bytes(uint8_t type)",
        "How long the secret fields of a type are together.",
        ((m.name, str(found[1])) for m in messages if (found := _secret(m))),
        "0",
    )
    refusals = table.REFUSALS.items()
    yield from _switch(
        "int xts_refusal_errno(unsigned refusal)",
        "The errno that goes with a refusal; 0 for a number that this version does not know.",
        ((f"XTS_REFUSED_{name}", errno.errorcode[error]) for name, (_, error, _) in refusals),
        "0",
        "refusal",
    )
    yield from _switch(
        "const char *xts_refusal_text(unsigned refusal)",
        "The sentence about it, or NULL.",
        ((f"XTS_REFUSED_{name}", f'"{sentence}"') for name, (_, _, sentence) in refusals),
        "NULL",
        "refusal",
    )
    yield from _comment(
        "Does the type take a frame credit and a sequence number? Its range says so, for later types too."
    )
    yield "static inline int xts_type_sequenced(uint8_t type)"
    yield "{"
    first, last = table.LINK_CODES[0], table.LINK_CODES[-1]
    gap = [code for code in range(first, last) if code not in table.LINK_CODES]
    assert last == 255
    yield f"\treturn type < {first}u || (type >= {gap[0]}u && type <= {gap[-1]}u);"
    yield "}"
    yield ""
    for role, other in (("host", "proxy"), ("proxy", "host")):
        yield from _switch(
            f"int xts_type_to_{role}(uint8_t type)",
            f"May the {other} send this type to the {role}?",
            ((m.name, "1") for m in messages if m.sender in (other, "both")),
            "0",
        )
    yield from _switch(
        "const char *xts_type_name(uint8_t type)", "", ((m.name, f'"{m.name}"') for m in messages), '"unknown"'
    )


def header() -> str:
    """The text of wire.h."""
    user_space = [*_common(), *_datagram_record()]
    for message in table.MESSAGES:
        if message.fields:
            user_space += _message(message)
    user_space += _type_tables()
    return (
        _PRELUDE
        + "\n".join([*_constants(), *_wire_structs()])
        + "\n"
        + _USER_SPACE
        + "\n"
        + "\n".join(user_space)
        + "\n#endif /* __bpf__ */\n\n#endif\n"
    )
