/* Bytes that wait for TCP: a spill buffer, the runs in it, and the one path to TCP; see outgoing.h. */
#include "connection/outgoing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "channel/ledger.h"
#include "ulp/ulp_stack.h"

#define STACK_PIECES 32 /* at least 17: a message lies in blocks of 4 KiB or more */

/* --- runs --------------------------------------------------------------------------------------------------------- */

static struct run *run_at(const struct outgoing *o, uint32_t i)
{
	return &o->runs->run[(o->runs->first + i) & (o->runs->room - 1)];
}

bool outgoing_first_is_raw(const struct outgoing *o)
{
	return !outgoing_runs(o) || run_at(o, 0)->raw;
}

bool outgoing_last_is_raw(const struct outgoing *o)
{
	return !outgoing_runs(o) || run_at(o, outgoing_runs(o) - 1)->raw;
}

static void run_drop_first(struct outgoing *o)
{
	o->runs->pdus -= run_at(o, 0)->mark.pdu;
	o->runs->first = (o->runs->first + 1) & (o->runs->room - 1);
	o->runs->count--;
}

/* Can the bytes of r join the last run? */
static bool joins_last(const struct outgoing *o, const struct run *r)
{
	if (!outgoing_runs(o))
		return r->raw && !r->mark.pdu; /* bytes without a run are raw */
	return !r->mark.pdu && !run_at(o, outgoing_runs(o) - 1)->mark.pdu &&
	       run_at(o, outgoing_runs(o) - 1)->raw == r->raw;
}

int outgoing_append(struct outgoing *o, const struct run *r, const struct iovec *iov, int pieces)
{
	struct run before = { .bytes = o->spill.bytes, .raw = true };
	bool joins = joins_last(o, r);

	/* There may be two to add: bytes without a run get one when another follows them. */
	if (!joins && runs_make_room(&o->runs, 2))
		return -ENOMEM;
	if (spill_append(&o->spill, iov, pieces, (uint32_t)o->sent_bytes + o->spill.bytes))
		return -ENOMEM;
	if (joins && outgoing_runs(o))
		run_at(o, outgoing_runs(o) - 1)->bytes += r->bytes;
	if (joins)
		return 0;
	if (!outgoing_runs(o) && before.bytes)
		runs_append(o->runs, &before);
	runs_append(o->runs, r);
	return 0;
}

void outgoing_free(struct outgoing *o)
{
	spill_free(&o->spill);
	free(o->runs);
	o->runs = NULL;
}

/* --- the path to TCP ---------------------------------------------------------------------------------------------- */

/* One attempt; bytes written, 0 when TCP is full, or -errno. */
static ssize_t write_raw(struct outgoing_target *to, struct iovec *iov, int pieces)
{
	struct msghdr message = { .msg_iov = iov, .msg_iovlen = (size_t)pieces };
	ssize_t n;

	if (!to->writable)
		return 0;
	do {
		n = sendmsg(to->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT | (to->more ? MSG_MORE : 0));
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN)
		return -errno;
	return n < 0 ? 0 : n;
}

int outgoing_offer(struct outgoing *o, struct outgoing_target *to, const struct run *r, struct iovec *iov, int pieces,
		   bool whole, struct outgoing_taken *taken)
{
	struct ulp_mark mark = r->mark;
	ssize_t n = 0;

	*taken = (struct outgoing_taken){ 0 };
	if (r->raw) {
		uint32_t offered = (uint32_t)ulp_iov_bytes(iov, pieces);

		n = write_raw(to, iov, pieces);
		to->writable &= n >= (ssize_t)offered;
		taken->done = n >= 0 && (uint32_t)n == r->bytes;
	} else if (to->stack) {
		mark.more |= mark.pdu && !whole;
		n = ulp_stack_write(to->stack, iov, pieces, &mark);
		if (n == -EAGAIN)
			n = 0;
		taken->done = n > 0 && (!r->bytes || (uint32_t)n == r->bytes);
		if (!r->bytes && n > 0) /* for an empty PDU, n only says whether it was taken */
			n = 0;
	}
	if (n < 0)
		return (int)n;
	taken->bytes = (uint32_t)n;
	taken->credits = (uint32_t)n + (taken->done && r->mark.pdu ? XTS_PDU_CREDITS : 0);
	o->sent_bytes += (uint64_t)n;
	return 0;
}

int outgoing_drain(struct outgoing *o, struct outgoing_target *to, struct outgoing_taken *taken)
{
	struct run all = { .bytes = o->spill.bytes, .raw = true }, *r = outgoing_runs(o) ? run_at(o, 0) : &all;
	struct iovec iov[STACK_PIECES];
	int pieces = 0, in_buffer = r->bytes ? spill_peek(&o->spill, iov, r->raw ? to->raw_pieces : STACK_PIECES) : 0;
	uint32_t most = r->bytes < to->most ? r->bytes : to->most, left = most;
	int error;

	for (; pieces < in_buffer && left; left -= (uint32_t)iov[pieces++].iov_len) {
		if (iov[pieces].iov_len > left)
			iov[pieces].iov_len = left;
	}
	error = outgoing_offer(o, to, r, iov, pieces, !left && most == r->bytes, taken);
	if (error)
		return error;
	r->bytes -= taken->bytes;
	ledger_spills(to->fd, spill_first(&o->spill, taken->bytes));
	spill_drop(&o->spill, taken->bytes);
	if (taken->done && outgoing_runs(o))
		run_drop_first(o);
	return 0;
}
