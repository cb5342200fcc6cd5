/*
 * How much OpenSSL is shown at once. During a handshake it asks for no more than the record it needs. After one, where
 * the connection stays with it, it reads ahead, straight from the socket into its own buffer, and works through that
 * buffer whatever it costs. So a read is cut at the end of a record, after a few whole ones, or after one
 * while they bring no data (tls_flood.c). The ciphertext read beyond that waits here. Large records do not have to
 * wait, because only a few of them fit into the buffer.
 */
#include <errno.h>
#include <string.h>

#include "tls.h"

#define AHEAD_BYTES 4096u

/* How many bytes there are up to the end of the last of this many whole records; all bytes, if there are not more
 * records. */
static size_t cut(struct tls_position *s, const uint8_t *data, size_t bytes, unsigned records, unsigned *whole)
{
	struct tls_position at = *s, end = *s;
	size_t i = 0, after = 0;

	for (*whole = 0;; end = at, after = i) {
		while (at.header_bytes < sizeof at.header && i < bytes)
			at.header[at.header_bytes++] = data[i++];
		if (at.header_bytes < sizeof at.header)
			break;
		if (!at.in_body)
			at.body_left = (uint16_t)(at.header[3] << 8 | at.header[4]);
		at.in_body = true;
		if (bytes - i < at.body_left) {
			at.body_left = (uint16_t)(at.body_left - (bytes - i));
			break;
		}
		i += at.body_left;
		at.header_bytes = 0;
		at.in_body = false;
		if (*whole == records) {
			*s = end;
			return after;
		}
		++*whole;
	}
	*s = at;
	return bytes;
}

static int keep(struct tls *t, const uint8_t *data, uint32_t bytes)
{
	int r = ulp_out_reserve(&t->slice.ahead, t->layer, bytes);

	if (r)
		return ulp_memory_fail(t->layer, r, "records read ahead");
	ulp_out_put(&t->slice.ahead, data, bytes);
	return 0;
}

/* During a handshake OpenSSL asks for a record's header, and then for the rest. Reads more at once; not where the
 * kernel may read on behind the handshake. As ulp_read_stream_below(). */
static ssize_t read_ahead(struct tls *t)
{
	static _Thread_local uint8_t bytes[AHEAD_BYTES];
	ssize_t n = ulp_read_stream_below(t->layer, bytes, sizeof bytes);
	int r = n > 0 ? keep(t, bytes, (uint32_t)n) : 0;

	return r ? r : n;
}

ssize_t tls_slice_read(struct tls *t, void *out, size_t room)
{
	struct tls_slice *s = &t->slice;
	bool again = s->ahead.bytes;
	unsigned records = t->done && t->quiet_records ? 1 : TLS_SLICE_RECORDS, whole;
	size_t shown;
	ssize_t n;
	int r;

	t->dry = false;
	if (!t->away && !ulp_step(t->layer, 1))
		return -EAGAIN;
	if (!again && !t->away && !t->done && !t->socket) {
		n = read_ahead(t);
		t->dry = n == -EAGAIN;
		if (n < 0)
			return n;
		again = true;
	}
	if (again) {
		n = s->ahead.bytes < room ? s->ahead.bytes : (ssize_t)room;
		memcpy(out, s->ahead.data + s->ahead.first, (size_t)n);
	} else {
		n = t->away ? tls_handshake_receive(t, out, room) : ulp_read_stream_below(t->layer, out, room);
	}
	t->dry = n == -EAGAIN;
	if (n < 0)
		return n;
	shown = cut(&s->position, out, (size_t)n, records, &whole);
	if (whole && !t->away)
		(void)ulp_step(t->layer, whole * TLS_RECORD_STEPS);
	if (again) {
		s->ahead.first += (uint32_t)shown;
		s->ahead.bytes -= (uint32_t)shown;
		if (!s->ahead.bytes && !t->away)
			ulp_out_free(&s->ahead);
	} else if (shown < (size_t)n) {
		r = keep(t, (uint8_t *)out + shown, (uint32_t)((size_t)n - shown));
		if (r)
			return r;
	}
	return (ssize_t)shown;
}
