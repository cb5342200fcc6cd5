/*
 * DNS messages over TCP or TLS: two bytes of length and the message (RFC 1035 4.2.2).
 *
 * Padding (RFC 7830, RFC 8467) is an option of the message's own OPT record. The layer looks for that record
 * (dns_padding.c) and never adds one. A message that will be padded is gathered first; it has at most 64 KiB.
 */
#include "dns_padding.h"
#include "framing_move.h"
#include "length_field.h"
#include "ulp/protocols.h"

#define LENGTH_BYTES 2u
#define HEADER_BYTES 12u
#define CONTROL_BYTES 4u /* id and flags */

static const struct length_field preset = {
	.width = LENGTH_BYTES,
	.head_bytes = LENGTH_BYTES,
	.strip = LENGTH_BYTES,
	.pdu_bytes_min = HEADER_BYTES,
	.control_type = XTS_ULP_DNS,
	.control_offset = LENGTH_BYTES,
	.control_bytes = CONTROL_BYTES,
	.pad = dns_pad,
};

static int set_attribute(struct ulp_layer *l, const struct ulp_attribute *a)
{
	struct length_field *f = l->state;

	return a->type == XTS_DNS_PADDING ? ulp_attribute_u16(l, a, "PADDING", &f->block) : ulp_attribute_unknown(l, a);
}

static int dns_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	int r = length_field_open(l, sizeof(struct length_field), &preset, attributes, bytes, set_attribute);
	struct length_field *f = l->state;

	if (!r)
		f->framing.max_bytes = UINT16_MAX; /* DNS has no MAX_BYTES parameter: the length field allows no more */
	return r;
}

static int dns_restore(struct ulp_layer *l, const void *state, size_t bytes)
{
	return length_field_restore(l, sizeof(struct length_field), &preset, &length_field_record, state, bytes);
}

const struct ulp_protocol ulp_dns = {
	.id = XTS_ULP_DNS,
	.version = XTS_ULP_DNS_VERSION,
	.name = "dns",
	.receive = true,
	.send = true,
	.boundaries = true,
	.open = dns_open,
	.read = ulp_framed_read,
	.pending = ulp_framed_pending,
	.write = length_prefix_write,
	.flush = length_prefix_flush,
	.save = length_field_save,
	.restore = dns_restore,
	.moves_since = 2,
	.rests = length_field_rests,
	.close = length_field_close,
};
