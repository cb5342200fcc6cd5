/*
 * OPEN_DATAGRAM, which makes the proxy's socket for a datagram socket, and CONNECT_DATAGRAM, with their replies. A
 * refused attempt leaves no socket at the proxy: the next call that needs one makes another.
 */
#include <sys/epoll.h>

#include "core/call.h"
#include "core/channel.h"
#include "datagrams/datagrams.h"
#include "core/message.h"
#include "core/message_dispatch.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "processes/again.h"
#include "core/wait.h"

static int open_once(struct xts_sock *s, const struct xts_endpoint *local, const struct xts_endpoint *peer)
{
	struct call call = { .type = XTS_CMD_OPEN_DATAGRAM };
	struct datagrams *q = s->datagrams;
	int r;

	while (q->opens || s->claiming) {
		r = socket_wait(s, &s->callers, FOREVER, false);
		if (r)
			return r;
	}
	if (s->lost || s->away)
		return -ENETDOWN;
	if (s->proxy_id)
		return DATAGRAM_IS_OPEN;
	if (local)
		call.local = *local;
	if (peer)
		call.peer = *peer;
	call.receive_bytes = q->receive_bytes;
	call.post_credits = q->window;
	datagram_grant(s);
	q->opens = true;
	r = call_proxy(s, &call);
	q->opens = false;
	wake(s->stack, &s->callers);
	if (!s->proxy_id)
		s->grant.window = 0;
	return r;
}

/* The channel may end because of this very request, or with its proxy: then the next one has the socket, and not yet
 * the addresses. This thread makes it there, or another one has done so before this one runs. */
int datagram_open(struct xts_sock *s, const struct xts_endpoint *local, const struct xts_endpoint *peer)
{
	int r = again_now(s);

	if (!r)
		r = open_once(s, local, peer);
	if (r != -ENETDOWN || again_now(s))
		return r;
	return s->proxy_id || s->claiming ? DATAGRAM_IS_OPEN : r;
}

int datagram_need_proxy(struct xts_sock *s)
{
	int r = datagram_open(s, NULL, NULL);

	return r == DATAGRAM_IS_OPEN ? 0 : r;
}

static void set_addresses(struct xts_sock *s, const struct xts_endpoint *local, const struct xts_endpoint *peer)
{
	if (local->ip_version)
		s->local = *local;
	s->peer = *peer;
	s->datagrams->connected = peer->ip_version != 0;
	status_state(s);
}

bool message_open_datagram_ack(struct stack *st, const struct xts_head *head, const struct xts_open_datagram_ack *m,
			       struct xts_rx_frame *frame)
{
	struct xts_sock *s = message_target(st, head->id);

	if (!s)
		return false;
	if (!s->datagrams || (!head->error && !m->proxy_id)) {
		channel_violation(st, "OPEN_DATAGRAM_ACK for another kind of socket, or without an identifier");
		return true;
	}
	if (!head->error && !s->closing) {
		if (!message_credits(s, m->post_credits))
			return true;
		if (!s->away && !(s->call && s->call->makes)) /* else they are asked for again, one after the other */
			set_addresses(s, &m->local, &m->peer);
	}
	message_reply(st, head, XTS_CMD_OPEN_DATAGRAM, head->error ? 0 : m->proxy_id, m->token, NULL, frame, 0, 0);
	return false;
}

bool message_connect_datagram_ack(struct stack *st, const struct xts_head *head,
				  const struct xts_connect_datagram_ack *m, struct xts_rx_frame *frame)
{
	struct xts_sock *s = message_target(st, head->id);

	if (!s)
		return false;
	if (!s->datagrams) {
		channel_violation(st, "CONNECT_DATAGRAM_ACK for another kind of socket");
		return true;
	}
	if (!head->error)
		set_addresses(s, &m->local, &m->peer);
	message_reply(st, head, XTS_CMD_CONNECT_DATAGRAM, 0, m->token, NULL, frame, 0, 0);
	return false;
}
