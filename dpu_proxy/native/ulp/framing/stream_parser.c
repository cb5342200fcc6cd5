/*
 * STREAM_PARSER: delineates PDUs by a declaration of where their length is (the paper's "strparser", without a
 * program): the whole PDU, header included, has ((field & MASK) >> SHIFT) * UNIT + ADJUSTMENT bytes. It is delivered
 * unchanged.
 */
#include <errno.h>
#include <string.h>

#include "framing_move.h"
#include "length_field.h"
#include "ulp/protocols.h"

#define MAGIC_MAX 16u

static int check_magic(struct ulp_layer *l, const uint8_t *data)
{
	const struct stream_parser *p = l->state;

	for (unsigned i = 0; i < p->magic_bytes; i++) {
		if ((data[p->magic_offset + i] ^ p->magic[i]) & p->magic_mask[i]) {
			return ulp_fail(
				l, XTS_FAULT_RECORD,
				"stream_parser: a PDU without the magic bytes at %u (the first of them is 0x%02x)",
				p->magic_offset, data[p->magic_offset]);
		}
	}
	return 0;
}

static const struct length_field preset = { .check = check_magic };

/* --- parameters --------------------------------------------------------------------------------------------------- */

static int magic_attribute(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, uint8_t *out,
			   uint8_t *bytes)
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
	struct length_field *f = &p->field;

	switch (a->type) {
	case XTS_STREAM_PARSER_MAX_BYTES:
		return ulp_max_bytes(l, a, &f->framing.max_bytes);
	case XTS_STREAM_PARSER_OFFSET:
		p->has_offset = true;
		return ulp_attribute_u32(l, a, "OFFSET", &f->offset);
	case XTS_STREAM_PARSER_WIDTH:
		return ulp_attribute_u8(l, a, "WIDTH", &f->width);
	case XTS_STREAM_PARSER_LITTLE_ENDIAN:
		return ulp_attribute_flag(l, a, "LITTLE_ENDIAN", &f->little_endian);
	case XTS_STREAM_PARSER_MASK:
		return ulp_attribute_u64(l, a, "MASK", &f->mask);
	case XTS_STREAM_PARSER_SHIFT:
		return ulp_attribute_u8(l, a, "SHIFT", &f->shift);
	case XTS_STREAM_PARSER_UNIT:
		return ulp_attribute_u32(l, a, "UNIT", &f->unit);
	case XTS_STREAM_PARSER_ADJUSTMENT:
		return ulp_attribute_u64(l, a, "ADJUSTMENT", &f->adjustment);
	case XTS_STREAM_PARSER_MAGIC_OFFSET:
		p->has_magic_offset = true;
		return ulp_attribute_u32(l, a, "MAGIC_OFFSET", &p->magic_offset);
	case XTS_STREAM_PARSER_MAGIC:
		return magic_attribute(l, a, "MAGIC", p->magic, &p->magic_bytes);
	case XTS_STREAM_PARSER_MAGIC_MASK:
		return magic_attribute(l, a, "MAGIC_MASK", p->magic_mask, &p->magic_mask_bytes);
	case XTS_STREAM_PARSER_TIMEOUT_MS:
		return ulp_attribute_u32(l, a, "TIMEOUT_MS", &f->framing.timeout_ms);
	default:
		return ulp_attribute_unknown(l, a);
	}
}

static int check_place(struct ulp_layer *l, const char *what, uint32_t offset, uint32_t bytes)
{
	if (offset > ULP_FRAMING_HEAD_MAX - bytes) {
		return ulp_refuse(l, EINVAL, "stream_parser: %s from byte %u on is not within the first %u bytes", what,
				  offset, ULP_FRAMING_HEAD_MAX);
	}
	return 0;
}

static int check(struct ulp_layer *l, struct stream_parser *p)
{
	struct length_field *f = &p->field;
	int r;

	if (!p->has_offset || !f->width)
		return ulp_refuse(l, EINVAL, "stream_parser: OFFSET and WIDTH of the length field are required");
	if (f->width > 8)
		return ulp_refuse(l, EINVAL, "stream_parser: WIDTH is 1 to 8, not %u", f->width);
	if (f->shift > 63)
		return ulp_refuse(l, EINVAL, "stream_parser: SHIFT is 0 to 63, not %u", f->shift);
	if (!f->unit)
		return ulp_refuse(l, EINVAL, "stream_parser: UNIT is 0, so all lengths would be the same");
	if (p->magic_mask_bytes && p->magic_mask_bytes != p->magic_bytes) {
		return ulp_refuse(l, EINVAL, "stream_parser: MAGIC_MASK has %u bytes, and MAGIC %u",
				  p->magic_mask_bytes, p->magic_bytes);
	}
	if (p->has_magic_offset && !p->magic_bytes)
		return ulp_refuse(l, EINVAL, "stream_parser: MAGIC_OFFSET without MAGIC");
	r = check_place(l, "the length field", f->offset, f->width);
	if (!r)
		r = check_place(l, "MAGIC", p->magic_offset, p->magic_bytes);
	if (r)
		return r;
	if (!p->magic_mask_bytes)
		memset(p->magic_mask, 0xff, sizeof p->magic_mask);
	f->head_bytes = f->offset + f->width;
	if (p->magic_bytes && f->head_bytes < p->magic_offset + p->magic_bytes)
		f->head_bytes = p->magic_offset + p->magic_bytes;
	f->pdu_bytes_min = f->head_bytes;
	if (f->head_bytes > f->framing.max_bytes) {
		return ulp_refuse(l, EINVAL, "stream_parser: the head of %u bytes is longer than MAX_BYTES, %u",
				  f->head_bytes, f->framing.max_bytes);
	}
	return 0;
}

static int stream_parser_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	int r = length_field_open(l, sizeof(struct stream_parser), &preset, attributes, bytes, set_attribute);

	return r ? r : check(l, l->state);
}

/* --- to another process, and from it ------------------------------------------------------------------------------ */

int stream_parser_check(const void *made)
{
	const struct stream_parser *p = made;

	return p->magic_offset + p->magic_bytes <= p->field.head_bytes || !p->magic_bytes ? 0 : -EBADMSG;
}

static ssize_t stream_parser_save(const struct ulp_layer *l, void *out, size_t room)
{
	return ulp_state_save(&stream_parser_record, l, out, room);
}

static int stream_parser_restore(struct ulp_layer *l, const void *state, size_t bytes)
{
	return length_field_restore(l, sizeof(struct stream_parser), &preset, &stream_parser_record, state, bytes);
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
	.save = stream_parser_save,
	.restore = stream_parser_restore,
	.moves_since = 2,
	.rests = length_field_rests,
	.close = length_field_close,
};
