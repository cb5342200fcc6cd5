/* Host to TCP, through what is pushed: SEND_PDU, and the writing of what was gathered and of what waits. pushed.h has the theory of operation. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "pushed.h"
#include "stream.h"

/* --- runs ------------------------------------------------------------------------------------------------------------ */

static struct run *run_at(const struct pushed *p, uint32_t i)
{
	return &p->runs[(p->run_first + i) & (p->run_room - 1)];
}

static int runs_grow(struct pushed *p)
{
	uint32_t room = p->run_room ? p->run_room * 2 : 8;
	struct run *runs = calloc(room, sizeof *runs);

	if (!runs)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->run_count; i++)
		runs[i] = *run_at(p, i);
	free(p->runs);
	p->runs = runs;
	p->run_room = room;
	p->run_first = 0;
	return 0;
}

static bool is_joined(const struct run *a, const struct run *b)
{
	return !a->mark.pdu && !b->mark.pdu && a->raw == b->raw;
}

/* Behind those that wait; the bytes are in the spill buffer. */
static int run_append(struct pushed *p, const struct run *r)
{
	if (p->run_count && is_joined(run_at(p, p->run_count - 1), r)) {
		run_at(p, p->run_count - 1)->bytes += r->bytes;
		return 0;
	}
	if (p->run_count == p->run_room && runs_grow(p))
		return -ENOMEM;
	*run_at(p, p->run_count++) = *r;
	p->run_pdus += r->mark.pdu;
	return 0;
}

static void run_drop_first(struct pushed *p)
{
	p->run_pdus -= run_at(p, 0)->mark.pdu;
	p->run_first = (p->run_first + 1) & (p->run_room - 1);
	p->run_count--;
}

int pushed_take_spill(struct connection *c)
{
	struct run r = { .bytes = c->spill.bytes, .raw = true };

	return r.bytes ? run_append(c->pushed, &r) : 0;
}

uint32_t pushed_costs(const struct pushed *p)
{
	return p->run_pdus * XTS_PDU_CREDITS;
}

void pushed_drop(struct connection *c)
{
	struct pushed *p = c->pushed;

	if (c->channel)
		connection_free_credits(c, pushed_costs(p));
	free(p->runs);
	p->runs = NULL;
	p->run_first = p->run_count = p->run_room = p->run_pdus = 0;
}

bool pushed_waits(const struct connection *c)
{
	return c->pushed->run_count;
}

bool pushed_send_busy(const struct connection *c)
{
	const struct pushed *p = c->pushed;

	return p->run_count && (p->started || !run_at(p, p->run_count - 1)->raw);
}

bool pushed_deliverable(const struct connection *c)
{
	const struct pushed *p = c->pushed;

	return p->started || !p->run_count || run_at(p, 0)->raw;
}

/* --- writing --------------------------------------------------------------------------------------------------------- */

/* Offers the bytes of a run that are in iov (whole: they are all of it). Bytes taken, *done when the run has gone; -errno when the connection
 * has failed. */
static ssize_t offer(struct connection *c, const struct run *r, struct iovec *iov, int pieces, bool whole, bool *done)
{
	struct pushed *p = c->pushed;
	struct ulp_mark mark = r->mark;
	ssize_t n;

	*done = false;
	if (r->raw) {
		if (r->bytes && !c->writable)
			return 0;
		n = r->bytes ? stream_write(c, iov, pieces) : 0;
		c->writable = n >= (ssize_t)ulp_iov_bytes(iov, pieces);
	} else if (!p->started) {
		return 0;
	} else {
		mark.more |= mark.pdu && !whole;
		n = ulp_stack_write(p->stack, iov, pieces, &mark);
		if (n == -EAGAIN)
			n = 0;
		if (!r->bytes && n > 0) { /* an empty PDU is taken, or not */
			*done = true;
			n = 0;
		}
	}
	if (n < 0)
		return n;
	*done |= (r->bytes || r->raw) && (uint32_t)n == r->bytes;
	if (n || *done)
		stream_account_sent(c, (uint32_t)n, (uint32_t)n + (*done && r->mark.pdu ? XTS_PDU_CREDITS : 0));
	return n;
}

/* Offers what waits. False when the connection has failed. */
static bool write_waiting(struct connection *c)
{
	struct pushed *p = c->pushed;
	bool done = true;

	while (p->run_count && done) {
		struct iovec iov[SPILL_PIECES];
		struct run *r = run_at(p, 0);
		int pieces = 0, in_buffer = r->bytes ? spill_peek(&c->spill, iov, SPILL_PIECES) : 0;
		uint32_t left = r->bytes;
		ssize_t n;

		for (; pieces < in_buffer && left; left -= (uint32_t)iov[pieces++].iov_len) {
			if (iov[pieces].iov_len > left)
				iov[pieces].iov_len = left;
		}
		n = offer(c, r, iov, pieces, !left, &done);
		if (n < 0) {
			connection_fail(c, (int)-n);
			return false;
		}
		if (!n && !done)
			break;
		r->bytes -= (uint32_t)n;
		connection_spill_gone(c, (uint64_t)n);
		spill_drop(&c->spill, (uint32_t)n);
		if (done)
			run_drop_first(p);
		else
			done = n > 0; /* until nothing is taken: as in write_run() */
		if (p->run_count && done && worker_turn_is_over(c->worker)) {
			connection_note(c, EPOLLOUT); /* goes on in the next turn */
			break;
		}
	}
	return true;
}

static bool spill(struct connection *c, const struct run *r, const struct iovec *iov, int pieces)
{
	if (spill_append(&c->spill, iov, pieces, 0))
		return false;
	c->worker->stats.spill_bytes += r->bytes; /* connection_fail() takes them off again */
	c->worker->stats.spilled_bytes += r->bytes;
	c->spilled = true;
	return !run_append(c->pushed, r);
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

/* Writes a run that the host has just sent, behind what waits. A layer may take less than all though TCP has room (TLS: some
 * records at a time), and then nothing would tell of room again: offered until nothing is taken, or the turn is over. */
static bool write_run(struct connection *c, struct run *r, struct iovec *iov, int pieces)
{
	bool done = false, over = false;
	ssize_t n = 1;

	r->raw = !c->pushed->started && !ulp_stack_sends(c->pushed->stack);
	while (!c->pushed->run_count && !done && n > 0 && !over) {
		n = offer(c, r, iov, pieces, true, &done);
		if (n > 0 && !done) {
			r->bytes -= (uint32_t)n;
			pieces = pieces_drop(&iov, pieces, (size_t)n);
			over = worker_turn_is_over(c->worker);
		}
	}
	if (over)
		connection_note(c, EPOLLOUT);
	if (n >= 0 && (done || spill(c, r, iov, pieces)))
		return true;
	connection_fail(c, n < 0 ? (int)-n : ENOBUFS);
	return false;
}

/* Takes the next run off the gathered messages: a PDU's message, or as much of a byte stream as there is. */
static int gather_run(struct connection *c, struct run *r, struct iovec *iov)
{
	struct channel *ch = c->channel;
	const struct batch_entry *e = &ch->batch[c->gathered_first];
	int pieces = 0;

	*r = (struct run){ .mark = e->mark };
	do {
		e = &ch->batch[c->gathered_first];
		pieces += stream_pieces(e, iov + pieces, GATHER_PIECES - pieces);
		r->bytes += e->bytes;
		c->gathered_first = e->next;
		c->worker->stats.gathered_messages++;
	} while (!r->mark.pdu && c->gathered_first != BATCH_NONE && !ch->batch[c->gathered_first].mark.pdu);
	if (c->gathered_first == BATCH_NONE)
		c->gathered_last = BATCH_NONE;
	if (!r->mark.pdu)
		memset(&r->mark, 0, sizeof r->mark);
	return pieces;
}

/* False when the connection has failed. */
static bool write_gathered(struct connection *c)
{
	struct iovec iov[GATHER_PIECES];
	struct run r;
	bool fine = true;

	while (c->gathered_first != BATCH_NONE) {
		int pieces = gather_run(c, &r, iov);

		if (fine && !c->error && c->fd >= 0)
			fine = write_run(c, &r, iov, pieces);
		else /* nobody will read it; the host is told by RESET */
			connection_free_credits(c, r.bytes + (r.mark.pdu ? XTS_PDU_CREDITS : 0));
	}
	return fine && !c->error && c->fd >= 0;
}

#ifdef XTS_DEBUG
/* As in stream.c; each PDU message that waits has its share. */
static void check_account(const struct connection *c)
{
	assert(!c->channel || c->orphan || c->state != CONNECTION_ESTABLISHED ||
	       xts_credit_buffered(&c->grant) == c->spill.bytes + pushed_costs(c->pushed));
}
#else
static void check_account(const struct connection *c) { (void)c; }
#endif

void pushed_flush(struct connection *c)
{
	struct pushed *p = c->pushed;
	int r = 0;

	if (!c->error && c->fd >= 0 && !write_waiting(c))
		return;
	if (!write_gathered(c))
		return;
	if (!p->started && ulp_stack_sends(p->stack)) { /* what it had to wait for may have left */
		pushed_start(c);
		if (c->fd < 0 || c->error || !write_waiting(c))
			return;
	}
	if (p->started)
		r = ulp_stack_flush(p->stack);
	if (r && r != -EAGAIN) {
		connection_fail(c, -r);
		return;
	}
	check_account(c);
	if (!p->run_count)
		connection_drained(c);
}

bool pushed_finish(struct connection *c)
{
	struct pushed *p = c->pushed;
	int r;

	if (p->finished || !p->started)
		return !p->run_count;
	if (!p->ready) /* it never began, unless the handshake goes on */
		return c->state == CONNECTION_CLOSING;
	r = ulp_stack_finish(p->stack);
	p->finished = !r;
	if (r && r != -EAGAIN)
		connection_fail(c, -r);
	return !r;
}

/* --- SEND_PDU -------------------------------------------------------------------------------------------------------- */

/* The messages of one PDU agree with each other. */
static const char *check_pdu(struct pushed *p, const struct xts_send_pdu *m, bool more)
{
	if (m->control_type >= XTS_CONTROL_EVENTS)
		return "an event from the host";
	if (!p->pdu_open) {
		p->pdu_bytes = p->pdu_left = m->record_bytes;
	} else if (p->pdu_bytes != m->record_bytes) {
		return "a PDU whose length changes";
	}
	p->pdu_open = more;
	if (p->pdu_bytes && (m->length > p->pdu_left || (!more && m->length != p->pdu_left)))
		return "a PDU of another length than announced";
	p->pdu_left -= p->pdu_bytes ? m->length : 0;
	return NULL;
}

static void mark_of(struct ulp_mark *mark, const struct xts_send_pdu *m, bool more)
{
	*mark = (struct ulp_mark){
		.pdu = true,
		.more = more,
		.control_bytes = (uint8_t)m->control_bytes,
		.control_type = m->control_type,
		.record_bytes = m->record_bytes,
	};
	xts_put64(mark->control, m->control_high);
	xts_put64(mark->control + 8, m->control_low);
}

bool command_send_pdu(struct channel *ch, const struct xts_head *head, uint32_t entry)
{
	const struct xts_rx_frame *frame = &ch->batch[entry].frame;
	struct connection *c = connection_find(ch, head->id);
	bool more = head->flags & XTS_FLAG_MORE;
	const char *wrong;
	struct xts_send_pdu m;

	if (!(ch->link.features & XTS_FEATURE_ULP) || xts_send_pdu_decode(&m, frame->segment[0].iov_base, frame->bytes)) {
		command_malformed(ch, head);
		return false;
	}
	if (!c || c->announced) {
		ch->worker->stats.bad_identifiers++;
		return false;
	}
	if (!send_take_credits(ch, c, m.post_credits))
		return false;
	if (c->state != CONNECTION_ESTABLISHED && c->state != CONNECTION_FAILED) {
		channel_violation(ch, "a PDU on a socket that is not connected", head->id);
		return false;
	}
	if (pushed_make(c)) {
		connection_fail(c, ENOBUFS);
		return false;
	}
	wrong = check_pdu(c->pushed, &m, more);
	if (wrong) {
		channel_violation(ch, wrong, head->id);
		return false;
	}
	mark_of(&ch->batch[entry].mark, &m, more);
	return send_take_data(ch, c, entry, XTS_SEND_PDU_BYTES, m.length, m.length + XTS_PDU_CREDITS);
}
