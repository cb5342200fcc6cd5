/* PDUs with their length in the first bytes; see framing.h. */
#include "common/time_units.h"
#include "framing.h"
#include "framing_move.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- time --------------------------------------------------------------------------------------------------------- */

void ulp_wait_pause(struct ulp_layer *l, struct ulp_wait *w)
{
	uint64_t came;

	if (!w->waiting || !ulp_socket_readable(l, &came))
		return;
	if (came > w->since_ns) /* else unknown: the connection has moved to another owner meanwhile */
		w->spent_ns += came - w->since_ns;
	w->waiting = false;
}

int ulp_wait_go_on(struct ulp_layer *l, struct ulp_wait *w, uint32_t timeout_ms)
{
	uint64_t now = ulp_now_ns(l), spent, all = (uint64_t)timeout_ms * NS_PER_MS;

	if (!w->waiting)
		w->since_ns = now;
	w->waiting = true;
	spent = w->spent_ns + (now - w->since_ns);
	if (spent >= all) {
		return ulp_fail(l, XTS_FAULT_STALLED, "%s: the rest of a PDU has not come from the peer in %u ms",
				l->protocol->name, timeout_ms);
	}
	ulp_wake_after(l, (uint32_t)((all - spent + NS_PER_MS - 1) / NS_PER_MS));
	return 0;
}

/* The layer below has nothing: waits, times out, or reports the end of the stream. */
static ssize_t nothing(struct ulp_framing *f, struct ulp_layer *l, ssize_t why)
{
	bool within = f->known || f->in.bytes;
	int r;

	if (why == -ENODATA && f->known) {
		return ulp_fail(l, XTS_FAULT_TRUNCATED, "%s: the stream ended after %u of the %u bytes of a PDU",
				l->protocol->name, (uint32_t)f->head.length - f->left, (uint32_t)f->head.length);
	}
	if (why == -ENODATA && f->in.bytes) {
		return ulp_fail(l, XTS_FAULT_TRUNCATED, "%s: the stream ended inside the first %u bytes of a PDU",
				l->protocol->name, f->in.bytes + 1u);
	}
	if (why != -EAGAIN || !within || !f->timeout_ms)
		return why;
	r = ulp_wait_go_on(l, &f->wait, f->timeout_ms);
	return r ? r : -EAGAIN;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Tries to parse what was read ahead. 1: a PDU has begun; 0: more bytes are needed; or -errno. */
static int parse(struct ulp_framing *f, struct ulp_layer *l)
{
	int r;

	f->head = (struct ulp_framing_head){ 0 };
	r = f->in.bytes ? f->parse(l, f->in.data + f->in.first, f->in.bytes, &f->head) : 0;
	if (r <= 0)
		return r;
	if (f->head.length > f->max_bytes) {
		return ulp_fail(l, XTS_FAULT_TOO_LONG, "%s: a PDU of %llu bytes, and MAX_BYTES is %u",
				l->protocol->name, (unsigned long long)f->head.length, f->max_bytes);
	}
	f->in.first += f->head.strip;
	f->in.bytes -= f->head.strip;
	f->left = (uint32_t)f->head.length;
	f->known = true;
	return 1;
}

/* Reads until the length of the PDU is known. 0, or what nothing() returns. */
static ssize_t begin(struct ulp_framing *f, struct ulp_layer *l)
{
	while (!f->known) {
		int r = f->starved ? 0 : parse(f, l);
		ssize_t n;

		if (r < 0)
			return r;
		if (r)
			break;
		f->starved = true;
		n = ulp_in_more(&f->in, l);
		if (n < 0)
			return nothing(f, l, n);
		f->starved = false;
	}
	return 0;
}

/* Takes up to room bytes of the current PDU, which has more left: those that were read ahead, and what one read of the
 * layer below gives. */
static ssize_t take(struct ulp_framing *f, struct ulp_layer *l, uint8_t *out, size_t room)
{
	size_t want = room < f->left ? room : f->left;
	bool here = f->in.bytes;
	ssize_t n = ulp_in_read(&f->in, l, out, want, room), more;

	if (n < 0)
		return nothing(f, l, n);
	f->left -= (uint32_t)n;
	if (!here || (size_t)n == want)
		return n;
	more = ulp_in_read(&f->in, l, out + n, want - (size_t)n, room - (size_t)n);
	if (more < 0) {
		(void)nothing(f, l, more); /* noted, and reported by the next read */
		return n;
	}
	f->left -= (uint32_t)more;
	return n + more;
}

ssize_t ulp_framing_read(struct ulp_framing *f, struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	ssize_t n;

	ulp_wait_pause(l, &f->wait);
	n = begin(f, l);
	if (!n && f->left)
		n = take(f, l, out, room);
	if (n < 0)
		return n;
	*mark = (struct ulp_mark){ .pdu = true,
				   .more = f->left,
				   .record_bytes = (uint32_t)f->head.length,
				   .control_type = f->head.control_type,
				   .control_bytes = f->head.control_bytes };
	memcpy(mark->control, f->head.control, sizeof mark->control);
	if (!f->left) {
		f->known = false;
		f->wait = (struct ulp_wait){ 0 };
	}
	return n;
}

/* --- from another process ----------------------------------------------------------------------------------------- */

int ulp_framing_check(const void *made)
{
	const struct ulp_framing *f = made;
	bool within = f->known ? f->head.length <= f->max_bytes && f->left <= f->head.length : !f->left;

	return within && (!f->starved || f->in.bytes < ULP_FRAMING_HEAD_MAX) ? 0 : -EBADMSG;
}

/* --- for protocols ------------------------------------------------------------------------------------------------ */

ssize_t ulp_framed_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	return ulp_framing_read(l->state, l, out, room, mark);
}

bool ulp_framed_pending(const struct ulp_layer *l)
{
	const struct ulp_framing *f = l->state;

	if (f->known ? f->in.bytes || !f->left : f->in.bytes && !f->starved)
		return true;
	return ulp_pending_below(l);
}

uint32_t ulp_framed_rests(const struct ulp_layer *l)
{
	const struct ulp_framing *f = l->state;

	return !f->known && !f->in.bytes;
}

void ulp_framed_close(struct ulp_layer *l)
{
	struct ulp_framing *f = l->state;

	ulp_in_free(&f->in);
	free(f);
}
