/*
 * Datagrams from the host to the network: the records of messages, and those that wait (datagram_socket.h).
 *
 * In the spill buffer each record has a short header in front, with what was decided when it came. So the policy that
 * applies is the one at the time when the host sent the datagram.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "addresses/socket_address.h"
#include "connection/paced.h"
#include "datagrams/datagram_socket.h"
#include "datagrams/datagram_waiting.h"
#include "tenants/mark.h"

#define BATCH 16u /* at most this many datagrams per sendmmsg(2), and records between two reads of the clock */
#define BATCH_PIECES 96u
#define IPV4_UDP_BYTES 28u
#define IPV6_UDP_BYTES 48u
#define WAITING_PIECES 40 /* pieces of the spill buffer: more than the largest record has */

/* What is given to the kernel in one call. The data is in the frame or in the spill buffer. */
struct batch {
	uint32_t count, pieces;
	uint32_t most; /* as many datagrams as the turn has time for */
	struct mmsghdr message[BATCH];
	struct xts_datagram datagram[BATCH];
	uint32_t credits[BATCH];
	struct sockaddr_storage address[BATCH];
	uint8_t control[BATCH][DATAGRAM_SEND_CMSG_BYTES] __attribute__((aligned(8)));
	struct iovec piece[BATCH_PIECES];
};

/* --- accounts ----------------------------------------------------------------------------------------------------- */

#ifdef XTS_DEBUG
/* The conservation law of credits, as this end sees it: the credits received and not freed yet are those of the
 * datagrams that wait. */
static void check_account(const struct connection *c)
{
	assert(c->close_reply || xts_credit_buffered(&c->grant) == c->datagrams->waiting_credits);
}
#else
static void check_account(const struct connection *c)
{
	(void)c;
}
#endif

static void free_credits(struct connection *c, uint32_t credits)
{
	connection_free_credits(c, credits);
	if (xts_credit_due(&c->grant))
		connection_wake(c);
}

/* A datagram will not be sent: frees its credits and reports the error. */
static void refuse(struct connection *c, uint32_t credits, int error)
{
	c->worker->stats.datagrams_refused++;
	free_credits(c, credits);
	datagram_fails(c, error);
}

static void count_spill(struct connection *c, uint32_t bytes)
{
	c->worker->stats.spill_bytes += bytes;
	c->channel->spill_bytes += bytes;
	c->worker->stats.spilled_bytes += bytes;
}

static void drop_spilled(struct connection *c, uint32_t bytes)
{
	spill_drop(&c->tcp.out.spill, bytes);
	connection_spill_gone(c, bytes);
}

void datagram_drop_waiting(struct connection *c)
{
	c->worker->stats.datagrams_refused += c->datagrams->waiting;
	datagram_forget_waiting(c);
}

void datagram_forget_waiting(struct connection *c)
{
	if (!c->tcp.out.spill.bytes)
		return;
	free_credits(c, c->datagrams->waiting_credits);
	c->worker->stats.datagrams_waiting -= c->datagrams->waiting;
	c->datagrams->waiting_credits = c->datagrams->waiting = c->datagrams->coming = 0;
	drop_spilled(c, c->tcp.out.spill.bytes);
}

/* --- to the kernel ------------------------------------------------------------------------------------------------ */

static bool goes_by_ipv4(const struct connection *c, const struct xts_endpoint *to)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

	if (c->tcp.ip_version == 4)
		return true;
	if (!to->ip_version)
		return c->datagrams->peer_is_ipv4;
	return to->ip_version == 4 || !memcmp(to->address, mapped, sizeof mapped);
}

static bool goes_to_group(const struct connection *c, const struct xts_endpoint *to)
{
	return to->ip_version ? endpoint_is_multicast(to) : c->datagrams->peer_is_multicast;
}

/* The kernel takes from one to more than ten microseconds for a datagram, depending on how far it has to pass it on. */
static void batch_begin(const struct connection *c, struct batch *b)
{
	const struct worker_state *w = c->worker;
	uint64_t left_ns = w->turn_end_ns > w->now_ns ? w->turn_end_ns - w->now_ns : 0;

	b->count = b->pieces = 0;
	b->most = schedule_fits(c->datagrams->each_ns, left_ns, BATCH);
}

/* The batch was sent, so reads the clock again. True: the turn is over. */
static bool batch_ends(struct connection *c, uint32_t count)
{
	uint64_t begun_ns = c->worker->now_ns;
	bool over = worker_turn_is_over(c->worker);

	schedule_learn(&c->datagrams->each_ns, count, c->worker->now_ns - begun_ns);
	return over;
}

/* Adds a datagram to the batch, with its data in the pieces behind the last one's. */
static void batch_add(struct connection *c, struct batch *b, const struct xts_datagram *d, uint32_t credits,
		      uint32_t pieces)
{
	uint32_t i = b->count++;
	struct msghdr *h = &b->message[i].msg_hdr;

	*h = (struct msghdr){ .msg_iov = b->piece + b->pieces, .msg_iovlen = pieces };
	if (d->record.endpoint.ip_version) {
		h->msg_name = &b->address[i];
		h->msg_namelen = endpoint_to_sockaddr(&d->record.endpoint, &b->address[i]);
	}
	b->datagram[i] = *d;
	b->datagram[i].traffic_class = marked(c->tenant, d->traffic_class);
	datagram_put_control(h, b->control[i], &b->datagram[i], goes_by_ipv4(c, &d->record.endpoint),
			     goes_to_group(c, &d->record.endpoint));
	b->credits[i] = credits;
	b->pieces += pieces;
}

/* Errors that an earlier datagram may have caused by ICMP: this one may be fine. */
static bool is_of_icmp(int error)
{
	return error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH || error == ENOPROTOOPT ||
	       error == EPROTO;
}

/* Sending the first datagram binds the socket to a port that the kernel picks: takes its name. */
static void name_what_is_bound(struct connection *c)
{
	if (!c->bound_to)
		(void)connection_note_bound_address(c);
}

/* The bytes of its packets, with the headers of IP and UDP. */
static uint32_t wire_bytes(const struct connection *c, const struct xts_datagram *d)
{
	uint32_t data = d->record.data_bytes, each = d->record.segment_bytes;
	uint32_t packets = each && data ? (data + each - 1) / each : 1;

	return data + packets * (goes_by_ipv4(c, &d->record.endpoint) ? IPV4_UDP_BYTES : IPV6_UDP_BYTES);
}

/* How many datagrams of the batch may leave now, by the rates of the socket and of its tenant; 0: it will be noted when
 * the next one may. */
static uint32_t may_leave(struct connection *c, const struct batch *b, uint32_t done)
{
	uint32_t all = c->tcp.out.spill.bytes, bytes = 0, n = done;

	if (!paced_is(c))
		return b->count - done;
	for (uint32_t i = done; i < b->count; i++)
		all += wire_bytes(c, &b->datagram[i]); /* some count twice, which only makes the permit larger */
	for (; n < b->count; n++) {
		uint32_t wanted = all;

		bytes += wire_bytes(c, &b->datagram[n]);
		if (!paced_may(c, bytes, &wanted))
			break;
	}
	return n - done;
}

static void account_sent(struct connection *c, const struct batch *b, uint32_t i)
{
	paced_sent(c, wire_bytes(c, &b->datagram[i]));
	c->tcp.out.sent_bytes += b->datagram[i].record.data_bytes;
	c->worker->stats.sent_bytes += b->datagram[i].record.data_bytes;
	c->worker->stats.datagrams_sent++;
	free_credits(c, b->credits[i]);
}

/* Gives the batch to the kernel. Returns how many datagrams are settled, that is sent or refused: fewer than all when
 * the kernel has no room. */
static uint32_t batch_send(struct connection *c, struct batch *b)
{
	int no_port = datagram_pick_port(c);
	uint32_t done = 0;
	bool again = false;

	while (no_port && done < b->count)
		refuse(c, b->credits[done++], no_port);
	while (done < b->count && c->writable) {
		uint32_t may = may_leave(c, b, done);
		int n, error;

		if (!may) {
			c->writable = false;
			break;
		}
		n = sendmmsg(c->tcp.fd, b->message + done, may, MSG_DONTWAIT | MSG_NOSIGNAL);
		error = errno;
		c->worker->stats.writes++;
		for (int i = 0; i < n; i++)
			account_sent(c, b, done++);
		if (n > 0) {
			again = false;
		} else if (error == EAGAIN || error == ENOBUFS || error == ENOMEM) {
			c->writable = false;
			if (error != EAGAIN) /* no event will tell that there is memory again */
				connection_look_later(c);
		} else if (error != EINTR && !again && is_of_icmp(error)) {
			datagram_fails(c, error);
			again = true;
		} else if (error != EINTR) {
			refuse(c, b->credits[done++], error);
			again = false;
		}
	}
	if (done && !no_port)
		name_what_is_bound(c);
	return done;
}

/* --- what waits --------------------------------------------------------------------------------------------------- */

static void count_waiting(struct connection *c, uint32_t credits, uint32_t bytes)
{
	count_spill(c, bytes);
	c->datagrams->waiting_credits += credits;
	c->datagrams->waiting++;
	c->worker->stats.datagrams_waiting++;
}

bool datagram_wait_again(struct connection *c, const struct waiting *w, const uint8_t *record, uint32_t bytes)
{
	struct waiting copy = *w;
	struct iovec iov[] = { { &copy, sizeof copy }, { (void *)(uintptr_t)record, bytes } };

	if (spill_append(&c->tcp.out.spill, iov, 2, 0))
		return false;
	count_waiting(c, w->credits, (uint32_t)sizeof copy + bytes);
	return true;
}

/* Puts a record into the spill buffer, with as much of its data as is here. False: no
 * memory, and nothing has changed. */
static bool wait_in_line(struct connection *c, struct xts_datagram *d, const struct waiting *waiting,
			 const struct iovec *data, uint32_t pieces, uint32_t bytes)
{
	uint8_t head[XTS_DATAGRAM_HEAD_BYTES_MAX];
	uint32_t head_bytes = xts_datagram_write(head, sizeof head, d);
	struct waiting copy = *waiting;
	struct iovec iov[2 + XTS_SEGMENTS_MAX];

	iov[0] = (struct iovec){ &copy, sizeof copy };
	iov[1] = (struct iovec){ head, head_bytes };
	memcpy(iov + 2, data, pieces * sizeof *data);
	if (spill_append(&c->tcp.out.spill, iov, (int)(2 + pieces), 0))
		return false;
	count_waiting(c, waiting->credits, (uint32_t)sizeof copy + head_bytes + bytes);
	return true;
}

/* Keeps the datagrams of the batch that the kernel had no room for. */
static void batch_waits(struct connection *c, struct batch *b, uint32_t first)
{
	for (uint32_t i = first; i < b->count; i++) {
		const struct msghdr *h = &b->message[i].msg_hdr;
		struct xts_datagram *d = &b->datagram[i];
		struct waiting waiting = { .credits = b->credits[i] };

		if (!wait_in_line(c, d, &waiting, h->msg_iov, (uint32_t)h->msg_iovlen, d->record.data_bytes))
			refuse(c, b->credits[i], ENOBUFS);
	}
}

/* A complete record of the spill buffer. */
struct line {
	struct waiting waiting;
	struct xts_datagram datagram;
	uint32_t bytes, pieces;
};

/* Reads the record at the cursor and moves the cursor behind it. False: the record is not complete. */
static bool read_waiting(struct xts_datagram_cursor *cursor, struct line *line, struct iovec *data)
{
	struct iovec part[sizeof line->waiting];
	uint32_t count = sizeof line->waiting, copied = 0, before = cursor->left;
	uint8_t *to = (uint8_t *)&line->waiting;

	if (cursor->left < sizeof line->waiting)
		return false;
	(void)xts_datagram_data(cursor, sizeof line->waiting, part, &count);
	for (uint32_t i = 0; i < count; copied += (uint32_t)part[i++].iov_len)
		memcpy(to + copied, part[i].iov_base, part[i].iov_len);
	if (xts_datagram_next(cursor, &line->datagram) != 1 || cursor->left < line->datagram.record.data_bytes)
		return false;
	line->pieces = WAITING_PIECES;
	(void)xts_datagram_data(cursor, line->datagram.record.data_bytes, data, &line->pieces);
	line->bytes = before - cursor->left;
	return true;
}

/* A datagram no longer waits: removes it from the spill buffer. */
static void leaves_line(struct connection *c, uint32_t credits, uint32_t bytes)
{
	c->datagrams->waiting_credits -= credits;
	c->datagrams->waiting--;
	c->worker->stats.datagrams_waiting--;
	drop_spilled(c, bytes);
}

/* Sends some of the waiting datagrams; false when none can be sent now. */
static bool flush_some(struct connection *c)
{
	struct iovec piece[WAITING_PIECES];
	int pieces = spill_peek(&c->tcp.out.spill, piece, WAITING_PIECES);
	struct xts_datagram_cursor cursor = { .piece = piece, .pieces = (uint32_t)pieces };
	uint32_t bytes[BATCH] = { 0 }, settled;
	struct line line;
	struct batch b;

	batch_begin(c, &b);
	for (int i = 0; i < pieces; i++)
		cursor.left += (uint32_t)piece[i].iov_len;
	while (b.count < b.most && b.pieces + WAITING_PIECES <= BATCH_PIECES &&
	       read_waiting(&cursor, &line, b.piece + b.pieces)) {
		if (line.waiting.refused && !b.count) {
			leaves_line(c, line.waiting.credits, line.bytes);
			refuse(c, line.waiting.credits, (int)line.waiting.refused);
			return true;
		}
		if (line.waiting.refused)
			break; /* a refused datagram is settled in its turn */
		bytes[b.count] = line.bytes;
		batch_add(c, &b, &line.datagram, line.waiting.credits, line.pieces);
	}
	settled = batch_send(c, &b);
	for (uint32_t i = 0; i < settled; i++)
		leaves_line(c, b.credits[i], bytes[i]);
	return settled;
}

void datagram_flush(struct connection *c)
{
	while (c->tcp.fd >= 0 && c->writable && c->tcp.out.spill.bytes && flush_some(c)) {
		if (c->tcp.out.spill.bytes && worker_turn_is_over(c->worker)) {
			connection_note(c, EPOLLOUT); /* it goes on in the next turn */
			break;
		}
	}
	check_account(c);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* The state of reading a message, in one turn. */
struct reading {
	struct connection *c;
	struct xts_datagram_cursor cursor;
	struct batch batch;
	uint32_t unlooked; /* records since the last read of the clock */
	bool over;         /* the turn is over */
};

/* Takes data of a record whose beginning came earlier. */
static void take_rest(struct reading *r)
{
	struct connection *c = r->c;
	struct iovec iov[XTS_SEGMENTS_MAX];
	uint32_t count = XTS_SEGMENTS_MAX, bytes;

	bytes = xts_datagram_data(&r->cursor, c->datagrams->coming, iov, &count);
	c->datagrams->coming -= bytes;
	if (c->datagrams->lost)
		return; /* there was no memory for the beginning of the record */
	if (!spill_append(&c->tcp.out.spill, iov, (int)count, 0))
		count_spill(c, bytes);
	else
		channel_violation(c->channel, "no memory for a datagram that it has credits for", c->proxy_id);
}

static void send_batch(struct reading *r)
{
	uint32_t settled = r->c->tcp.out.spill.bytes ? 0 : batch_send(r->c, &r->batch);

	batch_waits(r->c, &r->batch, settled);
	r->unlooked = 0;
	r->over = batch_ends(r->c, r->batch.count);
	batch_begin(r->c, &r->batch);
}

/* Takes a record: puts it into the batch, or lets it wait. */
static void take_record(struct reading *r, struct xts_datagram *d)
{
	struct connection *c = r->c;
	struct batch *b = &r->batch;
	struct waiting waiting = { .credits = xts_datagram_credits(&d->record), .refused = datagram_why_not(c, d) };
	uint32_t count = XTS_SEGMENTS_MAX, bytes;
	bool whole;

	if (b->pieces + XTS_SEGMENTS_MAX > BATCH_PIECES)
		send_batch(r);
	bytes = xts_datagram_data(&r->cursor, d->record.data_bytes, b->piece + b->pieces, &count);
	whole = bytes == d->record.data_bytes;
	if (whole && !waiting.refused && !c->tcp.out.spill.bytes && c->writable) {
		batch_add(c, b, d, waiting.credits, count);
		return;
	}
	if (whole && waiting.refused && !b->count && !c->tcp.out.spill.bytes) {
		refuse(c, waiting.credits, (int)waiting.refused);
		return;
	}
	if (b->count) { /* the datagrams before it come first, and its pieces are behind theirs */
		struct iovec data[XTS_SEGMENTS_MAX];

		memcpy(data, b->piece + b->pieces, count * sizeof *data);
		send_batch(r);
		memcpy(b->piece, data, count * sizeof *data);
	}
	c->datagrams->coming = d->record.data_bytes - bytes;
	c->datagrams->lost = !wait_in_line(c, d, &waiting, b->piece + b->pieces, count, bytes);
	if (c->datagrams->lost)
		refuse(c, waiting.credits, ENOBUFS);
}

/* Reads records of a message, at least some, until the end of the message or of the turn. Returns what is wrong, or
 * NULL. */
static const char *take_records(struct reading *r, bool more)
{
	struct connection *c = r->c;
	struct xts_datagram d;
	int got = 1;

	if (c->datagrams->coming)
		take_rest(r);
	while (!r->over && !c->datagrams->coming && (got = xts_datagram_next(&r->cursor, &d)) == 1) {
		if (xts_credit_receive(&c->grant, xts_datagram_credits(&d.record)))
			return "datagrams beyond credits";
		take_record(r, &d);
		if (r->batch.count == r->batch.most) {
			send_batch(r);
		} else if (++r->unlooked == BATCH) {
			r->unlooked = 0;
			r->over = worker_turn_is_over(c->worker);
		}
	}
	if (r->batch.count)
		send_batch(r);
	if (got < 0)
		return "a malformed record of a datagram";
	if (r->cursor.left)
		return NULL;
	if (c->datagrams->coming && !more)
		return "a truncated datagram";
	return !c->datagrams->coming && more ? "MORE, and no datagram that goes on" : NULL;
}

/* Continues reading a message. True: it has been read, or its link has failed. */
static bool read_on(struct channel *ch, struct connection *c, struct xts_datagram_cursor *cursor, bool more)
{
	struct reading r;
	const char *wrong;

	r.c = c;
	r.cursor = *cursor;
	r.over = false;
	r.unlooked = 0;
	batch_begin(c, &r.batch);
	wrong = take_records(&r, more);
	if (wrong) {
		channel_violation(ch, wrong, c->proxy_id);
		return true;
	}
	*cursor = r.cursor;
	if (c->tcp.out.spill.bytes && c->writable)
		connection_note(c, EPOLLOUT);
	check_account(c);
	return !cursor->left;
}

static bool message_goes_on(struct channel *ch)
{
	struct continuation *m = &ch->continuation;
	struct connection *c = m->connection;

	if (!c->close_reply && !read_on(ch, c, &m->datagrams.cursor, m->datagrams.more))
		return true;
	continuation_done(ch);
	connection_wake(c); /* it did not advertise credits meanwhile */
	return true;
}

enum command_result command_send_datagrams(struct channel *ch, const struct xts_head *head,
					   const struct xts_send_datagrams *m, struct batch_entry *e)
{
	struct connection *c = connection_find(ch, head->id);
	struct continuation on = { .resume = message_goes_on, .connection = c };
	struct xts_datagram_cursor cursor;

	if (!c || c->announced) {
		ch->worker->stats.bad_identifiers++;
		return COMMAND_DONE;
	}
	if (c->state != CONNECTION_DATAGRAM || c->close_reply || c->datagrams->closing) {
		channel_violation(ch, "datagrams on a socket that is not a datagram socket, or is closed", head->id);
		return COMMAND_DONE;
	}
	if (!connection_take_credits(c, m->post_credits) || (!m->length && !(head->flags & XTS_FLAG_MORE)))
		return COMMAND_DONE;
	if (c->shared) {
		c->datagrams->sends = true;
		datagram_take_returned_error(c);
		datagram_learn_peer(c);
	}
	xts_datagram_begin(&cursor, &e->frame, XTS_SEND_DATAGRAMS_BYTES, m->length);
	if (read_on(ch, c, &cursor, head->flags & XTS_FLAG_MORE))
		return COMMAND_DONE;
	on.datagrams.cursor = cursor;
	on.datagrams.more = head->flags & XTS_FLAG_MORE;
	continuation_keep_frame(&on, head, e);
	continuation_begin(ch, &on);
	ch->continuation.datagrams.cursor.piece = ch->continuation.frame.segment + (cursor.piece - e->frame.segment);
	return COMMAND_UNFINISHED;
}
