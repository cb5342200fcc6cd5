/*
 * Messages from the proxy. Each is decoded from a private copy of the frame's first bytes; only payload is read from
 * the frame itself. The proxy is not trusted: a message with an unknown identifier or token is counted and dropped. A
 * message that no correct proxy can send in the socket's state ends the channel (channel_fail).
 */
#include <stdlib.h>
#include <sys/epoll.h>

#include "core/received_data.h"
#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/datagram_socket.h"
#include "core/message.h"
#include "core/message_dispatch.h"
#include "core/outbox.h"
#include "core/settings.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "credit.h"
#include "processes/inherit.h"
#include "processes/take_over.h"
#include "queue.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "waiting/progress_thread.h"
#include "waiting/wait.h"
#include "xts.h"

#define REFUSED_MAX (1u << 16) /* above any backlog */

/* Adds post credits to the sender's side of an account; more than there can be end the channel. */
bool message_credits(struct xts_sock *s, uint32_t post_credits)
{
	if (xts_credit_add(&s->credits, post_credits)) {
		channel_fail(s->stack, EPROTO);
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
	if (s->state != TCP_STATE_SYN_SENT) {
		st->bad_ids++;
		return false;
	}
	socket_asked(s, false);
	s->opening = false;
	s->proxy_id = m->proxy_id;
	s->refusal = head->error ? head->flags : 0;
	if (head->error || !m->proxy_id) {
		s->grant.window = 0;
		if (m->local.ip_version) /* the attempt has bound the socket to a port */
			s->local = m->local;
		socket_fail(s, head->error ? head->error : EPROTO);
	} else {
		s->state = TCP_STATE_ESTABLISHED;
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
			channel_fail(st, EPROTO);
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
		s->call = NULL;
		if (s->pushing && request == XTS_CMD_IOCTL && !head->error)
			push_answered(s, call);
	} else if (!s->closing && token) {
		st->bad_ids++;
	}
	if (token)
		socket_asked(s, false);
	wake(st, &s->callers);
	if (learns)
		socket_learn(s, proxy_id);
}

/* A connection of another process comes to this one: data after this message belongs to it already. False: the channel
 * has failed. */
static bool connection_comes(struct xts_sock *s, uint32_t proxy_id, uint32_t post_credits,
			     const struct xts_endpoint *local, const struct xts_endpoint *peer)
{
	if (!proxy_id)
		channel_fail(s->stack, EPROTO);
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

static void refuse(struct stack *st, struct xts_sock *listener, uint32_t proxy_id)
{
	bool joint = listener && listener->cold->sharing.others_may_have;

	channel_refuse(st, proxy_id, joint ? EAGAIN : ENFILE);
	if (joint) {
		listener->grant.outstanding = listener->grant.unadvertised = 0;
	} else if (listener) {
		xts_credit_free(&listener->grant, 1);
		if (xts_credit_due(&listener->grant))
			outbox_add(listener, TODO_ADVERT);
	}
}

static bool is_due(struct xts_sock *listener)
{
	if (listener->state != TCP_STATE_LISTEN)
		return false;
	return listener->own.shared ? share_offered(listener) : xts_credit_receive(&listener->grant, 1) == 0;
}

bool message_newconn(struct stack *st, const struct xts_head *head, const struct xts_newconn *m,
		     struct xts_rx_frame *frame)
{
	struct xts_sock *listener = table_find(st, head->id), *s;
	uint32_t window;

	(void)frame;
	if (!m->proxy_id || (listener && !listener->closing && !is_due(listener))) {
		channel_fail(st, EPROTO);
		return false;
	}
	if (listener && listener->closing && listener->cold->sharing.key)
		return false; /* the listener's CLOSE, which is on its way, returns it */
	if (!listener || listener->closing) {
		refuse(st, NULL, m->proxy_id);
		return false;
	}
	s = socket_make(st, listener->family);
	if (!s) {
		refuse(st, listener, m->proxy_id);
		return false;
	}
	s->proxy_id = m->proxy_id;
	s->state = TCP_STATE_ESTABLISHED;
	s->phase = PHASE_CONNECTED;
	s->local = m->local;
	s->peer = m->peer;
	s->listener = listener;
	s->linger = listener->linger;
	s->linger_s = listener->linger_s;
	s->receive_timeout_ns = listener->receive_timeout_ns;
	s->send_timeout_ns = listener->send_timeout_ns;
	s->receive_lowat = listener->receive_lowat;
	s->window_max = listener->window_max;
	s->seqpacket = listener->seqpacket;
	push_inherit(s, listener);
	window = st->settings.window_bytes < s->window_max ? st->settings.window_bytes : s->window_max;
	xts_credit_grant_init(&s->grant, push_window(s, window));
	if (!message_credits(s, m->post_credits))
		return false;
	if (listener->cold->accept_last)
		listener->cold->accept_last->accept_next = s;
	else
		listener->cold->accept_first = s;
	listener->cold->accept_last = s;
	listener->cold->accept_count++;
	s->own.offered = listener->own.shared &&
			 (listener->cold->sharing.others_may_have || !listener->cold->sharing.accepting);
	if (!s->own.offered)
		outbox_add(s, TODO_ACCEPTED);
	else if (listener->cold->sharing.others_may_have)
		progress_need(st);
	status_state(s);
	status_data(listener);
	socket_changed(listener, EPOLLIN);
	return false;
}

/* Data for a socket. True: the frame was taken over. */
static bool receive_data(struct xts_sock *s, struct xts_rx_frame *frame, uint32_t length)
{
	struct stack *st = s->stack;

	if (s->done || s->state != TCP_STATE_ESTABLISHED || (s->todo & TODO_GIVE_BACK) ||
	    xts_credit_receive(&s->grant, length) || (s->cold->pdu_first && !pdu_stream_data(s, length))) {
		channel_fail(st, EPROTO);
		return true;
	}
	s->received_bytes += length;
	st->received_bytes += length;
	if (s->grant.outstanding < s->grant.window / 2)
		s->squeezed = true;
	socket_asked(s, false);
	buffer_append(s, frame, XTS_RECV_BYTES, length);
	return true;
}

static void receive_closed(struct xts_sock *s)
{
	if (!s->closing) {
		channel_fail(s->stack, EPROTO);
		return;
	}
	s->proxy_id = 0;
	s->closing = false;
	if (s->disconnecting)
		socket_disconnected(s);
	else
		socket_free(s);
}

/* True: the frame was taken over. */
bool message_recv(struct stack *st, const struct xts_head *head, const struct xts_recv *m, struct xts_rx_frame *frame)
{
	struct xts_sock *s = message_target(st, head->id);
	struct channel *c = st->channel;
	uint32_t events = 0;
	bool taken = false;

	if (!s)
		return false;
	if (head->flags & XTS_FLAG_CLOSED) {
		receive_closed(s);
		return st->channel != c;
	}
	if (s->closing)
		return false; /* it crossed our CLOSE */
	if (s->datagrams)
		return datagram_told(s, head, m);
	if (s->state != TCP_STATE_ESTABLISHED) {
		channel_fail(st, EPROTO);
		return true;
	}
	if (m->post_credits && !message_credits(s, m->post_credits))
		return true;
	if (m->length) {
		taken = receive_data(s, frame, m->length);
		if (st->channel != c)
			return true;
		if (s->cold->pdu_first || s->unread >= s->receive_lowat)
			events |= EPOLLIN;
		else
			wake(st, &s->readers); /* the call may be satisfied with less than SO_RCVLOWAT */
	}
	if (m->post_credits && s->no_space)
		events |= EPOLLOUT;
	if (head->flags & XTS_FLAG_EOS) {
		if (pdu_is_open(s) && !head->error) {
			channel_fail(st, EPROTO);
			return true;
		}
		s->done = true;
		s->cold->end_error = head->error;
		s->shutdown |= RCV_SHUTDOWN;
		events |= STATE_CHANGE & ~(uint32_t)EPOLLOUT; /* the room has not grown */
		status_state(s);
	}
	if (head->flags & XTS_FLAG_RESET) {
		socket_fail(s, s->done && (!head->error || head->error == ECONNRESET) ? EPIPE :
			       head->error                                            ? head->error :
											ECONNRESET);
		return taken;
	}
	status_data(s);
	if (events)
		socket_changed(s, events);
	else if (m->post_credits)
		wake(st, &s->writers);
	return taken;
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

	if (s && s->datagrams)
		datagram_is_named(s, head->error);
	message_reply(st, head, XTS_CMD_SHARE, m->proxy_id, m->token, &m->local, frame, 0, 0);
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

/* --- all messages ------------------------------------------------------------------------------------------------- */

/* Handles a sequenced message and recycles its frame, unless its data is held. copy: its first 128 bytes. */
void message_receive(struct stack *st, struct xts_rx_frame *frame, const struct xts_head *head, const uint8_t *copy)
{
	struct channel *c = st->channel;
	int taken = message_dispatch(st, head, copy, frame->bytes, frame);

	if (taken < 0)
		channel_fail(st, -taken);
	if (st->channel != c)
		return; /* the queue ends, and this frame with it */
	if (taken <= 0)
		frame_recycle(st, frame);
}
