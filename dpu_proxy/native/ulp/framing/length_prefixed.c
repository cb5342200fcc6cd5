/* LENGTH_PREFIXED: a length, then that many bytes. The length is removed on receive and put before each PDU on send. */
#include <errno.h>

#include "framing_move.h"
#include "length_field.h"
#include "ulp/protocols.h"

struct length_prefixed {
	struct length_field field; /* first */
	bool counts_itself;
};

static const struct length_field preset = { .width = 4 };

static int set_width(struct ulp_layer *l, const struct ulp_attribute *a, uint8_t *width)
{
	int r = ulp_attribute_u8(l, a, "WIDTH", width);

	if (!r && *width != 1 && *width != 2 && *width != 3 && *width != 4 && *width != 8)
		r = ulp_refuse(l, EINVAL, "length_prefixed: WIDTH is 1, 2, 3, 4 or 8, not %u", *width);
	return r;
}

static int set_attribute(struct ulp_layer *l, const struct ulp_attribute *a)
{
	struct length_prefixed *p = l->state;
	struct length_field *f = &p->field;

	switch (a->type) {
	case XTS_LENGTH_PREFIXED_MAX_BYTES:
		return ulp_max_bytes(l, a, &f->framing.max_bytes);
	case XTS_LENGTH_PREFIXED_WIDTH:
		return set_width(l, a, &f->width);
	case XTS_LENGTH_PREFIXED_LITTLE_ENDIAN:
		return ulp_attribute_flag(l, a, "LITTLE_ENDIAN", &f->little_endian);
	case XTS_LENGTH_PREFIXED_COUNTS_ITSELF:
		return ulp_attribute_flag(l, a, "COUNTS_ITSELF", &p->counts_itself);
	default:
		return ulp_attribute_unknown(l, a);
	}
}

static int length_prefixed_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	int r = length_field_open(l, sizeof(struct length_prefixed), &preset, attributes, bytes, set_attribute);
	struct length_prefixed *p = l->state;

	if (r)
		return r;
	p->field.head_bytes = p->field.strip = p->field.width;
	p->field.adjustment = p->counts_itself ? 0 - (uint64_t)p->field.width : 0;
	return 0;
}

static int length_prefixed_restore(struct ulp_layer *l, const void *state, size_t bytes)
{
	return length_field_restore(l, sizeof(struct length_prefixed), &preset, &length_field_record, state, bytes);
}

const struct ulp_protocol ulp_length_prefixed = {
	.id = XTS_ULP_LENGTH_PREFIXED,
	.version = XTS_ULP_LENGTH_PREFIXED_VERSION,
	.name = "length_prefixed",
	.receive = true,
	.send = true,
	.boundaries = true,
	.open = length_prefixed_open,
	.read = ulp_framed_read,
	.pending = ulp_framed_pending,
	.write = length_prefix_write,
	.flush = length_prefix_flush,
	.save = length_field_save,
	.restore = length_prefixed_restore,
	.moves_since = 2,
	.rests = length_field_rests,
	.close = length_field_close,
};
