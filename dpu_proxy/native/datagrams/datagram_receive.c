/*
 * Datagrams from the network to the host (datagram_socket.h).
 *
 * Several are taken from the kernel at a time: as many as the host's credits and the current message have room for, if
 * they are no larger than recent ones. If the credits are not enough for one of that size, the kernel is asked for the
 * size of the next datagram. Datagrams are written as records, one behind the other, into the message; the last one may
 * go on in the next message (MORE).
 *
 * If datagrams are larger than expected, there may be no room for all of them. Those wait here, and nothing more is
 * taken until they have left. They are at most one batch, and at most what SO_RCVBUF allowed the kernel to keep for the
 * socket.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "addresses/socket_address.h"
#include "datagrams/datagram_making.h"
#include "wire/endpoint.h"
#include "processes/share.h"

#define ERRORS_UNLOOKED 8u     /* errors taken between two reads of the clock */
#define MESSAGE_DATAGRAMS 128u /* datagrams in one message: other messages should not have to wait for more */

/* --- from the kernel ---------------------------------------------------------------------------------------------- */

/* How many datagrams may be taken, if they are not larger than expected. */
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
	if (c->held < XTS_DATAGRAM_CREDITS + DATAGRAM_CONTROL_MOST || ioctl(c->tcp.fd, SIOCINQ, &next))
		return 0;
	return (uint32_t)next + XTS_DATAGRAM_CREDITS + DATAGRAM_CONTROL_MOST <= c->held;
}

/* Learns from the datagrams that have come: the next ones are expected to be no larger. The expectation shrinks slowly
 * after a large one. */
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

/* recvmmsg(2) into the worker's scratch buffers. Returns how many have come, or -errno. */
static int take_some(struct connection *c, struct datagram_scratch *s, struct mmsghdr *messages, uint32_t most)
{
	struct iovec iov[DATAGRAM_RECEIVES];

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
		int n = recvmmsg(c->tcp.fd, messages, most, MSG_DONTWAIT, NULL);

		if (n >= 0 || errno != EINTR)
			return n < 0 ? -errno : n;
	}
}

/* Takes at most `most` datagrams from the kernel; returns how many have come. An error becomes the socket's pending
 * error. */
static uint32_t fetch(struct connection *c, struct datagram_scratch *s, struct mmsghdr *messages, uint32_t most)
{
	int n = take_some(c, s, messages, most);

	if (n < 0) {
		if (n != -EAGAIN)
			datagram_fails(c, -n); /* there may be more behind the error */
		c->readable = n != -EAGAIN;
		return 0;
	}
	learn(c->datagrams, messages, (uint32_t)n, most);
	if ((uint32_t)n < most)
		c->readable = false;
	return (uint32_t)n;
}

/* Counts a datagram that there was no memory to keep. */
static void lost(struct connection *c)
{
	c->datagrams->dropped++;
	c->worker->stats.datagrams_dropped++;
}

/* Writes a datagram behind what the message has; what does not fit, or has no credits, is kept. False: there is no
 * memory for that, and the datagram is lost. */
static bool put(struct making *m, struct xts_datagram *d, const uint8_t *data)
{
	struct connection *c = m->c;
	uint32_t bytes = d->record.data_bytes, head_bytes, part;

	/* Others are kept already, or this one has to be. */
	if (c->datagrams->unsent.end || m->more ||
	    m->end - m->at < XTS_DATAGRAM_RECORD_BYTES + d->record.control_bytes || !datagram_pay(c, d))
		return datagram_keep(c, d, data);
	head_bytes = xts_datagram_write(m->slot->data + m->at, m->end - m->at, d);
	part = bytes < m->end - m->at - head_bytes ? bytes : m->end - m->at - head_bytes;
	if (part < bytes) {
		if (!datagram_keep_rest(c, data + part, bytes - part)) {
			c->held += xts_datagram_credits(&d->record);
			c->datagrams->delivered -= xts_datagram_credits(&d->record);
			return false;
		}
		m->more = true;
	}
	memcpy(m->slot->data + m->at + head_bytes, data, part);
	m->at += head_bytes + part;
	m->datagrams++;
	return true;
}

/* Describes a datagram that was taken, with its control data, and counts it. False: it is not for this socket. */
static bool describe(struct connection *c, struct mmsghdr *message, struct xts_datagram *d)
{
	uint32_t dropped = c->datagrams->dropped;

	*d = (struct xts_datagram){ .record.data_bytes = (uint16_t)message->msg_len };
	d->record.endpoint = xts_endpoint_of(message->msg_hdr.msg_namelen ? message->msg_hdr.msg_name : NULL);
	datagram_get_control(&message->msg_hdr, d, &dropped);
	if (!multicast_passes(c, d))
		return false;
	if (d->record.segment_bytes >= d->record.data_bytes)
		d->record.segment_bytes = 0; /* only one datagram: no segments */
	xts_datagram_size_controls(d);
	c->worker->stats.datagrams_dropped += c->shared ? share_new_drops(c->shared, dropped) :
							  dropped - c->datagrams->dropped;
	if (dropped != c->datagrams->dropped)
		filter_drops_known(c, dropped);
	c->datagrams->dropped = dropped;
	c->tcp.received_bytes += d->record.data_bytes;
	c->worker->stats.received_bytes += d->record.data_bytes;
	c->worker->stats.datagrams_received++;
	if (c->datagrams->turn)
		c->datagrams->turn--;
	return true;
}

/* Is there room, and are there credits, for this datagram? Its data may go on in the next message. */
static bool has_room_for(const struct making *m, const struct xts_datagram *d)
{
	const struct connection *c = m->c;

	return c->datagrams->turn && !m->more && !c->datagrams->unsent.end && m->datagrams < MESSAGE_DATAGRAMS &&
	       m->end - m->at > XTS_DATAGRAM_RECORD_BYTES + d->record.control_bytes &&
	       xts_datagram_credits(&d->record) <= c->held;
}

/* Adds datagrams that members of a shared socket have given back. They were counted as received before. */
static void make_of_returned(struct making *m)
{
	struct connection *c = m->c;
	struct xts_datagram d;
	const uint8_t *data;

	if (!datagrams_have_returned(c))
		return;
	registry_lock();
	while ((data = returned_first(&c->shared->returned, &d)) && has_room_for(m, &d)) {
		if (put(m, &d, data))
			c->tcp.received_bytes += d.record.data_bytes;
		else
			c->worker->stats.datagrams_dropped++;
		c->datagrams->turn--;
		returned_taken(&c->shared->returned);
	}
	registry_unlock();
}

/* Adds entries of the error queue, which the kernel bounds as it bounds received datagrams. */
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
		ssize_t n = recvmsg(c->tcp.fd, &h, MSG_ERRQUEUE | MSG_DONTWAIT);
		struct xts_datagram d = { .record.data_bytes = (uint16_t)(n < 0 ? 0 : n) };
		uint32_t dropped = 0;

		if (n < 0) {
			c->datagrams->has_errors = errno == EINTR;
			continue;
		}
		d.record.endpoint = xts_endpoint_of(h.msg_namelen ? h.msg_name : NULL);
		datagram_get_control(&h, &d, &dropped);
		if (!(d.controls & 1u << XTS_DATAGRAM_ERROR))
			continue; /* the control data was truncated */
		xts_datagram_size_controls(&d);
		(void)put(m, &d, s->data[0]); /* without memory, only the pending error reports it */
		m->over = m->datagrams % ERRORS_UNLOOKED == 0 && worker_turn_is_over(c->worker);
	}
}

/* Fills the message from the kernel, as credits allow. */
static void make_of_kernel(struct making *m)
{
	struct connection *c = m->c;
	struct datagram_scratch *s = c->worker->datagram_scratch;
	struct mmsghdr messages[DATAGRAM_RECEIVES];

	while (c->readable && !m->more && !m->over && !c->datagrams->unsent.end && m->datagrams < MESSAGE_DATAGRAMS &&
	       m->end - m->at > XTS_DATAGRAM_RECORD_BYTES + DATAGRAM_CONTROL_MOST) {
		uint32_t most = may_take(m), count = most ? fetch(c, s, messages, most) : 0;

		if (!count)
			return; /* new credits will wake it, or an event */
		for (uint32_t i = 0; i < count; i++) {
			struct xts_datagram d;

			if (describe(c, &messages[i], &d) && !put(m, &d, s->data[i]))
				lost(c);
		}
		m->over = worker_turn_is_over(c->worker);
	}
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* Not while a message of the socket is being read: until its end the host has no more credits than when it sent the
 * message, and the message is checked against these. */
static bool credits_due(const struct connection *c)
{
	return xts_credit_due(&c->grant) && c->channel->continuation.connection != c;
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

/* Builds the next message in the slot; false: there is none. *over: the turn ended before it was known whether there is
 * more, as all datagrams taken may have been for no one (multicast_passes()). */
static bool send_one(struct connection *c, struct xts_tx_slot *slot, bool *over)
{
	uint32_t largest = c->channel->link.largest_message;
	struct making m = { .c = c, .slot = slot, .at = XTS_RECV_DATAGRAMS_BYTES };
	int error;

	if (c->held)
		datagram_take_returned_error(c);
	error = c->tcp.error;
	m.end = largest < slot->capacity ? largest : slot->capacity;
	if (!error && datagram_make_of_unsent(&m)) {
		make_of_returned(&m);
		make_of_errors(&m);
		make_of_kernel(&m);
	}
	*over = m.over;
	if (m.at > XTS_RECV_DATAGRAMS_BYTES) {
		submit(c, slot, 0, m.more, m.at - XTS_RECV_DATAGRAMS_BYTES);
		return true;
	}
	error = c->tcp.error;
	c->tcp.error = 0;
	if (!error && !credits_due(c))
		return false;
	submit(c, slot, error, false, 0);
	return true;
}

static bool has_something(const struct connection *c)
{
	return c->tcp.error || c->datagrams->unsent.end || c->datagrams->has_errors ||
	       ((c->readable || datagrams_have_returned(c)) && c->held > XTS_DATAGRAM_CREDITS &&
		(!c->shared || c->datagrams->turn)) ||
	       (c->held && datagram_has_returned_error(c)) || credits_due(c);
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
			channel_abandon(c->channel, &slot);
			return over;
		}
		if (worker_turn_is_over(c->worker))
			break;
	}
	return has_something(c);
}
