/* PDUs whose beginning tells their length; see framing.h. */
#include "framing.h"

#include <errno.h>
#include <string.h>

#define NS_PER_MS 1000000u

/* --- time ------------------------------------------------------------------------------------------------------------ */

void ulp_wait_pause(struct ulp_layer *l, struct ulp_wait *w)
{
	uint64_t came;

	if (!w->waiting || !ulp_socket_readable(l, &came))
		return;
	if (came > w->since_ns) /* else it is not known: the connection has moved meanwhile */
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
		return ulp_fail(l, XTS_FAULT_STALLED, "%s: a PDU that had begun has waited for the peer for %u ms", l->protocol->name,
				timeout_ms);
	}
	ulp_wake_after(l, (uint32_t)((all - spent + NS_PER_MS - 1) / NS_PER_MS));
	return 0;
}

/* Nothing comes from below: what does that mean here? */
static ssize_t nothing(struct ulp_framing *f, struct ulp_layer *l, ssize_t why)
{
	bool within = f->known || f->bytes;
	int r;

	if (why == -ENODATA && f->known) {
		return ulp_fail(l, XTS_FAULT_TRUNCATED, "%s: the stream ended after %u of the %u bytes of a PDU", l->protocol->name,
				f->length - f->left, f->length);
	}
	if (why == -ENODATA && f->bytes) {
		return ulp_fail(l, XTS_FAULT_TRUNCATED, "%s: the stream ended within the first %u bytes of a PDU",
				l->protocol->name, f->bytes + 1u);
	}
	if (why != -EAGAIN || !within || !f->timeout_ms)
		return why;
	r = ulp_wait_go_on(l, &f->wait, f->timeout_ms);
	return r ? r : -EAGAIN;
}

/* --- reading --------------------------------------------------------------------------------------------------------- */

/* Tries what was read ahead. 1: a PDU is under way, 0: needs more, or -errno. */
static int parse(struct ulp_framing *f, struct ulp_layer *l)
{
	struct ulp_framing_head head = { 0 };
	int r = f->bytes ? f->parse(l, f->ahead + f->first, f->bytes, &head) : 0;

	if (r <= 0)
		return r;
	if (head.length > f->max_bytes) {
		return ulp_fail(l, XTS_FAULT_TOO_LONG, "%s: a PDU of %llu bytes, and MAX_BYTES is %u", l->protocol->name,
				(unsigned long long)head.length, f->max_bytes);
	}
	f->first = (uint16_t)(f->first + head.strip);
	f->bytes = (uint16_t)(f->bytes - head.strip);
	f->length = f->left = (uint32_t)head.length;
	f->known = true;
	return 1;
}

/* Until the length is known: 0 or what nothing() says. */
static ssize_t begin(struct ulp_framing *f, struct ulp_layer *l)
{
	while (!f->known) {
		int r = f->starved ? 0 : parse(f, l);
		ssize_t n;

		if (r < 0)
			return r;
		if (r)
			break;
		memmove(f->ahead, f->ahead + f->first, f->bytes);
		f->first = 0;
		f->starved = true;
		n = ulp_read_stream_below(l, f->ahead + f->bytes, sizeof f->ahead - f->bytes);
		if (n < 0)
			return nothing(f, l, n);
		f->bytes = (uint16_t)(f->bytes + n);
		f->starved = false;
	}
	return 0;
}

ssize_t ulp_framing_read(struct ulp_framing *f, struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	uint32_t done;
	ssize_t n;

	ulp_wait_pause(l, &f->wait);
	n = begin(f, l);
	if (n)
		return n;
	if (room > f->left)
		room = f->left;
	done = f->bytes < room ? f->bytes : (uint32_t)room;
	memcpy(out, f->ahead + f->first, done);
	f->first = (uint16_t)(f->first + done);
	f->bytes = (uint16_t)(f->bytes - done);
	f->left -= done;
	if (done < room) {
		n = ulp_read_stream_below(l, (uint8_t *)out + done, room - done);
		if (n > 0) {
			done += (uint32_t)n;
			f->left -= (uint32_t)n;
		} else {
			n = nothing(f, l, n); /* noted, for the next read, if there are bytes to hand on first */
			if (!done)
				return n;
		}
	}
	*mark = (struct ulp_mark){ .pdu = true, .more = f->left, .record_bytes = f->length };
	if (!f->left) {
		f->known = false;
		f->wait = (struct ulp_wait){ 0 };
	}
	return done;
}

bool ulp_framing_pending(const struct ulp_framing *f, const struct ulp_layer *l)
{
	if (f->known ? f->bytes || !f->left : f->bytes && !f->starved)
		return true;
	return ulp_pending_below(l);
}
