/*
 * STREAM_PARSER: delineates PDUs by a declaration of where their length is (the paper, "strparser", without a program):
 * ((field & MASK) >> SHIFT) * UNIT + ADJUSTMENT bytes are the whole PDU, head included. It is handed on as it is.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "framing.h"
#include "ulp/protocols.h"

#define MAGIC_MAX 16u

struct stream_parser {
	struct ulp_framing framing; /* first */
	uint32_t offset, magic_offset, unit;
	uint32_t head_bytes;     /* all that the length and the magic lie in */
	uint64_t mask, adjustment;
	uint8_t width, shift, magic_bytes, magic_mask_bytes;
	bool little_endian, has_offset, has_magic_offset;
	uint8_t magic[MAGIC_MAX], magic_mask[MAGIC_MAX];
};

/* --- the length ------------------------------------------------------------------------------------------------------ */

/* False: not a number that a length can be. */
static bool length_of(const struct stream_parser *p, const uint8_t *data, uint64_t *length)
{
	uint64_t v = 0, less = -p->adjustment;

	for (unsigned i = 0; i < p->width; i++)
		v = v << 8 | data[p->offset + (p->little_endian ? p->width - 1u - i : i)];
	v = (v & p->mask) >> p->shift;
	if (__builtin_mul_overflow(v, (uint64_t)p->unit, &v))
		return false;
	if (p->adjustment >> 63) { /* negative */
		*length = v - less;
		return v >= less;
	}
	return !__builtin_add_overflow(v, p->adjustment, length);
}

static bool magic_fits(const struct stream_parser *p, const uint8_t *data)
{
	for (unsigned i = 0; i < p->magic_bytes; i++) {
		if ((data[p->magic_offset + i] ^ p->magic[i]) & p->magic_mask[i])
			return false;
	}
	return true;
}

static int parse_head(struct ulp_layer *l, const uint8_t *data, uint32_t bytes, struct ulp_framing_head *head)
{
	const struct stream_parser *p = l->state;

	if (bytes < p->head_bytes)
		return 0;
	if (!magic_fits(p, data)) {
		return ulp_fail(l, XTS_FAULT_RECORD, "stream_parser: a PDU without the magic bytes at %u (the first of them is 0x%02x)",
				p->magic_offset, data[p->magic_offset]);
	}
	if (!length_of(p, data, &head->length))
		return ulp_fail(l, XTS_FAULT_LENGTH, "stream_parser: the length field gives no length of 64 bits");
	if (head->length < p->head_bytes) {
		return ulp_fail(l, XTS_FAULT_LENGTH, "stream_parser: a length of %llu bytes, and the head alone has %u",
				(unsigned long long)head->length, p->head_bytes);
	}
	return 1;
}

/* --- parameters ------------------------------------------------------------------------------------------------------ */

static int magic_attribute(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, uint8_t *out, uint8_t *bytes)
{
	if (!a->bytes || a->bytes > MAGIC_MAX)
		return ulp_refuse(l, EINVAL, "stream_parser: %s has 1 to %u bytes, not %u", name, MAGIC_MAX, a->bytes);
	memcpy(out, a->value, a->bytes);
	*bytes = (uint8_t)a->bytes;
	return 0;
}

static int set_attribute(struct ulp_layer *l, const struct ulp_attribute *a)
{
	struct stream_parser *p = l->state;

	switch (a->type) {
	case XTS_STREAM_PARSER_MAX_BYTES:
		return ulp_max_bytes(l, a, &p->framing.max_bytes);
	case XTS_STREAM_PARSER_OFFSET:
		p->has_offset = true;
		return ulp_attribute_u32(l, a, "OFFSET", &p->offset);
	case XTS_STREAM_PARSER_WIDTH:
		return ulp_attribute_u8(l, a, "WIDTH", &p->width);
	case XTS_STREAM_PARSER_LITTLE_ENDIAN:
		return ulp_attribute_flag(l, a, "LITTLE_ENDIAN", &p->little_endian);
	case XTS_STREAM_PARSER_MASK:
		return ulp_attribute_u64(l, a, "MASK", &p->mask);
	case XTS_STREAM_PARSER_SHIFT:
		return ulp_attribute_u8(l, a, "SHIFT", &p->shift);
	case XTS_STREAM_PARSER_UNIT:
		return ulp_attribute_u32(l, a, "UNIT", &p->unit);
	case XTS_STREAM_PARSER_ADJUSTMENT:
		return ulp_attribute_u64(l, a, "ADJUSTMENT", &p->adjustment);
	case XTS_STREAM_PARSER_MAGIC_OFFSET:
		p->has_magic_offset = true;
		return ulp_attribute_u32(l, a, "MAGIC_OFFSET", &p->magic_offset);
	case XTS_STREAM_PARSER_MAGIC:
		return magic_attribute(l, a, "MAGIC", p->magic, &p->magic_bytes);
	case XTS_STREAM_PARSER_MAGIC_MASK:
		return magic_attribute(l, a, "MAGIC_MASK", p->magic_mask, &p->magic_mask_bytes);
	case XTS_STREAM_PARSER_TIMEOUT_MS:
		return ulp_attribute_u32(l, a, "TIMEOUT_MS", &p->framing.timeout_ms);
	default:
		return ulp_attribute_unknown(l, a);
	}
}

static int check_place(struct ulp_layer *l, const char *what, uint32_t offset, uint32_t bytes)
{
	if (offset > ULP_FRAMING_HEAD_MAX - bytes) {
		return ulp_refuse(l, EINVAL, "stream_parser: %s from byte %u on is not within the first %u bytes", what, offset,
				  ULP_FRAMING_HEAD_MAX);
	}
	return 0;
}

static int check(struct ulp_layer *l, struct stream_parser *p)
{
	int r;

	if (!p->has_offset || !p->width)
		return ulp_refuse(l, EINVAL, "stream_parser: OFFSET and WIDTH of the length field are required");
	if (p->width > 8)
		return ulp_refuse(l, EINVAL, "stream_parser: WIDTH is 1 to 8, not %u", p->width);
	if (p->shift > 63)
		return ulp_refuse(l, EINVAL, "stream_parser: SHIFT is 0 to 63, not %u", p->shift);
	if (!p->unit)
		return ulp_refuse(l, EINVAL, "stream_parser: UNIT is 0, so all lengths would be the same");
	if (p->magic_mask_bytes && p->magic_mask_bytes != p->magic_bytes) {
		return ulp_refuse(l, EINVAL, "stream_parser: MAGIC_MASK has %u bytes, and MAGIC %u", p->magic_mask_bytes,
				  p->magic_bytes);
	}
	if (p->has_magic_offset && !p->magic_bytes)
		return ulp_refuse(l, EINVAL, "stream_parser: MAGIC_OFFSET without MAGIC");
	r = check_place(l, "the length field", p->offset, p->width);
	if (!r)
		r = check_place(l, "MAGIC", p->magic_offset, p->magic_bytes);
	if (r)
		return r;
	if (!p->magic_mask_bytes)
		memset(p->magic_mask, 0xff, sizeof p->magic_mask);
	p->head_bytes = p->offset + p->width;
	if (p->magic_bytes && p->head_bytes < p->magic_offset + p->magic_bytes)
		p->head_bytes = p->magic_offset + p->magic_bytes;
	if (p->head_bytes > p->framing.max_bytes) {
		return ulp_refuse(l, EINVAL, "stream_parser: the head of %u bytes is longer than MAX_BYTES, %u", p->head_bytes,
				  p->framing.max_bytes);
	}
	return 0;
}

static int stream_parser_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	struct stream_parser *p = calloc(1, sizeof *p);
	int r;

	if (!p)
		return ulp_refuse(l, ENOMEM, "no memory for stream_parser");
	l->state = p;
	p->unit = 1;
	p->mask = UINT64_MAX;
	p->framing.parse = parse_head;
	p->framing.max_bytes = ulp_max_bytes_default(l);
	r = ulp_attributes(l, attributes, bytes, set_attribute);
	return r ? r : check(l, p);
}

const struct ulp_protocol ulp_stream_parser = {
	.id = XTS_ULP_STREAM_PARSER,
	.version = XTS_ULP_STREAM_PARSER_VERSION,
	.name = "stream_parser",
	.receive = true,
	.boundaries = true,
	.transparent = true,
	.open = stream_parser_open,
	.read = ulp_framed_read,
	.pending = ulp_framed_pending,
	.close = ulp_framed_close,
};
