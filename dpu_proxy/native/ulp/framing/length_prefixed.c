/*
 * LENGTH_PREFIXED: a length, then that many bytes. Taken off on receive, put before each PDU on send.
 *
 * On send the length has to be known first: from the PDU's whole length where the host tells it, or because all of the PDU is here. Else its parts are gathered, as
 * far as the configuration allows. The prefix goes below in one write with the bytes behind it.
 */
#include <errno.h>
#include <stdlib.h>

#include "framing.h"
#include "ulp/config.h"
#include "ulp/protocols.h"

#define PREFIX_MAX 8u
#define PIECES 64 /* offered below at once; the rest follows */

struct sending {
	bool begun;              /* a PDU is under way */
	bool gathering;          /* and its length is not known */
	uint64_t left;           /* of it, not offered by the host yet */
	uint8_t prefix[PREFIX_MAX];
	unsigned prefix_first, prefix_bytes; /* of it not written yet */
	struct ulp_out gathered;
};

struct length_prefixed {
	struct ulp_framing framing; /* first */
	struct sending sending;
	uint8_t width;
	bool little_endian, counts_itself;
};

/* --- parameters ------------------------------------------------------------------------------------------------------ */

static int parse_prefix(struct ulp_layer *l, const uint8_t *data, uint32_t bytes, struct ulp_framing_head *head)
{
	const struct length_prefixed *p = l->state;
	uint64_t v = 0;

	if (bytes < p->width)
		return 0;
	for (unsigned i = 0; i < p->width; i++)
		v = v << 8 | data[p->little_endian ? p->width - 1u - i : i];
	if (p->counts_itself && v < p->width) {
		return ulp_fail(l, XTS_FAULT_LENGTH, "length_prefixed: a length of %llu, which is less than that of the length itself",
				(unsigned long long)v);
	}
	head->strip = p->width;
	head->length = p->counts_itself ? v - p->width : v;
	return 1;
}

static int set_attribute(struct ulp_layer *l, const struct ulp_attribute *a)
{
	struct length_prefixed *p = l->state;
	int r;

	switch (a->type) {
	case XTS_LENGTH_PREFIXED_MAX_BYTES:
		return ulp_max_bytes(l, a, &p->framing.max_bytes);
	case XTS_LENGTH_PREFIXED_WIDTH:
		r = ulp_attribute_u8(l, a, "WIDTH", &p->width);
		if (!r && p->width != 1 && p->width != 2 && p->width != 3 && p->width != 4 && p->width != 8)
			r = ulp_refuse(l, EINVAL, "length_prefixed: WIDTH is 1, 2, 3, 4 or 8, not %u", p->width);
		return r;
	case XTS_LENGTH_PREFIXED_LITTLE_ENDIAN:
		return ulp_attribute_flag(l, a, "LITTLE_ENDIAN", &p->little_endian);
	case XTS_LENGTH_PREFIXED_COUNTS_ITSELF:
		return ulp_attribute_flag(l, a, "COUNTS_ITSELF", &p->counts_itself);
	default:
		return ulp_attribute_unknown(l, a);
	}
}

static int length_prefixed_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	struct length_prefixed *p = calloc(1, sizeof *p);

	if (!p)
		return ulp_refuse(l, ENOMEM, "no memory for length_prefixed");
	l->state = p;
	p->width = 4;
	p->framing.parse = parse_prefix;
	p->framing.max_bytes = ulp_max_bytes_default(l);
	return ulp_attributes(l, attributes, bytes, set_attribute);
}

static void length_prefixed_close(struct ulp_layer *l)
{
	struct length_prefixed *p = l->state;

	ulp_out_free(&p->sending.gathered);
	ulp_framed_close(l);
}

/* --- sending --------------------------------------------------------------------------------------------------------- */

static int make_prefix(struct ulp_layer *l, struct length_prefixed *p, uint64_t length)
{
	uint64_t v = length + (p->counts_itself ? p->width : 0);

	if (p->width < 8 && v >> (8 * p->width)) {
		return ulp_fail(l, XTS_FAULT_USE, "length_prefixed: a PDU of %llu bytes was sent, which a length of %u bytes cannot tell",
				(unsigned long long)length, p->width);
	}
	for (unsigned i = 0; i < p->width; i++) {
		p->sending.prefix[p->little_endian ? i : p->width - 1u - i] = (uint8_t)v;
		v >>= 8;
	}
	p->sending.prefix_first = 0;
	p->sending.prefix_bytes = p->width;
	return 0;
}

/* Keeps a part of a PDU whose length is not known. */
static ssize_t gather(struct ulp_layer *l, struct sending *s, const struct iovec *iov, int pieces)
{
	uint32_t limit = xts_ulp_config_limits(ulp_config(l))->buffered_bytes_max;
	size_t bytes = ulp_iov_bytes(iov, pieces);
	int r;

	if (bytes > limit - s->gathered.bytes) {
		return ulp_fail(l, XTS_FAULT_USE,
				"length_prefixed: a PDU of more than %u bytes was sent without telling its length first", limit);
	}
	r = ulp_out_reserve(&s->gathered, l, (uint32_t)bytes);
	if (r)
		return ulp_memory_fail(l, r, "a PDU of unknown length");
	for (int i = 0; i < pieces; i++)
		ulp_out_put(&s->gathered, iov[i].iov_base, (uint32_t)iov[i].iov_len);
	return bytes ? (ssize_t)bytes : 1;
}

/* Bytes written come off the prefix first, then off what was gathered; what is left is the host's. */
static size_t account(struct sending *s, size_t written)
{
	unsigned n = written < s->prefix_bytes ? (unsigned)written : s->prefix_bytes;
	uint32_t g;

	s->prefix_first += n;
	s->prefix_bytes -= n;
	written -= n;
	g = written < s->gathered.bytes ? (uint32_t)written : s->gathered.bytes;
	s->gathered.first += g;
	s->gathered.bytes -= g;
	return written - g;
}

/* Prefix, gathered bytes, the host's bytes from skip on: writes once. */
static ssize_t write_once(struct ulp_layer *l, struct sending *s, const struct iovec *iov, int pieces, size_t skip)
{
	struct iovec out[PIECES];
	int n = 0;

	if (s->prefix_bytes)
		out[n++] = (struct iovec){ s->prefix + s->prefix_first, s->prefix_bytes };
	if (s->gathered.bytes)
		out[n++] = (struct iovec){ s->gathered.data + s->gathered.first, s->gathered.bytes };
	n += ulp_iov_slice(out + n, PIECES - n, iov, pieces, skip, SIZE_MAX);
	return ulp_iov_bytes(out, n) ? ulp_write_below(l, out, n, NULL) : 0;
}

static ssize_t write_through(struct ulp_layer *l, struct sending *s, const struct iovec *iov, int pieces)
{
	size_t done = 0;
	ssize_t n;

	do {
		n = write_once(l, s, iov, pieces, done);
		if (n < 0)
			return n;
		done += account(s, (size_t)n);
	} while (n); /* TLS takes some records at a time, and what it has taken may be none of the host's bytes */
	return (ssize_t)done;
}

/* The first part of a PDU, or the part that ends the gathering. */
static int begin(struct ulp_layer *l, struct length_prefixed *p, size_t bytes, const struct ulp_mark *mark)
{
	struct sending *s = &p->sending;
	uint64_t length = mark->more ? mark->record_bytes : s->gathered.bytes + bytes;
	int r;

	if (!mark->more && mark->record_bytes)
		length = mark->record_bytes;
	s->gathering = mark->more && !mark->record_bytes;
	if (!s->gathering) {
		r = make_prefix(l, p, length);
		if (r)
			return r;
		s->left = length - s->gathered.bytes;
	}
	s->begun = true;
	return 0;
}

static ssize_t length_prefixed_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	struct length_prefixed *p = l->state;
	struct sending *s = &p->sending;
	size_t bytes = ulp_iov_bytes(iov, pieces);
	ssize_t n;

	if (!mark->pdu)
		return ulp_fail(l, XTS_FAULT_USE, "length_prefixed: bytes were sent that are no PDU");
	if (!s->begun || s->gathering) {
		int r = begin(l, p, bytes, mark);

		if (r)
			return r;
		if (s->gathering)
			return gather(l, s, iov, pieces);
	}
	if (bytes > s->left || (!mark->more && bytes != s->left)) {
		return ulp_fail(l, XTS_FAULT_USE, "length_prefixed: a PDU was sent that is %s than the length told first",
				bytes > s->left ? "longer" : "shorter");
	}
	n = write_through(l, s, iov, pieces);
	if (n < 0)
		return n;
	s->left -= (size_t)n;
	if ((size_t)n < bytes || s->prefix_bytes || s->gathered.bytes)
		return n;
	if (!mark->more) {
		s->begun = false;
		ulp_out_free(&s->gathered);
	}
	return bytes ? n : 1;
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
	.write = length_prefixed_write,
	.close = length_prefixed_close,
};
