/* Receiving PDUs with a length at an offset; see length_field.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "framing_move.h"
#include "length_field.h"

/* False: the field does not give a valid length. */
static bool length_of(const struct length_field *f, const uint8_t *data, uint64_t *length)
{
	uint64_t v = 0, less = -f->adjustment;

	for (unsigned i = 0; i < f->width; i++)
		v = v << 8 | data[f->offset + (f->little_endian ? f->width - 1u - i : i)];
	v = (v & f->mask) >> f->shift;
	if (__builtin_mul_overflow(v, (uint64_t)f->unit, &v))
		return false;
	if (f->adjustment >> 63) { /* negative */
		*length = v - less;
		return v >= less;
	}
	return !__builtin_add_overflow(v, f->adjustment, length);
}

static int parse_head(struct ulp_layer *l, const uint8_t *data, uint32_t bytes, struct ulp_framing_head *head)
{
	const struct length_field *f = l->state;
	int r;

	if (bytes < f->head_bytes)
		return 0;
	r = f->check ? f->check(l, data) : 0;
	if (r)
		return r;
	if (!length_of(f, data, &head->length))
		return ulp_fail(l, XTS_FAULT_LENGTH, "%s: the length field gives no length of 64 bits",
				l->protocol->name);
	if (head->length < f->pdu_bytes_min) {
		return ulp_fail(l, XTS_FAULT_LENGTH, "%s: a PDU of %llu bytes, which is shorter than the minimum of %u",
				l->protocol->name, (unsigned long long)head->length, f->pdu_bytes_min);
	}
	if (bytes < (uint32_t)f->control_offset + f->control_bytes)
		return 0;
	head->strip = f->strip;
	head->control_type = f->control_type;
	head->control_bytes = f->control_bytes;
	memcpy(head->control, data + f->control_offset, f->control_bytes);
	return 1;
}

int length_field_open(struct ulp_layer *l, size_t state_bytes, const struct length_field *preset,
		      const uint8_t *attributes, uint32_t bytes,
		      int (*set)(struct ulp_layer *l, const struct ulp_attribute *a))
{
	struct length_field *f = calloc(1, state_bytes);

	if (!f)
		return ulp_refuse(l, ENOMEM, "no memory for %s", l->protocol->name);
	*f = *preset;
	f->mask = UINT64_MAX;
	f->unit = 1;
	f->framing.parse = parse_head;
	f->framing.max_bytes = ulp_max_bytes_default(l);
	l->state = f;
	return ulp_attributes(l, attributes, bytes, set);
}

/* --- from another process ----------------------------------------------------------------------------------------- */

int length_field_check(const void *made)
{
	const struct length_field *f = made;
	const struct length_sender *s = &f->sender;

	if (!f->width || !f->unit || f->offset + f->width > f->head_bytes || f->strip > f->head_bytes ||
	    f->control_offset + f->control_bytes > ULP_FRAMING_HEAD_MAX)
		return -EBADMSG;
	return s->state != GATHERING || s->held.bytes >= f->width ? 0 : -EBADMSG;
}

ssize_t length_field_save(const struct ulp_layer *l, void *out, size_t room)
{
	return ulp_state_save(&length_field_record, l, out, room);
}

uint32_t length_field_rests(const struct ulp_layer *l)
{
	const struct length_field *f = l->state;

	return ulp_framed_rests(l) && f->sender.state == BETWEEN_PDUS && !f->sender.held.bytes;
}

int length_field_restore(struct ulp_layer *l, size_t state_bytes, const struct length_field *preset,
			 const struct xts_record *r, const void *state, size_t bytes)
{
	int error = ulp_state_restore(r, l, state_bytes, state, bytes);
	struct length_field *f = l->state;

	if (error)
		return error;
	f->framing.parse = parse_head;
	f->check = preset->check;
	f->pad = preset->pad;
	if (f->head_bytes < preset->head_bytes || (f->block && !f->pad))
		return -EBADMSG;
	return ulp_out_count(&f->sender.held, l);
}

void length_field_close(struct ulp_layer *l)
{
	struct length_field *f = l->state;

	ulp_out_free(&f->sender.held);
	ulp_framed_close(l);
}
