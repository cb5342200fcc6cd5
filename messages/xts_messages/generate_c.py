"""Generates `native/wire.h` from the wire table: constants, host-order structs, and encode/decode functions.

Decoding reads each field once, into a private struct, after one length check: a peer that rewrites shared memory
under us can change what we saw, never what we checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import table
from .table import Field, Kind, Message

_C_TYPE = {Kind.U8: "uint8_t", Kind.U16: "uint16_t", Kind.U32: "uint32_t", Kind.U64: "uint64_t", Kind.I32: "int32_t",
           Kind.ENDPOINT: "struct xts_endpoint"}
_BITS = {Kind.U8: "8", Kind.U16: "16", Kind.U32: "32", Kind.U64: "64"}

_PRELUDE = """\
/* Generated from messages/xts_messages/table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_WIRE_H
#define XTS_WIRE_H

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

"""

_ACCESSORS = """
static inline uint8_t xts_get8(const uint8_t *p) { return *p; }
static inline uint16_t xts_get16(const uint8_t *p) { uint16_t v; memcpy(&v, p, sizeof v); return be16toh(v); }
static inline uint32_t xts_get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, sizeof v); return be32toh(v); }
static inline uint64_t xts_get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, sizeof v); return be64toh(v); }
static inline void xts_put8(uint8_t *p, uint8_t v) { *p = v; }
static inline void xts_put16(uint8_t *p, uint16_t v) { v = htobe16(v); memcpy(p, &v, sizeof v); }
static inline void xts_put32(uint8_t *p, uint32_t v) { v = htobe32(v); memcpy(p, &v, sizeof v); }
static inline void xts_put64(uint8_t *p, uint64_t v) { v = htobe64(v); memcpy(p, &v, sizeof v); }

/* An address and port; IPv4 in the first four bytes of address. 24 bytes on the wire. */
struct xts_endpoint {
	uint16_t port;       /* host order */
	uint8_t ip_version;  /* 4, 6, or 0 for none */
	uint32_t scope_id;
	uint8_t address[16];
};

static inline void xts_endpoint_get(struct xts_endpoint *e, const uint8_t *p)
{
	e->port = xts_get16(p);
	e->ip_version = xts_get8(p + 2);
	e->scope_id = xts_get32(p + 4);
	memcpy(e->address, p + 8, 16);
}

static inline void xts_endpoint_put(uint8_t *p, const struct xts_endpoint *e)
{
	xts_put16(p, e->port);
	xts_put8(p + 2, e->ip_version);
	xts_put8(p + 3, 0);
	xts_put32(p + 4, e->scope_id);
	memcpy(p + 8, e->address, 16);
}

/* What every message begins with, after the Ethernet header. */
struct xts_head {
	uint8_t type;
	uint8_t seqno;
	uint8_t frame_ack; /* frames whose buffers the sender has recycled, modulo 256 */
	uint8_t flags;     /* XTS_FLAG_* */
	uint16_t error;    /* Linux errno, 0 for none */
	uint32_t id;       /* the target's identifier */
};

/* frame points at the Ethernet header. Returns 0, or -EBADMSG when it is too short. */
static inline int xts_head_decode(struct xts_head *h, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_HEAD_BYTES)
		return -EBADMSG;
	h->type = xts_get8(p + 14);
	h->seqno = xts_get8(p + 15);
	h->frame_ack = xts_get8(p + 16);
	h->flags = xts_get8(p + 17);
	h->error = xts_get16(p + 18);
	h->id = xts_get32(p + 20);
	return 0;
}

/* Writes type, flags, error and id; the link fills in the Ethernet header, seqno and frame_ack (xts_link_seal). */
static inline void xts_head_encode(void *frame, uint8_t type, uint8_t flags, uint16_t error, uint32_t id)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put8(p + 14, type);
	xts_put8(p + 17, flags);
	xts_put16(p + 18, error);
	xts_put32(p + 20, id);
}
"""


def _constants() -> Iterator[str]:
    yield f"#define XTS_WIRE_VERSION {table.VERSION}u"
    yield f"#define XTS_ETHERTYPE 0x{table.ETHERTYPE:04X}u"
    for name in ("ETH_BYTES", "HEAD_BYTES", "ETH_MIN_BYTES", "FRAME_BYTES_MAX", "FRAME_BYTES_SINGLE", "FRAME_WINDOW_MAX",
                 "FRAME_WINDOW_MIN", "CONTROL_RESERVE", "CREDITS_MAX"):
        yield f"#define XTS_{name} {getattr(table, name)}u"
    yield ""
    yield "enum xts_msg_type {"
    for message in table.MESSAGES:
        yield f"\t{message.name} = {message.code}, /* {message.sender}: {message.meaning} */"
    yield "};"
    yield ""
    for name, (bit, meaning) in table.FLAGS.items():
        yield f"#define XTS_FLAG_{name} 0x{bit:02x}u /* {meaning} */"


def _get(field: Field, offset: int) -> str:
    if field.kind is Kind.ENDPOINT:
        return f"xts_endpoint_get(&m->{field.name}, p + {offset});"
    if field.kind is Kind.I32:
        return f"m->{field.name} = (int32_t)xts_get32(p + {offset});"
    return f"m->{field.name} = xts_get{_BITS[field.kind]}(p + {offset});"


def _put(field: Field, offset: int) -> str:
    if field.kind is Kind.ENDPOINT:
        return f"xts_endpoint_put(p + {offset}, &m->{field.name});"
    if field.kind is Kind.I32:
        return f"xts_put32(p + {offset}, (uint32_t)m->{field.name});"
    return f"xts_put{_BITS[field.kind]}(p + {offset}, m->{field.name});"


def _checks(message: Message) -> list[str]:
    """Conditions under which a received message is malformed."""
    conditions = []
    for field in message.fields:
        if field.limit is not None:
            conditions.append(f"m->{field.name} > {field.limit}u")
        if field.kind is Kind.ENDPOINT:
            conditions.append(f"(m->{field.name}.ip_version != 0 && m->{field.name}.ip_version != 4 && "
                              f"m->{field.name}.ip_version != 6)")
    if message.payload:
        fixed = f"XTS_{message.stem.upper()}_BYTES"
        conditions.append(f"m->{message.payload} > frame_bytes - {fixed}")
        # What the length field does not cover must be Ethernet's padding, or the frame is not what it says.
        conditions.append(f"(m->{message.payload} < frame_bytes - {fixed} && frame_bytes > XTS_ETH_MIN_BYTES)")
    return conditions


def _message(message: Message) -> Iterator[str]:
    stem = message.stem
    size = f"XTS_{stem.upper()}_BYTES"
    yield f"/* {message.name}: {message.meaning}. id: {message.id_of or 'unused'}. */"
    yield f"#define {size} {message.fixed_bytes}u"
    if not message.fields:
        yield ""
        return
    yield f"struct xts_{stem} {{"
    for f in message.fields:
        note = f.meaning + (f" ({f.unit})" if f.unit else "")
        yield f"\t{_C_TYPE[f.kind]} {f.name}; /* {note} */"
    yield "};"
    yield ""
    yield f"static inline int xts_{stem}_decode(struct xts_{stem} *m, const void *frame, size_t frame_bytes)"
    yield "{"
    yield "\tconst uint8_t *p = (const uint8_t *)frame;"
    yield ""
    yield f"\tif (frame_bytes < {size})"
    yield "\t\treturn -EBADMSG;"
    offset = table.HEAD_BYTES
    encoders = []
    for f in message.fields:
        yield f"\t{_get(f, offset)}"
        encoders.append(f"\t{_put(f, offset)}")
        offset += f.kind.bytes
    for condition in _checks(message):
        yield f"\tif ({condition})" if not condition.startswith("(") else f"\tif {condition}"
        yield "\t\treturn -EBADMSG;"
    yield "\treturn 0;"
    yield "}"
    yield ""
    yield f"static inline void xts_{stem}_encode(void *frame, const struct xts_{stem} *m)"
    yield "{"
    yield "\tuint8_t *p = (uint8_t *)frame;"
    yield ""
    yield from encoders
    yield "}"
    yield f"_Static_assert({offset}u == {size}, \"{stem}: table and layout disagree\");"
    yield ""


def _type_tables() -> Iterator[str]:
    yield "/* The fixed part of a type in bytes, or 0 when the type is unknown. */"
    yield "static inline size_t xts_type_bytes(uint8_t type)"
    yield "{"
    yield "\tswitch (type) {"
    for m in table.MESSAGES:
        yield f"\tcase {m.name}: return XTS_{m.stem.upper()}_BYTES;"
    yield "\tdefault: return 0;"
    yield "\t}"
    yield "}"
    yield ""
    yield "/* Does the type take a frame credit and a sequence number? */"
    yield "static inline int xts_type_sequenced(uint8_t type)"
    yield "{"
    yield "\treturn type < 16 || type >= 32;"
    yield "}"
    assert all(m.sequenced == (m.code < 16 or m.code >= 32) for m in table.MESSAGES)
    yield ""
    for role, other in (("host", "proxy"), ("proxy", "host")):
        yield f"/* May the {other} send this type to the {role}? */"
        yield f"static inline int xts_type_to_{role}(uint8_t type)"
        yield "{"
        yield "\tswitch (type) {"
        for m in table.MESSAGES:
            if m.sender in (other, "both"):
                yield f"\tcase {m.name}:"
        yield "\t\treturn 1;"
        yield "\tdefault:"
        yield "\t\treturn 0;"
        yield "\t}"
        yield "}"
        yield ""
    yield "static inline const char *xts_type_name(uint8_t type)"
    yield "{"
    yield "\tswitch (type) {"
    for m in table.MESSAGES:
        yield f"\tcase {m.name}: return \"{m.name}\";"
    yield "\tdefault: return \"unknown\";"
    yield "\t}"
    yield "}"
    yield ""


def header() -> str:
    """The text of wire.h."""
    lines = [*_constants()]
    body: list[str] = []
    for message in table.MESSAGES:
        body += _message(message)
    return _PRELUDE + "\n".join(lines) + "\n" + _ACCESSORS + "\n" + "\n".join([*body, *_type_tables(), "#endif"]) + "\n"
