/* Streams: TCP connections, and sockets that may become one. The kind's table (socket_kind.h), and what is short. */
#include "channel/channel.h"
#include "connection/socket_kind.h"
#include "connection/sockopt.h"
#include "connection/tcp_figures.h"
#include "processes/share.h"
#include "tenants/mark.h"

#include <errno.h>

#define MESSAGES_A_TURN 2u /* data, and the end of the stream behind it (gather.c) */
#define LOOK_MS_MOST 1000u

/* All credits were used up, so bytes may be waiting; and protocols may have some at any time. */
static void credits_came(struct connection *c, uint32_t post_credits)
{
	if (c->state == CONNECTION_IDLE)
		c->held = 0; /* they crossed the end of a listener */
	c->readable |= c->held == post_credits || c->tcp.pushed;
}

static bool close_goes_on(const struct connection *c)
{
	return c->state == CONNECTION_CLOSING && c->lingering;
}

int stream_option_set(struct connection *c, struct option_call *o)
{
	int error;

	if (xts_sockopt_needs_stamps(o->level, o->option) && !(c->channel->link.features & XTS_FEATURE_STAMPS))
		return ENOPROTOOPT;
	o->bytes = mark_option(c->tenant, o->level, o->option, o->value, o->bytes);
	error = -xts_sockopt_set(c->tcp.fd, o->level, o->option, o->value, o->bytes,
				 c->worker->config.congestion_controls);
	return error == EPERM ? command_refuse(c->channel, XTS_REFUSED_OPTION) : error;
}

int stream_option_get(struct connection *c, struct option_call *o)
{
	return -xts_sockopt_get(c->tcp.fd, o->level, o->option, o->value, &o->bytes);
}

static void describe(const struct connection *c, struct xts_connection_stats *out)
{
	tcp_figures(c->tcp.fd, &out->tcp);
}

/* One that is shared is bound, and another member may have called LISTEN. */
static void drain(struct connection *c)
{
	if (c->shared)
		share_drain(c);
}

static void count(struct connection *c, int by)
{
	c->worker->stats.connections += (uint32_t)by;
}

/* A socket that can become a listener: it is bound, and not connecting. */
static bool can_be_shared(const struct connection *c)
{
	return c->channel->link.features & XTS_FEATURE_SHARE_BOUND && c->state == CONNECTION_IDLE && c->bound_to &&
	       !c->connect_reply && !c->spent;
}

static void named(struct connection *c, bool withdraws)
{
	(void)c;
	(void)withdraws;
}

void stream_count_member(struct connection *c, int by)
{
	c->worker->stats.shared_listeners += (uint32_t)by;
}

static const struct socket_kind stream_kind = {
	.protocol = BOUND_TCP,
	.use = XTS_USE_CONNECTIONS,
	.streams = true,
	.window_follows_buffers = true,
	.shares_frames = true,
	.messages_a_turn = MESSAGES_A_TURN,
	.look_ms_most = LOOK_MS_MOST,
	.event = stream_event,
	.look = stream_look,
	.send = stream_send,
	.credits_came = credits_came,
	.close = stream_close,
	.close_goes_on = close_goes_on,
	.drop_outgoing = stream_drop_outgoing,
	.bind = stream_bind,
	.option_set = stream_option_set,
	.option_get = stream_option_get,
	.describe = describe,
	.first_to_end = kind_ends_itself,
	.refuse_some = kind_has_nothing,
	.drain = drain,
	.count = count,
	.free = kind_does_nothing,
	.save = stream_save,
	.hand_over = stream_hand_over,
	.in_ledger = true,
	.arrives_as = CONNECTION_ESTABLISHED,
	.arrive = kind_arrives_as_tcp_side,
	.load = stream_load,
	.can_be_shared = can_be_shared,
	.named = named,
	.share_begins = kind_shares_nothing,
	.share_joined = kind_shares_nothing,
	.share_parts = kind_shares_nothing,
	.share_ends = kind_share_ends,
	.share_drops_some = kind_share_has_nothing,
	.may_join = stream_may_join,
	.join = stream_join,
	.count_member = stream_count_member,
};

void stream_kind_add(void)
{
	socket_kind_add(&stream_kind, CONNECTION_IDLE);
	socket_kind_add(&stream_kind, CONNECTION_CONNECTING);
	socket_kind_add(&stream_kind, CONNECTION_ESTABLISHED);
	socket_kind_add(&stream_kind, CONNECTION_CLOSING);
	socket_kind_add(&stream_kind, CONNECTION_FAILED);
	socket_kind_add(&stream_kind, CONNECTION_FREED);
}
