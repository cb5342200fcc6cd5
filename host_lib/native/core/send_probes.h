/* The probes of a connection that sends (probe.h), for both ways to send: at once, and through the outbox. */
#ifndef XTS_SEND_PROBES_H
#define XTS_SEND_PROBES_H

#include "core/channel.h"
#include "core/socket.h"
#include "core/stack.h"
#include "common/probe.h"

/* The position as the proxy counts it: from where this process took the connection over. */
static inline uint64_t send_position(const struct xts_sock *s)
{
	return s->sent_bytes - s->cold->sharing.sent_before;
}

static inline void send_taken(const struct xts_sock *s)
{
	XTS_PROBE3(send_taken, s->stack->channel->link.epoch, s->proxy_id, send_position(s));
	(void)s;
}

/* Called before the message is submitted, since the proxy may handle it at once. */
static inline void send_queued(const struct xts_sock *s)
{
	const struct xts_link *link = &s->stack->channel->link;
	uint32_t in_flight = (uint8_t)(link->sent - link->acked), window = link->frame_window;

	XTS_PROBE5(send_queued, link->epoch, s->proxy_id, send_position(s), in_flight, window);
}

#endif
