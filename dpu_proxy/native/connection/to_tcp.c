/*
 * Host to TCP: writes what a connection was sent in a batch of frames, or lets it wait (outgoing.h).
 *
 * There is one path, with protocols or without. The gathered messages are offered as they came: PDU by PDU, and byte
 * streams in pieces as large as possible. A raw run goes to TCP by sendmsg(2), so a connection without protocols pays
 * nothing for them; any other run goes to the stack. What is not taken waits, and is offered again on an event of epoll
 * or when a protocol asks for it.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "channel/ledger.h"
#include "connection/paced.h"
#include "connection/socket_kind.h"
#include "common/probe.h"
#include "pushed/pushed_kept.h"

#define GATHER_PIECES 512 /* below IOV_MAX; a batch of 32 frames of 16 pieces */
#define RAW_PIECES 4      /* waiting pieces, 64 KiB each, written between two reads of the clock */

int batch_pieces(const struct batch_entry *e, struct iovec *iov, int max)
{
	uint32_t skip = e->skip, left = e->bytes;
	int n = 0;

	for (uint32_t i = 0; i < e->frame.segments && left && n < max; i++) {
		size_t length = e->frame.segment[i].iov_len;

		if (skip >= length) {
			skip -= (uint32_t)length;
			continue;
		}
		iov[n].iov_base = (uint8_t *)e->frame.segment[i].iov_base + skip;
		iov[n].iov_len = length - skip < left ? length - skip : left;
		left -= (uint32_t)iov[n++].iov_len;
		skip = 0;
	}
	return n;
}

static uint32_t pdu_credits(const struct run *r)
{
	return r->mark.pdu ? XTS_PDU_CREDITS : 0;
}

/* --- accounts ----------------------------------------------------------------------------------------------------- */

/* A whole window has gone to TCP. If TCP took all of it at once, the window may be what holds the connection back: it
 * grows. If some was spilled, TCP is, and a larger window would only fill the spill buffer. */
static void window_used(struct connection *c)
{
	if (!c->spilled)
		connection_grow_window(c);
	c->consumed = 0;
	c->spilled = false;
}

/* Accounts for bytes that TCP has taken: the paper's POST_CREDITS_UNA grows, and perhaps the window. */
static void account_taken(struct connection *c, const struct outgoing_taken *taken)
{
	c->worker->stats.sent_bytes += taken->bytes;
	c->worker->stats.writes++;
	if (!c->channel || c->orphan)
		return;
	XTS_PROBE4(worker_wrote, c->channel->link.epoch, c->proxy_id, c->tcp.out.sent_bytes, c->tcp.out.spill.bytes);
	connection_free_credits(c, taken->credits);
	c->consumed += taken->credits;
	if (c->consumed >= c->window)
		window_used(c);
	if (xts_credit_due(&c->grant))
		connection_wake(c);
}

void stream_drop_outgoing(struct connection *c)
{
	waiting_for(c, XTS_WAIT_SENDING, XTS_WAIT_NONE);
	connection_spill_gone(c, c->tcp.out.spill.bytes);
	if (c->channel)
		connection_free_credits(c, outgoing_credits(&c->tcp.out));
	ledger_spills(c->tcp.fd, NULL);
	outgoing_free(&c->tcp.out);
}

void connection_drop_outgoing(struct connection *c)
{
	kind_of(c)->drop_outgoing(c);
}

#ifdef XTS_DEBUG
/* The conservation law of credits, as this end sees it: the bytes received and not freed
 * yet are the bytes that wait. */
static void check_account(const struct connection *c)
{
	(void)c; /* with NDEBUG */
	assert(!c->channel || c->orphan || c->state != CONNECTION_ESTABLISHED ||
	       xts_credit_buffered(&c->grant) == outgoing_credits(&c->tcp.out));
}
#else
static void check_account(const struct connection *c)
{
	(void)c;
}
#endif

/* --- what waits --------------------------------------------------------------------------------------------------- */

static struct outgoing_target target_of(const struct connection *c)
{
	return (struct outgoing_target){
		.fd = c->tcp.fd,
		.stack = c->tcp.pushed && c->tcp.pushed->started ? c->tcp.pushed->stack : NULL,
		.more = c->tcp.more,
		.writable = c->writable,
		.most = UINT32_MAX,
		.raw_pieces = RAW_PIECES,
	};
}

/* Offers what waits until nothing is taken or the turn is over. Once is not enough: a layer may take less than
 * everything although TCP has room (TLS takes a few records at a time), and then no event would report room again.
 * False when the connection has failed. */
static bool write_waiting(struct connection *c)
{
	while (outgoing_waits(&c->tcp.out)) {
		struct outgoing_target to = target_of(c);
		struct outgoing_taken taken;
		int error;

		to.most = c->tcp.out.spill.bytes;
		if (!paced_may(c, 1, &to.most))
			break;
		error = outgoing_drain(&c->tcp.out, &to, &taken);
		c->writable = to.writable;
		if (error) {
			connection_fail(c, -error);
			return false;
		}
		if (!taken.bytes && !taken.done)
			break;
		connection_spill_gone(c, taken.bytes);
		paced_sent(c, taken.bytes);
		account_taken(c, &taken);
		if (!outgoing_waits(&c->tcp.out) || (!c->writable && outgoing_first_is_raw(&c->tcp.out)))
			break;
		if (worker_turn_is_over(c->worker)) {
			connection_note(c, EPOLLOUT); /* it goes on in the next turn */
			break;
		}
	}
	return true;
}

/* --- what was gathered -------------------------------------------------------------------------------------------- */

static bool spill(struct connection *c, const struct run *r, const struct iovec *iov, int pieces)
{
	if (outgoing_append(&c->tcp.out, r, iov, pieces))
		return false;
	ledger_spills(c->tcp.fd, spill_first(&c->tcp.out.spill, 0)); /* before the frame is given back */
	c->worker->stats.spill_bytes += r->bytes;
	if (c->channel)
		c->channel->spill_bytes += r->bytes;
	c->worker->stats.spilled_bytes += r->bytes;
	c->spilled = true;
	waiting_for(c, XTS_WAIT_SENDING, XTS_WAIT_TCP);
	return true;
}

/* Takes the first bytes off the pieces. */
static int pieces_drop(struct iovec **iov, int pieces, size_t bytes)
{
	for (; pieces && bytes >= (*iov)->iov_len; pieces--)
		bytes -= (*iov)++->iov_len;
	if (pieces) {
		(*iov)->iov_base = (uint8_t *)(*iov)->iov_base + bytes;
		(*iov)->iov_len -= bytes;
	}
	return pieces;
}

/* Do bytes sent now bypass the protocols? */
static bool is_raw(const struct connection *c)
{
	return !c->tcp.pushed || (!c->tcp.pushed->started && !ulp_stack_sends(c->tcp.pushed->stack));
}

/* Writes a run that the host has just sent, behind what waits. Returns as write_waiting(). */
static bool write_run(struct connection *c, struct run *r, struct iovec *iov, int pieces)
{
	struct outgoing_taken taken = { .bytes = 1 };
	bool over = false;
	int error = 0;

	XTS_PROBE3(worker_offers, c->channel->link.epoch, c->proxy_id,
		   c->tcp.out.sent_bytes + c->tcp.out.spill.bytes + r->bytes);
	r->raw = is_raw(c);
	if (paced_is(c) && spill(c, r, iov, pieces))
		return write_waiting(c);
	while (!outgoing_waits(&c->tcp.out) && taken.bytes && !taken.done && !over && !error) {
		struct outgoing_target to = target_of(c);

		error = outgoing_offer(&c->tcp.out, &to, r, iov, pieces, true, &taken);
		c->writable = to.writable;
		if (taken.bytes || taken.done)
			account_taken(c, &taken);
		if (taken.bytes && !taken.done) {
			r->bytes -= taken.bytes;
			pieces = pieces_drop(&iov, pieces, taken.bytes);
			over = !r->raw && worker_turn_is_over(c->worker);
		}
	}
	if (over)
		connection_note(c, EPOLLOUT);
	if (!error && (taken.done || spill(c, r, iov, pieces)))
		return true;
	connection_free_credits(c, r->bytes + pdu_credits(r));
	connection_fail(c, error ? -error : ENOBUFS);
	return false;
}

/* Takes the next run off the gathered messages: a PDU's message, or as much of a byte stream as there is. */
static int gather_run(struct connection *c, struct run *r, struct iovec *iov)
{
	struct channel *ch = c->channel;
	const struct batch_entry *e = &ch->batch[c->gathered_first];
	int pieces = 0;

	memset(r, 0, sizeof *r);
	if (e->mark.pdu)
		r->mark = e->mark;
	do {
		e = &ch->batch[c->gathered_first];
		pieces += batch_pieces(e, iov + pieces, GATHER_PIECES - pieces);
		r->bytes += e->bytes;
		c->gathered_first = e->next;
		c->worker->stats.gathered_messages++;
	} while (!r->mark.pdu && c->gathered_first != BATCH_NONE && !ch->batch[c->gathered_first].mark.pdu);
	if (c->gathered_first == BATCH_NONE)
		c->gathered_last = BATCH_NONE;
	return pieces;
}

/* Writes what was gathered. False when the connection has failed. */
static bool write_gathered(struct connection *c)
{
	struct iovec iov[GATHER_PIECES];
	struct run r;

	while (c->gathered_first != BATCH_NONE) {
		int pieces = gather_run(c, &r, iov);

		if (!c->tcp.error && c->tcp.fd >= 0)
			(void)write_run(c, &r, iov, pieces);
		else /* nobody will read these bytes; the host gets RESET */
			connection_free_credits(c, r.bytes + pdu_credits(&r));
	}
	return !c->tcp.error && c->tcp.fd >= 0;
}

/* --- protocols ---------------------------------------------------------------------------------------------------- */

/* Starts the protocols, if the bytes that have to leave first have left, and sends what they hold back. False when the
 * connection has failed. */
static bool flush_stack(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;
	int r = 0;

	if (!p->started && ulp_stack_sends(p->stack)) {
		pushed_start(c);
		if (c->tcp.fd < 0 || c->tcp.error || !write_waiting(c))
			return false;
	}
	if (p->started)
		r = ulp_stack_flush(p->stack);
	if (!r || r == -EAGAIN)
		return true;
	connection_fail(c, -r);
	return false;
}

static void flush(struct connection *c)
{
	if (!c->tcp.error && c->tcp.fd >= 0 && !write_waiting(c) && c->gathered_first == BATCH_NONE)
		return; /* it has failed; an orphan, which has no channel to gather from, is freed */
	if (!write_gathered(c))
		return;
	if (c->tcp.pushed && !flush_stack(c))
		return;
	check_account(c);
	if (outgoing_waits(&c->tcp.out))
		return;
	waiting_for(c, XTS_WAIT_SENDING, XTS_WAIT_NONE);
	connection_drained(c);
}

void connection_flush(struct connection *c)
{
	flush(c);
	pushed_keep(c);
}

bool pushed_finish(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;
	int r;

	if (p->finished || !p->started)
		return !outgoing_waits(&c->tcp.out);
	if (!p->ready) /* the protocols never began, unless a handshake is still in progress */
		return c->state == CONNECTION_CLOSING;
	r = ulp_stack_finish(p->stack);
	p->finished = !r;
	if (r && r != -EAGAIN)
		connection_fail(c, -r);
	return !r;
}
