/*
 * Messages from the proxy. Each is decoded from a private copy of the frame's first bytes; only payload is read from
 * the frame itself. The proxy is not trusted: a message with an unknown identifier or token is counted and dropped. A
 * message that no correct proxy can send in the socket's state ends the channel (channel_violation).
 */
#include <stdlib.h>
#include <sys/epoll.h>

#include "core/received_data.h"
#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/message.h"
#include "core/message_dispatch.h"
#include "core/outbox.h"
#include "core/socket_kind.h"
#include "core/socket_states.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "link/credit.h"
#include "queues/queue.h"
#include "core/wait.h"
#include "xts.h"

#define REFUSED_MAX (1u << 16) /* above any backlog */

/* Adds post credits to the sender's side of an account; more than there can be end the channel. */
bool message_credits(struct xts_sock *s, uint32_t post_credits)
{
	if (s->in_deficit)
		post_credits = outbox_pay_deficit(s, post_credits);
	if (xts_credit_add(&s->credits, post_credits)) {
		channel_violation(s->stack, "post credits overflow");
		return false;
	}
	if (s->credits > s->peer_window)
		s->peer_window = s->credits;
	return true;
}

struct xts_sock *message_target(struct stack *st, uint32_t id)
{
	struct xts_sock *s = table_find(st, id);

	if (!s || s->lost) {
		st->bad_ids++;
		return NULL;
	}
	return s;
}

bool message_connect_ack(struct stack *st, const struct xts_head *head, const struct xts_connect_ack *m,
			 struct xts_rx_frame *frame)
{
	struct xts_sock *s = message_target(st, head->id);
	bool learns = s && (s->opening || !m->proxy_id);

	(void)frame;
	if (!s)
		return false;
	if (s->cancelled)
		return false; /* it crossed our CANCEL, which the proxy answers by CLOSED in any case */
	if (s->state != TCP_STATE_SYN_SENT) {
		st->bad_ids++;
		return false;
	}
	socket_asked(s, false);
	asked_connected(s);
	s->opening = false;
	s->proxy_id = m->proxy_id;
	s->refusal = head->error ? head->flags : 0;
	if (head->error || !m->proxy_id) {
		s->grant.window = 0;
		if (m->local.ip_version) /* the attempt has bound the socket to a port */
			s->local = m->local;
		socket_fail(s, head->error ? head->error : EPROTO);
	} else {
		socket_enter(s, TCP_STATE_ESTABLISHED, s->phase);
		asked_forget(s); /* a connection cannot be made again */
		s->local = m->local;
		s->peer = m->peer;
		if (!message_credits(s, m->post_credits))
			return false;
		status_state(s);
		socket_changed(s, EPOLLIN | EPOLLOUT);
	}
	wake(st, &s->callers);
	if (learns)
		socket_learn(s, m->proxy_id);
	return false;
}

/* The reply to a struct call; value is the payload's offset in the frame. */
void message_reply(struct stack *st, const struct xts_head *head, uint8_t request, uint32_t proxy_id, uint32_t token,
		   const struct xts_endpoint *local, const struct xts_rx_frame *frame, uint32_t offset, uint32_t length)
{
	struct xts_sock *s = message_target(st, head->id);
	struct call *call = s ? s->call : NULL;
	bool learns = false;

	if (!s)
		return;
	if (s->opening && s->state != TCP_STATE_SYN_SENT && (!call || call->token == token)) {
		learns = true;
		s->opening = false;
		s->proxy_id = proxy_id;
	} else if (!s->opening && !s->proxy_id && !s->closing) {
		s->proxy_id = proxy_id; /* the CONNECT before it failed, so this call made the proxy's socket */
	}
	if (call && call->token == token) {
		if (call->type != request && !(call->type == XTS_CMD_GETSOCKOPT && request == XTS_CMD_SETSOCKOPT)) {
			channel_violation(st, "an answer to another request than was sent");
			return;
		}
		if (local)
			call->local = *local;
		if (length > sizeof call->value)
			length = sizeof call->value;
		/* Replies are short: a value outside of the first segment is not expected and is ignored. */
		if (offset + length <= frame->segment[0].iov_len)
			memcpy(call->value, (const uint8_t *)frame->segment[0].iov_base + offset, length);
		else
			length = 0;
		call->length = length;
		call->error = head->error;
		s->refusal = head->error ? head->flags : 0;
		call->done = true;
		call->unanswered = false;
		s->call = NULL;
		if (call->answered && !head->error)
			call->answered(s, call);
	} else if (!s->closing && token) {
		st->bad_ids++;
	}
	if (token)
		socket_asked(s, false);
	wake(st, &s->callers);
	if (learns)
		socket_learn(s, proxy_id);
}

/*
 * Notes a refusal for the outbox. When a listener closes, as many connections may be on their way as its backlog
 * allows, and there may be no frame credit to refuse them with. To hold back their frames could make both sides wait
 * for each other.
 */
void channel_refuse(struct stack *st, uint32_t proxy_id, uint16_t error)
{
	struct channel *c = st->channel;

	if (c->refused_count == c->refused_room) {
		unsigned room = c->refused_room ? c->refused_room * 2 : 64;
		struct refused *refused = room <= REFUSED_MAX ? realloc(c->refused, room * sizeof *refused) : NULL;

		if (!refused) {
			channel_fail(st, ENOBUFS);
			return;
		}
		c->refused = refused;
		c->refused_room = room;
	}
	c->refused[c->refused_count++] = (struct refused){ .proxy_id = proxy_id, .error = error };
}

static void receive_closed(struct xts_sock *s)
{
	if (!s->closing) {
		channel_violation(s->stack, "the end of a socket that was not closed");
		return;
	}
	s->proxy_id = 0;
	s->closing = s->opening = s->cancelled = false;
	if (s->disconnecting)
		socket_disconnected(s);
	else if (!s->open)
		socket_free(s);
	else
		s->lost = true; /* it was torn (take_over.c), and its program has not closed it yet */
}

/* True: the frame was taken over. */
bool message_recv(struct stack *st, const struct xts_head *head, const struct xts_recv *m, struct xts_rx_frame *frame)
{
	struct xts_sock *s = message_target(st, head->id);
	struct channel *c = st->channel;

	if (!s)
		return false;
	if (head->flags & XTS_FLAG_CLOSED) {
		receive_closed(s);
		return st->channel != c;
	}
	if (s->closing)
		return false; /* it crossed our CLOSE */
	return kind_of(s)->receive(s, head, m, frame);
}

/* --- replies to calls --------------------------------------------------------------------------------------------- */

bool message_listen_ack(struct stack *st, const struct xts_head *head, const struct xts_listen_ack *m,
			struct xts_rx_frame *frame)
{
	message_reply(st, head, XTS_CMD_LISTEN, m->proxy_id, m->token, &m->local, frame, 0, 0);
	return false;
}

bool message_bind_ack(struct stack *st, const struct xts_head *head, const struct xts_bind_ack *m,
		      struct xts_rx_frame *frame)
{
	message_reply(st, head, XTS_CMD_BIND, m->proxy_id, m->token, &m->local, frame, 0, 0);
	return false;
}

bool message_sockopt_ack(struct stack *st, const struct xts_head *head, const struct xts_sockopt_ack *m,
			 struct xts_rx_frame *frame)
{
	message_reply(st, head, XTS_CMD_SETSOCKOPT, m->proxy_id, m->token, NULL, frame, XTS_SOCKOPT_ACK_BYTES, m->length);
	return false;
}

bool message_ioctl_ack(struct stack *st, const struct xts_head *head, const struct xts_ioctl_ack *m,
		       struct xts_rx_frame *frame)
{
	message_reply(st, head, XTS_CMD_IOCTL, m->proxy_id, m->token, NULL, frame, XTS_IOCTL_ACK_BYTES, m->length);
	return false;
}

bool message_share_ack(struct stack *st, const struct xts_head *head, const struct xts_share_ack *m,
		       struct xts_rx_frame *frame)
{
	struct xts_sock *s = message_target(st, head->id);

	if (s)
		kind_of(s)->share_answered(s, head->error);
	message_reply(st, head, XTS_CMD_SHARE, m->proxy_id, m->token, &m->local, frame, 0, 0);
	return false;
}

/* --- all messages ------------------------------------------------------------------------------------------------- */

/* Handles a sequenced message and recycles its frame, unless its data is held. copy: its first 128 bytes. */
void message_receive(struct stack *st, struct xts_rx_frame *frame, const struct xts_head *head, const uint8_t *copy)
{
	struct channel *c = st->channel;
	int taken = message_handle(st, head, copy, frame->bytes, frame);

	if (taken < 0)
		channel_violation(st, xts_type_name(head->type));
	if (st->channel != c)
		return; /* the queue ends, and this frame with it */
	if (taken <= 0)
		frame_recycle(st, frame);
}
