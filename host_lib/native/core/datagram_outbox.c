/* The rest of a datagram for which there was no frame: in s->pending, from byte `flushed` on (core/datagram_socket.h). */
#include <stdlib.h>
#include <sys/epoll.h>

#include "core/channel.h"
#include "core/datagram_socket.h"
#include "core/outbox.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "credit.h"
#include "queue.h"

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
		m.post_credits = xts_credit_advertise(&s->grant);
		xts_head_encode(slot.data, XTS_CMD_SEND_DATAGRAMS, m.length < left ? XTS_FLAG_MORE : 0, 0, s->proxy_id);
		xts_send_datagrams_encode(slot.data, &m);
		memcpy(slot.data + XTS_SEND_DATAGRAMS_BYTES, s->pending + q->flushed, m.length);
		channel_submit(st, &slot, XTS_SEND_DATAGRAMS_BYTES + m.length);
		q->flushed += m.length;
	}
	c->pending_bytes -= s->pending_capacity;
	free(s->pending);
	s->pending = NULL;
	s->pending_bytes = s->pending_capacity = q->flushed = 0;
	s->todo &= (uint8_t)~(TODO_DATA | TODO_ADVERT);
	status_data(s);
	/* It was not writable until now, whatever has been reported, and no later event may report it. */
	if (s->no_space)
		socket_changed(s, EPOLLOUT);
	return true;
}
