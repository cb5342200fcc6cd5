/* Sends PDUs with their length in front; see length_field.h. */
#include <errno.h>
#include <stddef.h>

#include "length_field.h"
#include "ulp/config.h"

#define PIECES 64            /* offered to the layer below at once; the rest follows */
#define PADDING_BYTES_MIN 4u /* the padding option has a header of its own */

static uint64_t gathered_bytes(const struct length_field *f)
{
	return f->sender.state == GATHERING ? f->sender.held.bytes - f->width : 0;
}

static uint64_t length_max(const struct length_field *f)
{
	uint64_t max = UINT64_MAX >> (64 - 8 * f->width);

	return f->adjustment >> 63 ? max - (0 - f->adjustment) : max;
}

static int check_length(struct ulp_layer *l, const struct length_field *f, uint64_t length)
{
	if (length >= f->pdu_bytes_min && length <= length_max(f))
		return 0;
	return ulp_fail(l, XTS_FAULT_USE,
			"%s: a PDU of %llu bytes was sent; it must have %u to %llu, with a length field of %u bytes",
			l->protocol->name, (unsigned long long)length, f->pdu_bytes_min,
			(unsigned long long)length_max(f), f->width);
}

/* Makes room for this many bytes of a PDU, behind the bytes of the length, which come first. */
static int hold(struct ulp_layer *l, struct length_sender *s, uint8_t width, uint32_t bytes)
{
	int r = ulp_out_reserve(&s->held, l, bytes + (s->held.bytes ? 0 : width));

	if (r)
		return ulp_memory_fail(l, r, "a PDU that is sent");
	if (!s->held.bytes)
		ulp_out_put(&s->held, (const uint8_t[8]){ 0 }, width);
	return 0;
}

static void put_length(struct length_field *f, uint64_t length)
{
	uint8_t *prefix = f->sender.held.data + f->sender.held.first;
	uint64_t v = length - f->adjustment;

	for (unsigned i = 0; i < f->width; i++) {
		prefix[f->little_endian ? i : f->width - 1u - i] = (uint8_t)v;
		v >>= 8;
	}
}

/* Keeps a part of a PDU. */
static int gather(struct ulp_layer *l, struct length_field *f, const struct iovec *iov, int pieces, size_t bytes)
{
	uint32_t limit = xts_ulp_config_limits(ulp_config(l))->buffered_bytes_max;
	int r;

	if (length_max(f) < limit)
		limit = (uint32_t)length_max(f);
	if (gathered_bytes(f) > limit || bytes > limit - gathered_bytes(f)) {
		return ulp_fail(l, XTS_FAULT_USE,
				"%s: a PDU of more than %u bytes was sent without its length being announced first",
				l->protocol->name, limit);
	}
	r = hold(l, &f->sender, f->width, (uint32_t)bytes);
	if (r)
		return r;
	f->sender.state = GATHERING;
	for (int i = 0; i < pieces; i++)
		ulp_out_put(&f->sender.held, iov[i].iov_base, (uint32_t)iov[i].iov_len);
	return 0;
}

/* The whole PDU has been gathered: pads it and writes as much as the layer below takes. */
static int send_padded(struct ulp_layer *l, struct length_field *f)
{
	struct ulp_out *held = &f->sender.held;
	uint32_t bytes = (uint32_t)gathered_bytes(f), room = (uint32_t)length_max(f);
	int r;

	if (room - bytes > f->block + PADDING_BYTES_MIN)
		room = bytes + f->block + PADDING_BYTES_MIN;
	r = hold(l, &f->sender, f->width, room - bytes);
	if (r)
		return r;
	bytes = f->pad(held->data + held->first + f->width, bytes, room, f->block);
	held->bytes = f->width + bytes;
	put_length(f, bytes);
	f->sender.state = BETWEEN_PDUS;
	r = ulp_out_flush(held, l);
	return r == -EAGAIN ? 0 : r;
}

/* The length is known: from here on the parts of the PDU are passed on. */
static int begin(struct ulp_layer *l, struct length_field *f, uint64_t length)
{
	int r = hold(l, &f->sender, f->width, 0);

	if (r)
		return r;
	put_length(f, length);
	f->sender.left = length - gathered_bytes(f);
	f->sender.state = PASSING;
	return 0;
}

/* Writes what is held, and the host's bytes behind it; returns how many of the host's bytes were taken. */
static ssize_t write_through(struct ulp_layer *l, struct length_sender *s, const struct iovec *iov, int pieces)
{
	size_t done = 0, written, of_held;
	struct iovec out[PIECES];
	ssize_t n;
	int count;

	do {
		count = s->held.bytes ? 1 : 0;
		if (count)
			out[0] = (struct iovec){ s->held.data + s->held.first, s->held.bytes };
		count += ulp_iov_slice(out + count, PIECES - count, iov, pieces, done, SIZE_MAX);
		n = ulp_iov_bytes(out, count) ? ulp_write_below(l, out, count, NULL) : 0;
		if (n < 0)
			return n;
		written = (size_t)n;
		of_held = written < s->held.bytes ? written : s->held.bytes;
		s->held.first += (uint32_t)of_held;
		s->held.bytes -= (uint32_t)of_held;
		done += written - of_held;
	} while (n); /* TLS takes a few records at a time, and they may have none of the host's bytes */
	return (ssize_t)done;
}

static ssize_t pass(struct ulp_layer *l, struct length_sender *s, const struct iovec *iov, int pieces,
		    const struct ulp_mark *mark)
{
	size_t bytes = ulp_iov_bytes(iov, pieces);
	ssize_t n = write_through(l, s, iov, pieces);

	if (n < 0)
		return n;
	s->left -= (size_t)n;
	if ((size_t)n < bytes || s->held.bytes)
		return n;
	(void)ulp_out_flush(&s->held, l); /* it is empty: this frees its memory if there was much */
	if (!mark->more)
		s->state = BETWEEN_PDUS;
	return bytes ? n : 1;
}

/* Takes a part of a PDU whose length is not known, or whose end will be padded. */
static ssize_t keep(struct ulp_layer *l, struct length_field *f, const struct iovec *iov, int pieces, bool more)
{
	size_t bytes = ulp_iov_bytes(iov, pieces);
	int r = gather(l, f, iov, pieces, bytes);

	if (!r && !more)
		r = send_padded(l, f);
	return r ? r : bytes ? (ssize_t)bytes : 1;
}

ssize_t length_prefix_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	struct length_field *f = l->state;
	struct length_sender *s = &f->sender;
	bool known = s->state == PASSING || mark->record_bytes || !mark->more;
	uint64_t offered = gathered_bytes(f) + ulp_iov_bytes(iov, pieces);
	uint64_t length = s->state == PASSING ? s->left : mark->record_bytes ? mark->record_bytes : offered;
	int r = 0;

	if (!mark->pdu)
		return ulp_fail(l, XTS_FAULT_USE, "%s: bytes were sent that are not a PDU", l->protocol->name);
	if (known && (offered > length || (!mark->more && offered < length))) {
		return ulp_fail(l, XTS_FAULT_USE, "%s: a PDU was sent that is %s than the length announced first",
				l->protocol->name, offered > length ? "longer" : "shorter");
	}
	if (s->state == PASSING)
		return pass(l, s, iov, pieces, mark);
	if (s->state == BETWEEN_PDUS)
		r = ulp_out_flush(&s->held, l); /* of a padded PDU */
	if (!r && known)
		r = check_length(l, f, length);
	if (r)
		return r == -EAGAIN ? 0 : r;
	if (!known || f->block)
		return keep(l, f, iov, pieces, mark->more);
	r = begin(l, f, length);
	return r ? r : pass(l, s, iov, pieces, mark);
}

int length_prefix_flush(struct ulp_layer *l)
{
	struct length_field *f = l->state;

	return f->sender.state == GATHERING ? 0 : ulp_out_flush(&f->sender.held, l);
}
