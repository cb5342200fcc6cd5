/* TLS_RECORDS: one PDU per TLS record (RFC 8446 5.1), header included, left as it is (the paper, figure 6). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "framing.h"

#define HEADER_BYTES 5u
#define BODY_MAX (16384u + 2048u) /* the longest, of TLS 1.2 (RFC 5246 6.2.3) */

struct tls_records {
	struct ulp_framing framing;   /* first */
	uint8_t header[HEADER_BYTES]; /* of the record under way */
};

static int parse_header(struct ulp_layer *l, const uint8_t *data, uint32_t bytes, struct ulp_framing_head *head)
{
	struct tls_records *t = l->state;
	uint32_t body;

	if (bytes < HEADER_BYTES)
		return 0;
	body = (uint32_t)data[3] << 8 | data[4];
	if (data[0] < 20 || data[0] > 24 || data[1] != 3 || data[2] > 4)
		return ulp_fail(l, XTS_FAULT_RECORD, "no TLS record begins with bytes %02x %02x %02x", data[0], data[1], data[2]);
	if (body > BODY_MAX)
		return ulp_fail(l, XTS_FAULT_TOO_LONG, "a TLS record of %u bytes; the longest has %u", body, BODY_MAX);
	memcpy(t->header, data, HEADER_BYTES);
	*head = (struct ulp_framing_head){ .length = HEADER_BYTES + body };
	return 1;
}

static int records_set(struct ulp_layer *l, const struct ulp_attribute *a)
{
	struct tls_records *t = l->state;

	return a->type == XTS_TLS_RECORDS_MAX_BYTES ? ulp_max_bytes(l, a, &t->framing.max_bytes) : ulp_attribute_unknown(l, a);
}

static int records_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	struct tls_records *t = calloc(1, sizeof *t);

	if (!t)
		return ulp_refuse(l, ENOMEM, "no memory for tls_records");
	l->state = t;
	t->framing.max_bytes = ulp_max_bytes_default(l);
	t->framing.parse = parse_header;
	return ulp_attributes(l, attributes, bytes, records_set);
}

static ssize_t records_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	struct tls_records *t = l->state;
	ssize_t n = ulp_framing_read(&t->framing, l, out, room, mark);

	if (n >= 0) {
		mark->control_type = XTS_ULP_TLS_RECORDS;
		mark->control_bytes = HEADER_BYTES;
		memcpy(mark->control, t->header, HEADER_BYTES);
	}
	return n;
}

const struct ulp_protocol ulp_tls_records = {
	.id = XTS_ULP_TLS_RECORDS,
	.version = XTS_ULP_TLS_RECORDS_VERSION,
	.name = "tls_records",
	.receive = true,
	.boundaries = true,
	.transparent = true,
	.open = records_open,
	.read = records_read,
	.pending = ulp_framed_pending,
	.close = ulp_framed_close,
};
