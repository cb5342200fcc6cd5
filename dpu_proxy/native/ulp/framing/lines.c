/*
 * LINES: one PDU per line.
 *
 * A line is passed on as it comes; only bytes that may be the beginning of the delimiter wait for more. On send the
 * delimiter is put behind each PDU (with KEEP the PDU has it already), and a PDU is refused if the receiver would find
 * the delimiter too early in it. Both directions keep the last bytes in a window of 64 bits, into which the delimiter
 * fits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "framing_move.h"
#include "ulp/protocols.h"

#define DELIMITER_MAX sizeof(((struct lines *)0)->delimiter)
#define PIECES 64

/* --- parameters --------------------------------------------------------------------------------------------------- */

static void set_delimiter(struct lines *p, const uint8_t *value, unsigned bytes)
{
	p->delimiter_bytes = (uint8_t)bytes;
	p->delimiter_mask = bytes == 8 ? UINT64_MAX : (1ull << (8 * bytes)) - 1;
	for (unsigned i = 0; i < bytes; i++) {
		p->delimiter[i] = value[i];
		p->delimiter_value = p->delimiter_value << 8 | value[i];
	}
}

static int set_attribute(struct ulp_layer *l, const struct ulp_attribute *a)
{
	struct lines *p = l->state;

	switch (a->type) {
	case XTS_LINES_MAX_BYTES:
		return ulp_max_bytes(l, a, &p->max_bytes);
	case XTS_LINES_DELIMITER:
		if (!a->bytes || a->bytes > DELIMITER_MAX)
			return ulp_refuse(l, EINVAL, "lines: DELIMITER has 1 to %zu bytes, not %u", DELIMITER_MAX,
					  a->bytes);
		set_delimiter(p, a->value, a->bytes);
		return 0;
	case XTS_LINES_KEEP:
		return ulp_attribute_flag(l, a, "KEEP", &p->keep);
	default:
		return ulp_attribute_unknown(l, a);
	}
}

static int lines_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	struct lines *p = calloc(1, sizeof *p);
	int r;

	if (!p)
		return ulp_refuse(l, ENOMEM, "no memory for lines");
	l->state = p;
	p->max_bytes = ulp_max_bytes_default(l);
	r = ulp_attributes(l, attributes, bytes, set_attribute);
	if (!r && !p->delimiter_bytes)
		set_delimiter(p, (const uint8_t *)"\n", 1);
	return r;
}

static void lines_close(struct ulp_layer *l)
{
	struct lines *p = l->state;

	ulp_in_free(&p->in);
	free(p);
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

/* How many bytes at the end of what was read ahead may be the beginning of the delimiter. */
static uint32_t may_begin_delimiter(const struct lines *p)
{
	uint32_t n = p->delimiter_bytes - 1u;

	if (n > p->in.bytes)
		n = p->in.bytes;
	while (n && memcmp(p->in.data + p->in.first + p->in.bytes - n, p->delimiter, n) != 0)
		n--;
	return n;
}

/* How much of what was read ahead belongs to the current line and may be delivered, and whether that ends the line.
 * *drop: how many bytes of the delimiter follow that are not part of the PDU. */
static uint32_t look(const struct lines *p, bool *ends, uint32_t *drop)
{
	const uint8_t *begin = p->in.data + p->in.first;
	const uint8_t *found = p->ending ? NULL : memmem(begin, p->in.bytes, p->delimiter, p->delimiter_bytes);

	*ends = p->ending || found;
	*drop = *ends && !p->keep ? p->delimiter_bytes : 0;
	if (p->ending)
		return p->ending;
	if (!found)
		return p->in.bytes - may_begin_delimiter(p);
	return (uint32_t)(found - begin) + (p->keep ? p->delimiter_bytes : 0u);
}

static ssize_t lines_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	struct lines *p = l->state;
	bool ends = false, cut;
	uint32_t bytes = 0, drop = 0;
	ssize_t n;

	for (;;) {
		if (!p->starved && p->in.bytes)
			bytes = look(p, &ends, &drop);
		if (bytes || ends)
			break;
		p->starved = true;
		n = ulp_in_more(&p->in, l);
		if (n == -ENODATA && (p->handed || p->in.bytes))
			return ulp_fail(l, XTS_FAULT_TRUNCATED, "lines: the stream ended after %ju bytes of a line",
					p->handed + p->in.bytes);
		if (n < 0)
			return n;
		p->starved = false;
	}
	if (p->handed + bytes > p->max_bytes)
		return ulp_fail(l, XTS_FAULT_TOO_LONG, "lines: a line of more than MAX_BYTES, %u", p->max_bytes);
	cut = bytes > room;
	p->ending = cut && ends ? bytes - (uint32_t)room : 0;
	if (cut)
		bytes = (uint32_t)room;
	memcpy(out, p->in.data + p->in.first, bytes);
	*mark = (struct ulp_mark){ .pdu = true, .more = cut || !ends };
	p->handed += bytes;
	if (!mark->more) {
		mark->record_bytes = p->handed == bytes ? bytes : 0; /* only for a line that is delivered in one part */
		p->handed = 0;
	} else {
		drop = 0;
	}
	p->in.first += bytes + drop;
	p->in.bytes -= bytes + drop;
	return (ssize_t)bytes;
}

static bool lines_pending(const struct ulp_layer *l)
{
	const struct lines *p = l->state;

	return (p->in.bytes && !p->starved) || ulp_pending_below(l);
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

/* Takes one more byte of what the receiver will see: does the delimiter end here? */
static bool matches(const struct lines *p, struct lines_sending *s, uint8_t byte)
{
	s->window = s->window << 8 | byte;
	s->checked++;
	return s->checked >= p->delimiter_bytes && (s->window & p->delimiter_mask) == p->delimiter_value;
}

static int early(struct ulp_layer *l)
{
	return ulp_fail(l, XTS_FAULT_USE, "lines: a PDU was sent with the delimiter inside it");
}

/* Checks the bytes of the PDU that have not been checked yet; last: the PDU ends with these. */
static int check(struct ulp_layer *l, struct lines *p, const struct iovec *iov, int pieces, bool last)
{
	struct lines_sending *s = &p->sending;
	uint64_t skip = s->checked - s->length, left = ulp_iov_bytes(iov, pieces);
	bool matched = false;

	for (int i = 0; i < pieces; i++) {
		const uint8_t *data = iov[i].iov_base;

		for (size_t at = 0; at < iov[i].iov_len; at++, left--) {
			if (skip) {
				skip--;
				continue;
			}
			matched = matches(p, s, data[at]);
			if (matched && !(p->keep && last && left == 1))
				return early(l);
		}
	}
	if (!last)
		return 0;
	if (p->keep) {
		matched = s->checked >= p->delimiter_bytes && (s->window & p->delimiter_mask) == p->delimiter_value;
		return matched ? 0 :
				 ulp_fail(l, XTS_FAULT_USE, "lines: a PDU was sent without the delimiter at its end");
	}
	/* once the delimiter follows, no delimiter may end before that one ends */
	for (unsigned i = 0; i + 1 < p->delimiter_bytes; i++) {
		struct lines_sending ahead = *s;

		for (unsigned j = 0; j <= i; j++)
			matched = matches(p, &ahead, p->delimiter[j]);
		if (matched)
			return early(l);
	}
	return 0;
}

/* Writes what is left of the delimiter of the PDU before. */
static int lines_flush(struct ulp_layer *l)
{
	struct lines *p = l->state;
	struct lines_sending *s = &p->sending;

	while (s->delimiter_left) {
		struct iovec piece = { p->delimiter + p->delimiter_bytes - s->delimiter_left, s->delimiter_left };
		ssize_t n = ulp_write_below(l, &piece, 1, NULL);

		if (n < 0)
			return (int)n;
		if (!n)
			return -EAGAIN;
		s->delimiter_left = (uint8_t)(s->delimiter_left - n);
	}
	return 0;
}

/* Writes the PDU's bytes, and behind them the delimiter if it has to be added; returns how many of the PDU's bytes were
 * taken. */
static ssize_t write_through(struct ulp_layer *l, struct lines *p, const struct iovec *iov, int pieces, size_t bytes,
			     unsigned behind)
{
	struct lines_sending *s = &p->sending;
	size_t done = 0, offered;
	ssize_t n;

	do {
		struct iovec out[PIECES];
		int count = ulp_iov_slice(out, PIECES - 1, iov, pieces, done, SIZE_MAX);
		size_t data = ulp_iov_bytes(out, count);
		bool all = done + data == bytes;

		if (all && behind)
			out[count++] = (struct iovec){ p->delimiter, behind };
		offered = ulp_iov_bytes(out, count);
		n = offered ? ulp_write_below(l, out, count, NULL) : 0;
		if (n < 0)
			return n;
		if (all && (size_t)n >= data)
			s->delimiter_left = (uint8_t)(behind - ((size_t)n - data));
		done += (size_t)n < data ? (size_t)n : data;
	} while (done < bytes && n && (size_t)n == offered);
	return (ssize_t)done;
}

static ssize_t lines_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	struct lines *p = l->state;
	struct lines_sending *s = &p->sending;
	size_t bytes = ulp_iov_bytes(iov, pieces);
	ssize_t n;
	int r;

	if (!mark->pdu)
		return ulp_fail(l, XTS_FAULT_USE, "lines: bytes were sent that are not a PDU");
	r = lines_flush(l);
	if (r)
		return r == -EAGAIN ? 0 : r;
	r = check(l, p, iov, pieces, !mark->more);
	if (r)
		return r;
	n = write_through(l, p, iov, pieces, bytes, mark->more || p->keep ? 0 : p->delimiter_bytes);
	if (n < 0)
		return n;
	s->length += (size_t)n;
	if ((size_t)n < bytes)
		return n;
	if (!mark->more)
		*s = (struct lines_sending){ .delimiter_left = s->delimiter_left };
	r = lines_flush(l); /* the layer below may have taken less than all although there is room */
	if (r && r != -EAGAIN)
		return r;
	return bytes ? n : 1;
}

/* --- to another process, and from it ------------------------------------------------------------------------------ */

int lines_check(const void *made)
{
	const struct lines *p = made;
	const struct lines_sending *s = &p->sending;
	uint32_t behind = p->keep ? 0 : p->delimiter_bytes;

	if (!p->delimiter_bytes || s->delimiter_left > p->delimiter_bytes || s->checked < s->length)
		return -EBADMSG;
	if (p->handed > p->max_bytes || (p->ending && p->ending + behind > p->in.bytes))
		return -EBADMSG;
	return p->starved && (p->ending || p->in.bytes >= p->delimiter_bytes) ? -EBADMSG : 0;
}

static ssize_t lines_save(const struct ulp_layer *l, void *out, size_t room)
{
	return ulp_state_save(&lines_record, l, out, room);
}

static int lines_restore(struct ulp_layer *l, const void *state, size_t bytes)
{
	int r = ulp_state_restore(&lines_record, l, sizeof(struct lines), state, bytes);
	struct lines *p = l->state;
	uint8_t delimiter[DELIMITER_MAX];

	if (r)
		return r;
	memcpy(delimiter, p->delimiter, sizeof delimiter);
	set_delimiter(p, delimiter, p->delimiter_bytes);
	return 0;
}

static uint32_t lines_rests(const struct ulp_layer *l)
{
	const struct lines *p = l->state;

	return !p->in.bytes && !p->handed && !p->sending.checked && !p->sending.delimiter_left;
}

const struct ulp_protocol ulp_lines = {
	.id = XTS_ULP_LINES,
	.version = XTS_ULP_LINES_VERSION,
	.name = "lines",
	.receive = true,
	.send = true,
	.boundaries = true,
	.open = lines_open,
	.read = lines_read,
	.pending = lines_pending,
	.write = lines_write,
	.flush = lines_flush,
	.save = lines_save,
	.restore = lines_restore,
	.moves_since = 2,
	.rests = lines_rests,
	.close = lines_close,
};
