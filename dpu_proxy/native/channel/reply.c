/* Replies to the host's calls, and why one is refused. */
#include <stdlib.h>
#include <string.h>

#include "addresses/socket_address.h"
#include "channel/tickets.h"
#include "connection/connection.h"
#include "tenants/policy.h"

#include "channel/channel.h"

int command_refuse(struct channel *ch, enum xts_refusal refusal)
{
	ch->refusal = (uint8_t)refusal;
	return xts_refusal_errno(refusal);
}

/* The refusal of this request, if it belongs to the errno with which the request ends. */
static uint8_t refusal_of(const struct channel *ch, int error)
{
	return ch->link.features & XTS_FEATURE_REFUSAL && error && xts_refusal_errno(ch->refusal) == error ?
		       ch->refusal :
		       0;
}

uint8_t *command_reply(struct channel *ch, uint8_t type, uint32_t bytes, uint32_t xts_socket, int error)
{
	struct reply *r = &ch->replies[(ch->reply_first + ch->reply_count) % XTS_FRAME_WINDOW_MAX];

	/* Each waiting reply holds back a frame credit, and the link delivers no more than a window of frames. */
	if (ch->reply_count >= XTS_FRAME_WINDOW_MAX)
		abort();
	ch->reply_count++;
	tickets_replied(ch);
	r->bytes = bytes;
	xts_head_encode(r->frame, type, refusal_of(ch, error), (uint16_t)error, xts_socket);
	return r->frame;
}

void command_reply_local(struct channel *ch, uint8_t type, uint32_t xts_socket, uint32_t token,
			 const struct connection *c, int error)
{
	struct xts_listen_ack m = { .proxy_id = c ? c->proxy_id : 0, .token = token };

	/* NOLINTNEXTLINE(misc-redundant-expression): equal today, which is what is asserted */
	_Static_assert(XTS_LISTEN_ACK_BYTES == XTS_BIND_ACK_BYTES && XTS_LISTEN_ACK_BYTES == XTS_SHARE_ACK_BYTES &&
			       XTS_LISTEN_ACK_BYTES == XTS_SHUT_LISTENER_ACK_BYTES,
		       "one layout");
	if (c && !error)
		socket_local(c->tcp.fd, &m.local);
	xts_listen_ack_encode(command_reply(ch, type, XTS_LISTEN_ACK_BYTES, xts_socket, error), &m);
}

void command_reply_value(struct channel *ch, uint8_t type, uint32_t xts_socket, uint32_t token,
			 const struct connection *c, int error, const void *value, uint32_t bytes)
{
	struct xts_sockopt_ack m = { .proxy_id = c ? c->proxy_id : 0, .token = token, .length = error ? 0 : bytes };
	uint8_t *frame = command_reply(ch, type, XTS_SOCKOPT_ACK_BYTES + m.length, xts_socket, error);

	_Static_assert(XTS_SOCKOPT_ACK_BYTES == XTS_IOCTL_ACK_BYTES, "one layout for both");
	xts_sockopt_ack_encode(frame, &m);
	if (m.length)
		memcpy(frame + XTS_SOCKOPT_ACK_BYTES, value, m.length);
}

bool command_allowed(struct channel *ch, enum xts_policy_action action, const struct xts_endpoint *endpoint)
{
	const struct xts_worker_config *config = &ch->worker->config;
	bool otherwise = action == XTS_POLICY_CONNECT ? config->policy_default_allow : config->policy_listen_allow;

	if (xts_policy_allows(config->rules, config->rule_count, otherwise, (uint8_t)action, ch->tenant->id,
			      ch->queue_id, endpoint))
		return true;
	ch->worker->stats.refused_policy++;
	(void)command_refuse(ch, action == XTS_POLICY_CONNECT ? XTS_REFUSED_CONNECT_POLICY : XTS_REFUSED_LISTEN_POLICY);
	return false;
}
