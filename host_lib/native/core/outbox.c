/*
 * Messages that could not leave at once. A socket with something to send is in the channel's outbox, in order of
 * arrival, until there are a frame credit and a slot: its pending data, its advert, its FIN or CLOSE, all in one SEND
 * if possible.
 */
#include <stdlib.h>
#include <sys/epoll.h>

#include "core/channel.h"
#include "core/outbox.h"
#include "core/send_probes.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "processes/inherit.h"
#include "processes/take_over.h"
#include "queues/queue.h"
#include "xts.h"

void outbox_remove(struct xts_sock *s)
{
	struct channel *c = s->stack->channel;

	s->todo = 0;
	if (!s->in_outbox)
		return;
	s->in_outbox = false;
	if (!c)
		return;
	if (s->outbox_prev)
		s->outbox_prev->outbox_next = s->outbox_next;
	else
		c->outbox_first = s->outbox_next;
	if (s->outbox_next)
		s->outbox_next->outbox_prev = s->outbox_prev;
	else
		c->outbox_last = s->outbox_prev;
	s->outbox_next = s->outbox_prev = NULL;
}

void outbox_add(struct xts_sock *s, uint8_t todo)
{
	struct channel *c = s->stack->channel;

	if (!c)
		return;
	if (s->own.moved != NOT_MOVED)
		return; /* nothing more can be sent for it on this channel */
	s->todo |= todo;
	if (s->in_outbox)
		return;
	s->in_outbox = true;
	s->outbox_next = NULL;
	s->outbox_prev = c->outbox_last;
	if (c->outbox_last)
		c->outbox_last->outbox_next = s;
	else
		c->outbox_first = s;
	c->outbox_last = s;
}

/* --- pending data ------------------------------------------------------------------------------------------------- */

void outbox_set_deficit(struct xts_sock *s, uint32_t bytes)
{
	s->in_deficit = bytes;
	s->cold->deficit_bytes = bytes;
}

uint32_t outbox_pay_deficit(struct xts_sock *s, uint32_t credits)
{
	uint32_t deficit = (uint32_t)s->cold->deficit_bytes, paid = credits < deficit ? credits : deficit;

	outbox_set_deficit(s, deficit - paid);
	return credits - paid;
}

void outbox_drop_pending(struct xts_sock *s)
{
	free(s->pending);
	s->pending = NULL;
	s->pending_bytes = s->pending_capacity = 0;
	s->in_deficit = false;
}

/* What has to leave, and may. */
static uint8_t due(struct xts_sock *s)
{
	if (s->in_deficit && s->abort && s->todo & TODO_CLOSE) { /* nobody is to have it any more */
		s->stack->channel->pending_bytes -= s->pending_capacity;
		outbox_drop_pending(s);
		s->todo &= (uint8_t)~TODO_DATA;
	}
	return s->in_deficit ? s->todo & (uint8_t)~TODO_BEHIND_DATA : s->todo;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

int outbox_send_accepted(struct xts_sock *s)
{
	struct stack *st = s->stack;
	struct xts_newconn_ack m = { .xts_socket = s->id, .post_credits = s->grant.window };
	struct xts_tx_slot slot;
	int r = channel_slot(st, &slot);

	if (r)
		return r;
	xts_head_encode(slot.data, XTS_CMD_NEWCONN_ACK, 0, 0, s->proxy_id);
	xts_newconn_ack_encode(slot.data, &m);
	channel_submit(st, &slot, XTS_NEWCONN_ACK_BYTES);
	s->todo &= (uint8_t)~TODO_ACCEPTED;
	return 0;
}

static uint8_t closing_flags(const struct xts_sock *s)
{
	uint8_t flags = XTS_FLAG_CLOSE;

	if (s->abort)
		flags |= XTS_FLAG_ABORT;
	else if ((s->linger && s->linger_s && kind_of(s)->lingers) || s->cold->sharing.stays || share_is_on_its_way(s))
		flags |= XTS_FLAG_LINGER;
	return flags;
}

/* CLOSE for a socket whose identifier is not known yet. */
static int send_cancel(struct xts_sock *s)
{
	struct stack *st = s->stack;
	struct xts_cancel m = { .xts_socket = s->id };
	struct xts_tx_slot slot;
	int r = channel_slot(st, &slot);

	if (r)
		return r;
	xts_head_encode(slot.data, XTS_CMD_CANCEL, 0, 0, 0);
	xts_cancel_encode(slot.data, &m);
	channel_submit(st, &slot, XTS_CANCEL_BYTES);
	s->cancelled = true;
	status_state(s);
	return 0;
}

/* Sends one SEND with as much as it can carry. */
int outbox_send_todo(struct xts_sock *s)
{
	struct stack *st = s->stack;
	uint8_t todo = due(s);
	bool had_data = todo & TODO_DATA;
	struct channel *c = st->channel;
	struct xts_send m = { 0 };
	struct xts_tx_slot slot;
	uint8_t flags = 0;
	int r = channel_slot(st, &slot);

	if (r)
		return r;
	if (had_data) {
		m.length = s->pending_bytes;
		memcpy(slot.data + XTS_SEND_BYTES, s->pending, s->pending_bytes);
		c->pending_bytes -= s->pending_capacity;
		outbox_drop_pending(s);
	}
	if (todo & TODO_CLOSE) {
		flags |= closing_flags(s);
		m.post_credits = (uint32_t)(s->read_bytes % XTS_CREDITS_MAX);
	} else if (s->grant.window) {
		m.post_credits = kind_of(s)->advertise(s);
	}
	if (todo & TODO_FIN)
		flags |= XTS_FLAG_FIN;
	xts_head_encode(slot.data, XTS_CMD_SEND, flags, 0, s->proxy_id);
	xts_send_encode(slot.data, &m);
	if (m.length)
		send_queued(s);
	channel_submit(st, &slot, XTS_SEND_BYTES + m.length);
	s->todo &= (uint8_t)(~todo | TODO_PARK);
	status_data(s);
	/* It was not writable until now, whatever tell_blocked() has reported, and no later event may report that it
	 * is. */
	if (had_data && s->no_space)
		socket_changed(s, EPOLLOUT);
	return 0;
}

bool outbox_flush_socket(struct xts_sock *s)
{
	if (!s->todo)
		return true;
	if (s->own.moved == RETURNING)
		return !turn_send_returns(s);
	if (!s->proxy_id) {
		if (!(s->todo & TODO_CLOSE) || !socket_may_cancel(s) || send_cancel(s))
			return false;
		outbox_remove(s);
		return true;
	}
	for (unsigned i = 0; i < OUTBOX_STEPS; i++)
		if ((due(s) & outbox_steps[i].todo) && outbox_steps[i].send(s))
			return false;
	if (!s->in_deficit)
		outbox_remove(s);
	return true;
}

static void flush_refused(struct channel *c)
{
	struct stack *st = c->stack;
	struct xts_newconn_ack m = { 0 };
	struct xts_tx_slot slot;

	if (!c->refused_count)
		return;
	while (c->refused_count && !channel_slot(st, &slot)) {
		const struct refused *r = &c->refused[--c->refused_count];

		xts_head_encode(slot.data, XTS_CMD_NEWCONN_ACK, 0, r->error, r->proxy_id);
		xts_newconn_ack_encode(slot.data, &m);
		channel_submit(st, &slot, XTS_NEWCONN_ACK_BYTES);
	}
	if (!c->refused_count)
		share_wait_begins(st); /* posts credits that had to wait for the refusals */
}

void outbox_flush(struct stack *st)
{
	struct channel *c = st->channel;
	struct xts_sock *s, *next;

	flush_refused(c);
	for (s = c->outbox_first; s; s = next) {
		next = s->outbox_next;
		if (!outbox_flush_socket(s) && s->proxy_id)
			return;
		if (st->channel != c)
			return;
	}
}
