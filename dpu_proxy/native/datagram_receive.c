/*
 * Datagrams of the network to the host (datagram_socket.h).
 *
 * Several are taken from the kernel at a time: as many as the host's credits, and the message that is being made, have
 * room for if they are no larger than those that came of late. With fewer credits than for one of those the kernel is
 * asked for the size of the next. They are written as records, behind one another, into the message; the last may go on
 * in the next (MORE).
 *
 * Datagrams that are larger than was expected may be more than there is room for. Those wait here, and nothing more is
 * taken until they have left. They are at most one batch, and what SO_RCVBUF let the kernel keep for the socket.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "datagram_socket.h"
#include "endpoint.h"
#include "share.h"

#define ERRORS_UNLOOKED 8u     /* taken between two looks at the clock */
#define MESSAGE_DATAGRAMS 128u /* of one message: what follows it should not wait for more */

/* The message that is being made. */
struct making {
	struct connection *c;
	struct xts_tx_slot *slot;
	uint32_t at, end; /* in the slot */
	uint32_t datagrams;
	bool more; /* the last goes on in the next message */
	bool over; /* the turn */
};

/* --- what was taken and not sent yet ------------------------------------------------------------------------------ */

void datagram_free_unsent(struct connection *c)
{
	struct datagrams_unsent *u = &c->datagrams->unsent;

	if (!u->bytes)
		return;
	tenant_give(c->tenant, XTS_USE_SOCKET_BYTES, u->room);
	trim_count(&c->worker->trim, &c->worker->timers, c->worker->now_ns, u->room);
	free(u->bytes);
	*u = (struct datagrams_unsent){ 0 };
}

/* Keeps bytes of records, in twice the room each time: to grow is to copy (mremap(2) is refused). False: there is no
 * memory. */
static bool unsent_add(struct connection *c, const void *bytes, uint32_t count)
{
	struct datagrams_unsent *u = &c->datagrams->unsent;

	if (u->room - u->end < count) {
		uint32_t room = u->end + count > 2 * u->room ? u->end + count : 2 * u->room;
		uint8_t *larger = realloc(u->bytes, room);

		if (!larger)
			return false;
		/* within the host's credits, and soon sent */
		tenant_take_anyway(c->tenant, XTS_USE_SOCKET_BYTES, room - u->room);
		u->bytes = larger;
		u->room = room;
	}
	memcpy(u->bytes + u->end, bytes, count);
	u->end += count;
	return true;
}

/* Takes the credits for a record, as its header goes into a message. False: there are too few. */
static bool pay(struct connection *c, const struct xts_datagram *d)
{
	uint32_t credits = xts_datagram_credits(&d->record);

	if (credits > c->held)
		return false;
	c->held -= credits;
	return true;
}

static void copy_unsent(struct making *m, uint32_t bytes)
{
	struct datagrams_unsent *u = &m->c->datagrams->unsent;

	memcpy(m->slot->data + m->at, u->bytes + u->at, bytes);
	m->at += bytes;
	u->at += bytes;
}

/* What fits of it goes into the message. True: all of it. */
static bool make_of_unsent(struct making *m)
{
	struct datagrams_unsent *u = &m->c->datagrams->unsent;

	while (u->at < u->end && !m->more) {
		struct xts_datagram d;
		uint32_t part;

		if (!u->data_left) {
			int head = xts_datagram_read(&d, u->bytes + u->at, u->end - u->at);

			if (head < 0)
				abort(); /* we have written it */
			if ((uint32_t)head > m->end - m->at || !pay(m->c, &d))
				return false;
			copy_unsent(m, (uint32_t)head);
			u->data_left = d.record.data_bytes;
			m->datagrams++;
		}
		part = u->data_left < m->end - m->at ? u->data_left : m->end - m->at;
		copy_unsent(m, part);
		u->data_left -= part;
		m->more = u->data_left;
	}
	if (u->at < u->end)
		return false;
	datagram_free_unsent(m->c);
	return true;
}

/* --- from the kernel ---------------------------------------------------------------------------------------------- */

/* How many may be taken, if they are not larger than expected. */
static uint32_t may_take(const struct making *m)
{
	const struct connection *c = m->c;
	const struct datagrams *d = c->datagrams;
	uint32_t cost = d->expected_bytes + DATAGRAM_CONTROL_MOST + XTS_DATAGRAM_CREDITS, most = c->held / cost;
	uint32_t room = (m->end - m->at) / (d->expected_bytes + DATAGRAM_CONTROL_MOST + XTS_DATAGRAM_RECORD_BYTES);
	int next = 0;

	if (c->shared && !d->turn)
		return 0;
	if (c->shared && most > d->turn)
		most = d->turn;
	if (most) {
		if (most > room)
			most = room ? room : 1;
		return most < d->takes ? most : d->takes;
	}
	if (c->held < XTS_DATAGRAM_CREDITS + DATAGRAM_CONTROL_MOST || ioctl(c->fd, SIOCINQ, &next))
		return 0;
	return (uint32_t)next + XTS_DATAGRAM_CREDITS + DATAGRAM_CONTROL_MOST <= c->held;
}

/* So many have come. The next ones are expected to be no larger; a large one is forgotten little by little. */
static void learn(struct datagrams *d, const struct mmsghdr *messages, uint32_t count, uint32_t most)
{
	uint32_t largest = d->expected_bytes / 2;

	for (uint32_t i = 0; i < count; i++)
		if (messages[i].msg_len > largest)
			largest = messages[i].msg_len;
	d->expected_bytes = largest;
	if (count == d->takes)
		d->takes = 2 * count < DATAGRAM_RECEIVES ? 2 * count : DATAGRAM_RECEIVES;
	else if (count < most && d->takes > DATAGRAM_RECEIVES_MIN)
		d->takes /= 2;
}

/* recvmmsg(2) into the worker's scratch: how many have come, or -errno. */
static int take_some(struct connection *c, struct datagram_scratch *s, struct mmsghdr *messages, struct iovec *iov,
		     uint32_t most)
{
	for (uint32_t i = 0; i < most; i++) {
		iov[i] = (struct iovec){ s->data[i], sizeof s->data[i] };
		messages[i].msg_hdr = (struct msghdr){
			.msg_name = &s->address[i],
			.msg_namelen = sizeof s->address[i],
			.msg_iov = &iov[i],
			.msg_iovlen = 1,
			.msg_control = s->control[i],
			.msg_controllen = sizeof s->control[i],
		};
	}
	for (;;) {
		int n = recvmmsg(c->fd, messages, most, MSG_DONTWAIT, NULL);

		if (n >= 0 || errno != EINTR)
			return n < 0 ? -errno : n;
	}
}

/* Writes a datagram behind what the message has; what does not fit, or has no credits, is kept. False: there is no
 * memory for that, and the datagram is lost. */
static bool put_datagram(struct making *m, struct xts_datagram *d, const uint8_t *data)
{
	struct connection *c = m->c;
	uint8_t head[XTS_DATAGRAM_HEAD_BYTES_MAX];
	uint32_t bytes = d->record.data_bytes, head_bytes, part;

	/* Others are kept already, or it has to be. */
	if (c->datagrams->unsent.end || m->more ||
	    m->end - m->at < XTS_DATAGRAM_RECORD_BYTES + d->record.control_bytes || !pay(c, d)) {
		head_bytes = xts_datagram_write(head, sizeof head, d);
		return unsent_add(c, head, head_bytes) && unsent_add(c, data, bytes);
	}
	head_bytes = xts_datagram_write(m->slot->data + m->at, m->end - m->at, d);
	part = bytes < m->end - m->at - head_bytes ? bytes : m->end - m->at - head_bytes;
	if (part < bytes) {
		if (!unsent_add(c, data + part, bytes - part)) {
			c->held += xts_datagram_credits(&d->record);
			return false;
		}
		c->datagrams->unsent.data_left = bytes - part;
		m->more = true;
	}
	memcpy(m->slot->data + m->at + head_bytes, data, part);
	m->at += head_bytes + part;
	m->datagrams++;
	return true;
}

/* One of those that recvmmsg(2) has brought. */
static void take_one(struct making *m, struct mmsghdr *message, const uint8_t *data)
{
	struct connection *c = m->c;
	struct xts_datagram d = { 0 };
	uint32_t dropped = c->datagrams->dropped;

	d.record.data_bytes = (uint16_t)message->msg_len;
	d.record.endpoint = xts_endpoint_of(message->msg_hdr.msg_namelen ? message->msg_hdr.msg_name : NULL);
	datagram_get_control(&message->msg_hdr, &d, &dropped);
	if (!multicast_passes(c, &d))
		return;
	if (d.record.segment_bytes >= d.record.data_bytes)
		d.record.segment_bytes = 0; /* a train of one */
	xts_datagram_size_controls(&d);
	c->worker->stats.datagrams_dropped += c->shared ? share_new_drops(c->shared, dropped) :
							  dropped - c->datagrams->dropped;
	c->datagrams->dropped = dropped;
	c->received_bytes += d.record.data_bytes;
	c->worker->stats.received_bytes += d.record.data_bytes;
	c->worker->stats.datagrams_received++;
	if (c->datagrams->turn)
		c->datagrams->turn--;
	if (!put_datagram(m, &d, data)) {
		c->datagrams->dropped++;
		c->worker->stats.datagrams_dropped++;
	}
}

/* Entries of the error queue, which the kernel bounds as it does what is received. */
static void make_of_errors(struct making *m)
{
	struct connection *c = m->c;
	struct datagram_scratch *s = c->worker->datagram_scratch;

	while (c->datagrams->has_errors && !m->more && !m->over && !c->datagrams->unsent.end &&
	       m->datagrams < MESSAGE_DATAGRAMS) {
		struct iovec iov = { s->data[0], DATAGRAM_QUOTED_BYTES };
		struct msghdr h = {
			.msg_name = &s->address[0],
			.msg_namelen = sizeof s->address[0],
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = s->control[0],
			.msg_controllen = sizeof s->control[0],
		};
		ssize_t n = recvmsg(c->fd, &h, MSG_ERRQUEUE | MSG_DONTWAIT);
		struct xts_datagram d = { .record.data_bytes = (uint16_t)(n < 0 ? 0 : n) };
		uint32_t dropped = 0;

		if (n < 0) {
			c->datagrams->has_errors = errno == EINTR;
			continue;
		}
		d.record.endpoint = xts_endpoint_of(h.msg_namelen ? h.msg_name : NULL);
		datagram_get_control(&h, &d, &dropped);
		if (!(d.controls & 1u << XTS_DATAGRAM_ERROR))
			continue; /* there was no room for all that the kernel says of it */
		xts_datagram_size_controls(&d);
		(void)put_datagram(m, &d, s->data[0]); /* without memory the pending error alone says it */
		m->over = m->datagrams % ERRORS_UNLOOKED == 0 && worker_turn_is_over(c->worker);
	}
}

/* Fills the message from the kernel, as credits allow. */
static void make_of_kernel(struct making *m)
{
	struct connection *c = m->c;
	struct datagram_scratch *s = c->worker->datagram_scratch;
	struct mmsghdr messages[DATAGRAM_RECEIVES];
	struct iovec iov[DATAGRAM_RECEIVES];

	while (c->readable && !m->more && !m->over && !c->datagrams->unsent.end && m->datagrams < MESSAGE_DATAGRAMS &&
	       m->end - m->at > XTS_DATAGRAM_RECORD_BYTES + DATAGRAM_CONTROL_MOST) {
		uint32_t most = may_take(m);
		int n = most ? take_some(c, s, messages, iov, most) : 0;

		if (!most)
			return; /* credits will wake it */
		if (n < 0) {
			if (n != -EAGAIN)
				datagram_fails(c, -n); /* and more may have come behind the error */
			c->readable = n != -EAGAIN;
			return;
		}
		learn(c->datagrams, messages, (uint32_t)n, most);
		for (int i = 0; i < n; i++)
			take_one(m, &messages[i], s->data[i]);
		if ((uint32_t)n < most)
			c->readable = false;
		m->over = worker_turn_is_over(c->worker);
	}
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* Not while a message of the socket is being read: until its end the host has no more than when it sent it, and the
 * message is checked against that. */
static bool credits_due(const struct connection *c)
{
	const struct unfinished *u = &c->channel->unfinished;

	return xts_credit_due(&c->grant) && !(u->there && u->id == c->proxy_id);
}

static void submit(struct connection *c, const struct xts_tx_slot *slot, int error, bool more, uint32_t length)
{
	struct xts_recv_datagrams m = {
		.post_credits = credits_due(c) ? xts_credit_advertise(&c->grant) : 0,
		.dropped = c->datagrams->dropped,
		.length = length,
	};

	xts_head_encode(slot->data, XTS_REPLY_RECV_DATAGRAMS, more ? XTS_FLAG_MORE : 0, (uint16_t)error, c->xts_socket);
	xts_recv_datagrams_encode(slot->data, &m);
	channel_submit(c->channel, slot, XTS_RECV_DATAGRAMS_BYTES + length);
}

/* The next message, in the slot; false: there is none. *over: the turn ended before it was known whether there is more,
 * for all that was taken may be for nobody (multicast_passes()). */
static bool send_one(struct connection *c, struct xts_tx_slot *slot, bool *over)
{
	uint32_t largest = c->channel->link.largest_message;
	struct making m = { .c = c, .slot = slot, .at = XTS_RECV_DATAGRAMS_BYTES };
	int error = c->error;

	m.end = largest < slot->capacity ? largest : slot->capacity;
	if (!error && make_of_unsent(&m)) {
		make_of_errors(&m);
		make_of_kernel(&m);
	}
	*over = m.over;
	if (m.at > XTS_RECV_DATAGRAMS_BYTES) {
		submit(c, slot, 0, m.more, m.at - XTS_RECV_DATAGRAMS_BYTES);
		return true;
	}
	error = c->error;
	c->error = 0;
	if (!error && !credits_due(c))
		return false;
	submit(c, slot, error, false, 0);
	return true;
}

static bool has_something(const struct connection *c)
{
	return c->error || c->datagrams->unsent.end || c->datagrams->has_errors ||
	       (c->readable && c->held > XTS_DATAGRAM_CREDITS && (!c->shared || c->datagrams->turn)) || credits_due(c);
}

bool datagram_send(struct connection *c, uint32_t budget)
{
	struct xts_tx_slot slot;
	bool over;

	for (; budget; budget--) {
		if (!has_something(c))
			return false;
		if (!channel_slot(c->channel, &slot))
			return true;
		if (!send_one(c, &slot, &over)) {
			xts_queue_abandon(c->channel->queue, &slot);
			return over;
		}
		if (worker_turn_is_over(c->worker))
			break;
	}
	return has_something(c);
}
