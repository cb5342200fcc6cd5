/* SHARE, PARK and CLAIM of the host (PROTOCOL.md): decoded, checked and answered. share.h says what they do. */
#include <errno.h>
#include <string.h>

#include "share.h"

/* A listener, or a socket that can become one: it is bound, and not connecting. */
static bool can_be_shared(const struct connection *c)
{
	if (c->state == CONNECTION_LISTENER)
		return true;
	return c->channel->link.features & XTS_FEATURE_SHARE_BOUND && c->state == CONNECTION_IDLE && c->name && !c->connect_reply &&
	       !c->spent;
}

static bool command_share(struct channel *ch, const struct xts_head *head, const void *frame, uint32_t bytes)
{
	struct xts_share m;
	struct connection *l;
	int error = 0;

	if (xts_share_decode(&m, frame, bytes))
		return command_malformed(ch, head);
	if (head->id) {
		l = command_target(ch, head->id, m.xts_socket, 0, &error);
		if (l)
			error = can_be_shared(l) ? share_start(l, m.key, m.keep_ms) : EINVAL;
	} else if (ch->worker->draining) {
		l = NULL;
		error = command_refuse(ch, XTS_REFUSED_STOPPING);
	} else {
		l = share_join(ch, m.key, &error);
		if (l)
			l->xts_socket = m.xts_socket;
	}
	command_reply_local(ch, XTS_REPLY_SHARE_ACK, m.xts_socket, m.token, l, error);
	return false;
}

static bool command_park(struct channel *ch, const struct xts_head *head, const void *frame, uint32_t bytes)
{
	struct xts_park m;
	struct xts_park_ack ack;
	struct connection *c;
	int error = EBADF;

	if (xts_park_decode(&m, frame, bytes))
		return command_malformed(ch, head);
	c = head->id ? command_target(ch, head->id, m.xts_socket, 0, &error) : NULL;
	if (c)
		error = park_start(c, m.key, m.keep_ms);
	if (error == ENOBUFS)
		(void)command_refuse(ch, XTS_REFUSED_PARKED);
	ack.token = m.token;
	xts_park_ack_encode(command_reply(ch, XTS_REPLY_PARK_ACK, XTS_PARK_ACK_BYTES, m.xts_socket, error), &ack);
	return false;
}

static bool command_claim(struct channel *ch, const struct xts_head *head, const void *frame, uint32_t bytes)
{
	struct xts_claim m;
	struct xts_claim_ack ack = { 0 };
	struct connection *c;
	int error = 0;

	if (xts_claim_decode(&m, frame, bytes))
		return command_malformed(ch, head);
	c = park_claim(ch, m.key, &error);
	ack.token = m.token;
	if (c) {
		c->xts_socket = m.xts_socket;
		c->held = m.post_credits;
		c->received_bytes = m.unread; /* as if sent over this channel: CLOSE will tell what was read of them too */
		ack.proxy_id = c->proxy_id;
		ack.post_credits = c->grant.outstanding;
		socket_local(c->fd, &ack.local);
		socket_peer(c->fd, &ack.peer);
	}
	xts_claim_ack_encode(command_reply(ch, XTS_REPLY_CLAIM_ACK, XTS_CLAIM_ACK_BYTES, m.xts_socket, error), &ack);
	return false;
}

bool handover_execute(struct channel *ch, const struct xts_head *head, const void *frame, uint32_t bytes)
{
	if (!(ch->link.features & XTS_FEATURE_SHARE))
		return command_malformed(ch, head);
	switch (head->type) {
	case XTS_CMD_SHARE:
		return command_share(ch, head, frame, bytes);
	case XTS_CMD_PARK:
		return command_park(ch, head, frame, bytes);
	case XTS_CMD_CLAIM:
		return command_claim(ch, head, frame, bytes);
	default:
		return command_malformed(ch, head);
	}
}
