/* The data path of a connection: host to TCP (gather, write, spill) and TCP to host (read straight into a slot). */
#include <assert.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "pushed.h"
#include "stream.h"

#define WRITE_PIECES 4 /* of the spill buffer, 64 KiB each, between two looks at the clock */

/* --- host to TCP ----------------------------------------------------------------------------------------------------- */

int stream_pieces(const struct batch_entry *e, struct iovec *iov, int max)
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

ssize_t stream_write(struct connection *c, struct iovec *iov, int pieces)
{
	struct msghdr message = { .msg_iov = iov, .msg_iovlen = (size_t)pieces };
	ssize_t n;

	do {
		n = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT | (c->more ? MSG_MORE : 0));
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	return errno == EAGAIN ? 0 : -errno;
}

/* A whole window has gone to TCP. If TCP took all of it at once, the window may be what holds the connection back: it
 * grows. If some was spilled, TCP is, and a larger window would only fill the spill buffer. */
static void window_used(struct connection *c)
{
	if (!c->spilled)
		connection_grow_window(c);
	c->consumed = 0;
	c->spilled = false;
}

/* Bytes have left for TCP: the paper's POST_CREDITS_UNA grows, and perhaps the window. */
void stream_account_sent(struct connection *c, uint32_t bytes, uint32_t credits)
{
	c->sent_bytes += bytes;
	c->worker->stats.sent_bytes += bytes;
	c->worker->stats.writes++;
	if (!c->channel || c->orphan)
		return;
	connection_free_credits(c, credits);
	c->consumed += credits;
	if (c->consumed >= c->window)
		window_used(c);
	if (xts_credit_due(&c->grant))
		connection_wake(c);
}

/* Empties the spill buffer as far as TCP takes it. False when the connection has failed. */
static bool spill_write(struct connection *c)
{
	struct iovec iov[WRITE_PIECES];

	while (c->spill.bytes && c->writable) {
		uint32_t offered = 0;
		int pieces = spill_peek(&c->spill, iov, WRITE_PIECES);
		ssize_t n;

		for (int i = 0; i < pieces; i++)
			offered += (uint32_t)iov[i].iov_len;
		n = stream_write(c, iov, pieces);
		if (n < 0) {
			connection_fail(c, (int)-n);
			return false;
		}
		c->writable = (uint32_t)n == offered;
		connection_spill_gone(c, (uint64_t)n);
		spill_drop(&c->spill, (uint32_t)n);
		stream_account_sent(c, (uint32_t)n, (uint32_t)n);
		if (c->spill.bytes && c->writable && worker_turn_is_over(c->worker)) {
			connection_note(c, EPOLLOUT); /* goes on in the next turn */
			break;
		}
	}
	return true;
}

static int gather(struct connection *c, struct iovec *iov, uint32_t *bytes)
{
	int pieces = 0;

	*bytes = 0;
	for (uint32_t i = c->gathered_first; i != BATCH_NONE; i = c->channel->batch[i].next) {
		pieces += stream_pieces(&c->channel->batch[i], iov + pieces, GATHER_PIECES - pieces);
		*bytes += c->channel->batch[i].bytes;
		c->worker->stats.gathered_messages++;
	}
	c->gathered_first = c->gathered_last = BATCH_NONE;
	return pieces;
}

/* Writes what the host sent in this batch, behind what is spilled already. False when the connection has failed. */
static bool gathered_write(struct connection *c)
{
	struct iovec iov[GATHER_PIECES];
	uint32_t bytes;
	int pieces = gather(c, iov, &bytes);
	ssize_t n = 0;

	if (c->error || c->fd < 0) { /* nobody will read it: the credits go back, the host is told by RESET */
		connection_free_credits(c, bytes);
		return false;
	}
	if (!c->spill.bytes) {
		n = stream_write(c, iov, pieces);
		if (n < 0) {
			connection_free_credits(c, bytes);
			connection_fail(c, (int)-n);
			return false;
		}
		c->writable = (uint32_t)n == bytes;
		stream_account_sent(c, (uint32_t)n, (uint32_t)n);
	}
	if ((uint32_t)n < bytes) {
		uint32_t rest = bytes - (uint32_t)n;

		if (spill_append(&c->spill, iov, pieces, (uint32_t)n)) {
			connection_free_credits(c, rest);
			connection_fail(c, ENOBUFS);
			return false;
		}
		c->spilled = true;
		c->worker->stats.spilled_bytes += rest;
		c->worker->stats.spill_bytes += rest;
	}
	return true;
}

#ifdef XTS_DEBUG
/* The conservation law as far as this end sees it: what was received and is not free again waits in the spill buffer. */
static void check_account(const struct connection *c)
{
	assert(!c->channel || c->orphan || c->state != CONNECTION_ESTABLISHED ||
	       xts_credit_buffered(&c->grant) == c->spill.bytes);
}
#else
static void check_account(const struct connection *c) { (void)c; }
#endif

void connection_flush(struct connection *c)
{
	if (c->pushed) {
		pushed_flush(c);
		return;
	}
	if (!spill_write(c))
		return; /* failed; an orphan is gone */
	if (c->gathered_first != BATCH_NONE && !gathered_write(c))
		return;
	check_account(c);
	if (!c->spill.bytes)
		connection_drained(c);
}

/* --- TCP to host ----------------------------------------------------------------------------------------------------- */

uint32_t stream_advertise(struct connection *c)
{
	return c->close_reply || c->state == CONNECTION_FAILED ? 0 : xts_credit_advertise(&c->grant);
}

void stream_send_recv(struct connection *c, const struct xts_tx_slot *slot, uint8_t flags, int error, uint32_t length)
{
	struct xts_recv m = { .length = length, .post_credits = stream_advertise(c) };

	xts_head_encode(slot->data, XTS_REPLY_RECV, flags, (uint16_t)error, c->xts_socket);
	xts_recv_encode(slot->data, &m);
	if (flags & XTS_FLAG_CLOSED && c->unwaited)
		channel_submit_quietly(c->channel, slot, XTS_RECV_BYTES + length);
	else
		channel_submit(c->channel, slot, XTS_RECV_BYTES + length);
}

static void send_connect_ack(struct connection *c, const struct xts_tx_slot *slot)
{
	struct xts_connect_ack m = { .proxy_id = c->proxy_id };

	c->connect_reply = false;
	list_remove(&c->unnamed);
	socket_local(c->fd, &m.local);
	if (!c->error) {
		m.post_credits = c->grant.outstanding;
		socket_peer(c->fd, &m.peer);
	}
	xts_head_encode(slot->data, XTS_REPLY_CONNECT_ACK, 0, (uint16_t)c->error, c->xts_socket);
	xts_connect_ack_encode(slot->data, &m);
	channel_submit(c->channel, slot, XTS_CONNECT_ACK_BYTES);
	c->error = 0;
}

void stream_send_end(struct connection *c, const struct xts_tx_slot *slot, int error)
{
	c->readable = false;
	if (error) {
		c->error = error;
		c->reset_told = true;
		stream_send_recv(c, slot, XTS_FLAG_RESET, error, 0);
		if (c->state == CONNECTION_ESTABLISHED)
			connection_enter(c, CONNECTION_FAILED);
	} else {
		c->eos_told = true;
		stream_send_recv(c, slot, XTS_FLAG_EOS, 0, 0);
	}
}

/* Without credits the end of the stream can still be seen, and told. */
static ssize_t peek(struct connection *c)
{
	uint8_t byte;

	if (!c->read_to_end && !c->error) {
		errno = EAGAIN;
		return -1;
	}
	return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
}

/* Reads once and sends what came: true when a message was sent, and the slot with it. */
static bool send_data(struct connection *c, const struct xts_tx_slot *slot)
{
	uint32_t room = c->channel->link.largest_message - XTS_RECV_BYTES;
	ssize_t n;

	if (room > slot->capacity - XTS_RECV_BYTES)
		room = slot->capacity - XTS_RECV_BYTES;
	if (room > c->held)
		room = c->held;
	n = room ? recv(c->fd, slot->data + XTS_RECV_BYTES, room, MSG_DONTWAIT) : peek(c);
	if (n > 0 && !room) {
		c->readable = false; /* bytes, but no credits: their arrival sets it again */
		return false;
	}
	if (n > 0) {
		c->held -= (uint32_t)n;
		c->received_bytes += (uint64_t)n;
		if (c->pushed) /* which has not begun to read */
			c->pushed->since_pdu += (uint64_t)n;
		c->worker->stats.received_bytes += (uint64_t)n;
		if ((uint32_t)n < room && !c->read_to_end && !c->error)
			c->readable = false;
		stream_send_recv(c, slot, 0, 0, (uint32_t)n);
		return true;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		c->readable = errno == EINTR;
		if (!c->error)
			return false;
		stream_send_end(c, slot, c->error);
		return true;
	}
	stream_send_end(c, slot, c->error ? c->error : n < 0 ? errno : 0);
	return true;
}

static bool may_read(const struct connection *c)
{
	return c->state == CONNECTION_ESTABLISHED && c->readable && !c->announced && !c->reset_told &&
	       (!c->eos_told || c->error) && (!c->pushed || pushed_may_read(c));
}

/* True when a message was sent, and the slot with it. */
static bool receive(struct connection *c, const struct xts_tx_slot *slot)
{
	const struct pushed *p = c->pushed;

	return p && (p->started || p->peeking || ulp_stack_receives(p->stack)) ? pushed_receive(c, slot) : send_data(c, slot);
}

/* The last message about the connection; its identifier is free after it. */
static void send_closed(struct connection *c, const struct xts_tx_slot *slot)
{
	stream_send_recv(c, slot, XTS_FLAG_CLOSED, c->state == CONNECTION_CLOSING ? c->error : 0, 0);
	if (c->state == CONNECTION_CLOSING)
		connection_orphan(c);
	else
		connection_free(c, false);
}

bool connection_send(struct connection *c, uint32_t budget)
{
	struct xts_tx_slot slot;

	if (c->state == CONNECTION_LISTENER && !c->close_reply)
		return listener_send(c, budget);
	if (c->pushed)
		ulp_stack_turn(c->pushed->stack);
	while (budget) {
		bool event = c->pushed && pushed_has_event(c);

		if (!c->connect_reply && !c->close_reply && !event && !may_read(c) &&
		    (c->announced || !xts_credit_due(&c->grant)))
			return false;
		if (!channel_slot(c->channel, &slot))
			return true;
		budget--;
		if (c->close_reply) {
			send_closed(c, &slot);
			return false;
		}
		if (c->connect_reply) {
			send_connect_ack(c, &slot);
		} else if (event) {
			pushed_send_event(c, &slot);
		} else if (may_read(c) && receive(c, &slot)) {
			continue;
		} else if (xts_credit_due(&c->grant) && c->state == CONNECTION_ESTABLISHED) {
			stream_send_recv(c, &slot, 0, 0, 0);
		} else {
			xts_queue_abandon(c->channel->queue, &slot);
			return false;
		}
	}
	return true;
}
