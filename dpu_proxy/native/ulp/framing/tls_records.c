/* TLS_RECORDS: one PDU per TLS record (RFC 8446 5.1), header included, unchanged (the paper, figure 6). */
#include "framing_move.h"
#include "length_field.h"
#include "ulp/protocols.h"

#define HEADER_BYTES 5u
#define BODY_MAX (16384u + 2048u) /* the longest, which TLS 1.2 allows (RFC 5246 6.2.3) */

static int check_header(struct ulp_layer *l, const uint8_t *data)
{
	uint32_t body = (uint32_t)data[3] << 8 | data[4];

	if (data[0] < 20 || data[0] > 24 || data[1] != 3 || data[2] > 4)
		return ulp_fail(l, XTS_FAULT_RECORD, "no TLS record begins with bytes %02x %02x %02x", data[0], data[1],
				data[2]);
	if (body > BODY_MAX)
		return ulp_fail(l, XTS_FAULT_TOO_LONG, "a TLS record of %u bytes; the longest has %u", body, BODY_MAX);
	return 0;
}

static const struct length_field preset = {
	.offset = 3,
	.width = 2,
	.adjustment = HEADER_BYTES,
	.head_bytes = HEADER_BYTES,
	.check = check_header,
	.control_type = XTS_ULP_TLS_RECORDS,
	.control_bytes = HEADER_BYTES,
};

static int set_attribute(struct ulp_layer *l, const struct ulp_attribute *a)
{
	struct length_field *f = l->state;

	return a->type == XTS_TLS_RECORDS_MAX_BYTES ? ulp_max_bytes(l, a, &f->framing.max_bytes) :
						      ulp_attribute_unknown(l, a);
}

static int tls_records_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	return length_field_open(l, sizeof(struct length_field), &preset, attributes, bytes, set_attribute);
}

static int tls_records_restore(struct ulp_layer *l, const void *state, size_t bytes)
{
	return length_field_restore(l, sizeof(struct length_field), &preset, &length_field_record, state, bytes);
}

const struct ulp_protocol ulp_tls_records = {
	.id = XTS_ULP_TLS_RECORDS,
	.version = XTS_ULP_TLS_RECORDS_VERSION,
	.name = "tls_records",
	.receive = true,
	.boundaries = true,
	.transparent = true,
	.open = tls_records_open,
	.read = ulp_framed_read,
	.pending = ulp_framed_pending,
	.save = length_field_save,
	.restore = tls_records_restore,
	.moves_since = 2,
	.rests = length_field_rests,
	.close = length_field_close,
};
