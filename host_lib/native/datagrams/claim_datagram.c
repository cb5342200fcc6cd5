/*
 * A datagram socket is claimed from the proxy's next process (processes/next_proxy.h).
 *
 * What was received stays here, also the beginning of a datagram whose rest comes from that process, and so does what
 * could not leave yet. A socket that other processes have, too, promises nothing before it has its key there.
 */
#include <stdlib.h>

#include "core/channel.h"
#include "core/outbox.h"
#include "core/socket.h"
#include "core/stack.h"
#include "datagrams/datagrams.h"
#include "link/credit.h"
#include "queues/queue.h"

bool datagram_moves(const struct xts_sock *s)
{
	return s->stack->channel->link.features & XTS_FEATURE_MOVE_DATAGRAM;
}

/* A SHARE that was not answered will not be. */
void datagram_leaves(struct xts_sock *s)
{
	struct datagrams *q = s->datagrams;

	q->naming = 0;
	q->withheld = s->own.shared;
}

/* Nothing is under way: the credits that are neither with the proxy nor freed are those of what is here. */
uint32_t datagram_promises(struct xts_sock *s)
{
	struct xts_credit_grant *g = &s->grant;

	if (s->own.shared) {
		g->unadvertised += g->outstanding;
		g->outstanding = 0;
	} else {
		(void)xts_credit_advertise(g);
	}
	return g->outstanding;
}

bool datagram_takes_pending(struct xts_sock *s)
{
	struct datagrams *q = s->datagrams;
	uint32_t at = q->flushed, credits = 0;
	struct xts_datagram d;

	while (!q->rest && at < s->pending_bytes) {
		int head = xts_datagram_read(&d, s->pending + at, s->pending_bytes - at);

		if (head < 0)
			break; /* impossible, since this library has written it */
		credits += xts_datagram_credits(&d.record);
		at += (uint32_t)head + d.record.data_bytes;
	}
	if (credits > s->credits)
		return false;
	s->credits -= credits;
	return true;
}

/* While it was built, nothing of its socket was pending (datagram_outbox.c). */
bool datagram_message_keep(struct channel *c)
{
	struct datagram_message *making = &c->making;
	struct xts_sock *s = making->of;

	s->pending = malloc(making->length);
	if (!s->pending)
		return false;
	memcpy(s->pending, making->slot.data + XTS_SEND_DATAGRAMS_BYTES, making->length);
	s->pending_bytes = s->pending_capacity = making->length;
	c->pending_bytes += making->length;
	making->of = NULL;
	xts_queue_abandon(c->queue, &making->slot);
	outbox_add(s, TODO_DATA);
	return true;
}
