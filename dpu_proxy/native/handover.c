/* SHARE, PARK and CLAIM of the host (PROTOCOL.md): decoded, checked and answered. share.h says what they do. */
#include <errno.h>
#include <string.h>

#include "share.h"

static bool command_share(struct channel *ch, const struct xts_head *head, const void *frame, uint32_t bytes)
{
	struct xts_share m;
	struct xts_share_ack ack = { 0 };
	struct connection *l;
	struct reply *r;
	int error = 0;

	if (xts_share_decode(&m, frame, bytes))
		return command_malformed(ch, head);
	if (head->id) {
		l = command_target(ch, head->id, m.xts_socket, 0, &error);
		if (l)
			error = l->state == CONNECTION_LISTENER ? share_start(l, m.key, m.keep_ms) : EINVAL;
	} else if (ch->worker->draining) {
		l = NULL;
		error = ESHUTDOWN;
	} else {
		l = share_join(ch, m.key, &error);
		if (l)
			l->xts_socket = m.xts_socket;
	}
	ack.token = m.token;
	ack.proxy_id = l ? l->proxy_id : 0;
	if (l && !error)
		socket_local(l->fd, &ack.local);
	r = command_reply(ch);
	r->bytes = XTS_SHARE_ACK_BYTES;
	xts_head_encode(r->frame, XTS_REPLY_SHARE_ACK, 0, (uint16_t)error, m.xts_socket);
	xts_share_ack_encode(r->frame, &ack);
	return false;
}

bool handover_execute(struct channel *ch, const struct xts_head *head, const void *frame, uint32_t bytes)
{
	if (!(ch->link.features & XTS_FEATURE_SHARE))
		return command_malformed(ch, head);
	switch (head->type) {
	case XTS_CMD_SHARE:
		return command_share(ch, head, frame, bytes);
	default:
		return command_malformed(ch, head);
	}
}
