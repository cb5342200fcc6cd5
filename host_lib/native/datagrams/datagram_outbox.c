/*
 * Datagrams that have not been submitted yet (datagrams.h). They are in two places: the message that is
 * being built, to which more datagrams of its socket may be added; and s->pending, from byte `flushed` on, with the
 * rest of one datagram, or a message of complete ones, for which there was no frame.
 *
 * The link numbers a message when it is submitted. So a thread that takes a slot for another message submits this one
 * first (channel_slot()), and messages leave in the order in which they were begun.
 */
#include <stdlib.h>
#include <sys/epoll.h>

#include "core/channel.h"
#include "datagrams/datagrams.h"
#include "core/outbox.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "queues/queue.h"

/* The limit lets the proxy work on the first datagrams while the host writes the next. */
#define MESSAGE_BYTES 8192u

/* --- the message that is being built ------------------------------------------------------------------------------ */

static uint32_t payload_room(const struct channel *c)
{
	return c->link.largest_message - XTS_SEND_DATAGRAMS_BYTES;
}

static uint8_t *take_room(struct datagram_message *m, uint32_t bytes)
{
	uint8_t *room = m->slot.data + XTS_SEND_DATAGRAMS_BYTES + m->length;

	m->length += bytes;
	return room;
}

uint8_t *datagram_message_join(struct xts_sock *s, uint32_t bytes)
{
	struct channel *c = s->stack->channel;

	if (!c || c->making.of != s || bytes > payload_room(c) - c->making.length)
		return NULL;
	return take_room(&c->making, bytes);
}

uint8_t *datagram_message_begin(struct xts_sock *s, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct channel *c = s->stack->channel;

	c->making = (struct datagram_message){
		.of = s, .slot = *slot, .submit = datagram_message_submit, .keep = datagram_message_keep
	};
	return take_room(&c->making, bytes);
}

bool datagram_message_is_full(const struct channel *c)
{
	return c->making.of && c->making.length >= MESSAGE_BYTES;
}

void datagram_message_submit(struct channel *c)
{
	struct datagram_message *making = &c->making;
	struct xts_sock *s = making->of;
	struct xts_send_datagrams m = { .length = making->length };

	making->of = NULL;
	m.post_credits = datagram_advertise(s);
	if (s->todo == TODO_ADVERT)
		outbox_remove(s); /* that was this datagram */
	xts_head_encode(making->slot.data, XTS_CMD_SEND_DATAGRAMS, 0, 0, s->proxy_id);
	xts_send_datagrams_encode(making->slot.data, &m);
	channel_submit(s->stack, &making->slot, XTS_SEND_DATAGRAMS_BYTES + m.length);
}

/* --- datagrams that found no frame -------------------------------------------------------------------------------- */

uint8_t *datagram_gather(struct xts_sock *s, uint32_t bytes)
{
	struct channel *c = s->stack->channel;
	uint8_t *room;

	if (!c || bytes > PENDING_SMALL || bytes > payload_room(c))
		return NULL;
	if (!s->pending) {
		uint32_t capacity = PENDING_MAX < payload_room(c) ? PENDING_MAX : payload_room(c);

		if (c->pending_bytes + capacity > PENDING_CHANNEL_MAX)
			return NULL;
		s->pending = malloc(capacity);
		if (!s->pending)
			return NULL;
		s->pending_capacity = capacity;
		s->pending_bytes = s->datagrams->flushed = 0;
		c->pending_bytes += capacity;
	}
	/* No room is left behind the rest of a long datagram. */
	if (bytes > s->pending_capacity - s->pending_bytes)
		return NULL;
	room = s->pending + s->pending_bytes;
	s->pending_bytes += bytes;
	outbox_add(s, TODO_DATA);
	return room;
}

bool datagram_flush(struct xts_sock *s)
{
	struct datagrams *q = s->datagrams;
	struct stack *st = s->stack;
	struct channel *c = st->channel;
	struct xts_tx_slot slot;

	while (q->flushed < s->pending_bytes) {
		uint32_t largest = c->link.largest_message - XTS_SEND_DATAGRAMS_BYTES,
			 left = s->pending_bytes - q->flushed;
		struct xts_send_datagrams m = { .length = left < largest ? left : largest };

		if (channel_slot(st, &slot))
			return false;
		m.post_credits = datagram_advertise(s);
		xts_head_encode(slot.data, XTS_CMD_SEND_DATAGRAMS, m.length < left ? XTS_FLAG_MORE : 0, 0, s->proxy_id);
		xts_send_datagrams_encode(slot.data, &m);
		memcpy(slot.data + XTS_SEND_DATAGRAMS_BYTES, s->pending + q->flushed, m.length);
		channel_submit(st, &slot, XTS_SEND_DATAGRAMS_BYTES + m.length);
		q->flushed += m.length;
	}
	c->pending_bytes -= s->pending_capacity;
	outbox_drop_pending(s);
	q->flushed = 0;
	q->rest = false;
	s->todo &= (uint8_t)~(TODO_DATA | TODO_ADVERT);
	status_data(s);
	/* It was not writable until now, whatever has been reported, and no later event may report that it is. */
	if (s->no_space)
		socket_changed(s, EPOLLOUT);
	return true;
}
