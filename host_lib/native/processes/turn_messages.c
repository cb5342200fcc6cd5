/* The answers to requests that move a connection between processes: CLAIM, TAKE, PARK. */
#include "core/call.h"
#include "core/channel.h"
#include "core/message.h"
#include "core/message_dispatch.h"
#include "core/socket.h"
#include "core/stack.h"
#include "processes/take_over.h"

/* A connection of another process comes to this one: data after this message belongs to it already. False: the channel
 * has failed. */
static bool connection_comes(struct xts_sock *s, uint32_t proxy_id, uint32_t post_credits,
			     const struct xts_endpoint *local, const struct xts_endpoint *peer)
{
	if (!proxy_id)
		channel_violation(s->stack, "a connection comes without an identifier");
	if (!proxy_id || !message_credits(s, post_credits))
		return false;
	s->local = *local;
	s->peer = *peer;
	return true;
}

/* Does this answer contain what the call has asked for? */
static bool has_brought(const struct call *call, uint32_t type, uint32_t token, const struct xts_head *head)
{
	return call && call->type == type && call->token == token && !head->error;
}

bool message_claim_ack(struct stack *st, const struct xts_head *head, const struct xts_claim_ack *m,
		       struct xts_rx_frame *frame)
{
	struct xts_sock *s = message_target(st, head->id);

	if (s && has_brought(s->call, XTS_CMD_CLAIM, m->token, head) &&
	    !connection_comes(s, m->proxy_id, m->post_credits, &m->local, &m->peer))
		return false;
	if (s && !m->token && s->claiming && !move_claimed(s, m->post_credits, head->error))
		return false;
	if (s)
		message_reply(st, head, XTS_CMD_CLAIM, m->proxy_id, m->token, NULL, frame, 0, 0);
	return false;
}

bool message_take_ack(struct stack *st, const struct xts_head *head, const struct xts_take_ack *m,
		      struct xts_rx_frame *frame)
{
	struct xts_sock *s = message_target(st, head->id);
	struct call *call = s ? s->call : NULL;

	if (has_brought(call, XTS_CMD_TAKE, m->token, head)) {
		if (!connection_comes(s, m->proxy_id, m->post_credits, &m->local, &m->peer))
			return false;
		call->died = m->died;
		call->delivered_bytes = m->delivered_bytes;
		call->accepted_bytes = m->accepted_bytes;
		turn_is_taken(s, m->died);
	}
	if (s)
		message_reply(st, head, XTS_CMD_TAKE, m->proxy_id, m->token, NULL, frame, 0, 0);
	return false;
}

bool message_park_ack(struct stack *st, const struct xts_head *head, const struct xts_park_ack *m,
		      struct xts_rx_frame *frame)
{
	struct xts_sock *s = message_target(st, head->id);

	if (s && s->own.moved == PARKING && m->token && s->cold->sharing.park_token == m->token)
		turn_parked(s, head->error);
	else if (s)
		message_reply(st, head, XTS_CMD_PARK, 0, m->token, NULL, frame, 0, 0);
	return false;
}
