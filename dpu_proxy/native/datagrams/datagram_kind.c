/* Datagram sockets, as a kind (socket_kind.h): events, options, close, and what several processes have in common. */
#include "connection/socket_kind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "connection/connection_inside.h"
#include "connection/paced.h"
#include "datagrams/datagram_making.h"
#include "datagrams/filter_totals.h"
#include "processes/share.h"

#define LOOK_MS_MOST 1000u
#define MESSAGES_A_TURN 2u

/* --- its end ------------------------------------------------------------------------------------------------------ */

static void close_now(struct connection *c)
{
	if (c->shared)
		share_leave(c, !c->datagrams->closing_keeps);
	connection_close_at_once(c);
	connection_wake(c);
}

/* What waits in its spill buffer is still sent, unless the host closes it once more. */
static void close_begins(struct connection *c, uint8_t flags, bool unread)
{
	struct datagrams *d = c->datagrams;
	bool again = d->closing;

	(void)unread;
	d->closing_keeps = flags & XTS_FLAG_LINGER;
	d->closing = true;
	if (c->tcp.out.spill.bytes && !d->coming && !again)
		return;
	c->unwaited = close_is_unwaited(flags);
	close_now(c);
}

static bool close_goes_on(const struct connection *c)
{
	return c->datagrams->closing;
}

static void free_datagrams(struct connection *c)
{
	multicast_release(c->datagrams->multicast);
	filter_free(c);
	datagram_drop_waiting(c);
	datagram_free_unsent(c);
	datagram_drop_returning(c);
	trim_count(&c->worker->trim, &c->worker->timers, c->worker->now_ns, sizeof *c->datagrams);
	free(c->datagrams);
	c->datagrams = NULL;
}

/* --- events ------------------------------------------------------------------------------------------------------- */

/* On a shared socket, errors are for the members that use it. */
static bool takes_errors(const struct connection *c)
{
	return !c->shared || c->held || c->datagrams->sends;
}

static void event(struct connection *c, uint32_t events)
{
	int error = 0;
	socklen_t length = sizeof error;

	if (events & EPOLLERR && !takes_errors(c))
		events &= ~(uint32_t)EPOLLERR;
	if (events & EPOLLERR && !getsockopt(c->tcp.fd, SOL_SOCKET, SO_ERROR, &error, &length) && error)
		datagram_fails(c, error);
	if (events & (EPOLLIN | EPOLLERR)) {
		c->datagrams->has_errors |= (events & EPOLLERR) != 0;
		c->readable = true;
		connection_wake(c);
	}
	if (events & EPOLLOUT) {
		c->writable = true;
		datagram_flush(c);
		if (c->datagrams->closing && !c->tcp.out.spill.bytes)
			close_now(c);
	}
}

static void look(struct connection *c)
{
	connection_look_sooner(c);
	if (c->tcp.fd >= 0)
		event(c, EPOLLOUT);
}

static void credits_came(struct connection *c, uint32_t post_credits)
{
	c->readable |= c->held == post_credits;
	if (!c->shared)
		return;
	c->readable = true;
	/* while it had no credits it may have left errors to other members */
	c->datagrams->has_errors |= c->held == post_credits;
	c->datagrams->turn = DATAGRAM_TURN;
}

/* --- options ------------------------------------------------------------------------------------------------------ */

static int option_set(struct connection *c, struct option_call *o)
{
	int error;

	datagram_flush(c); /* the option applies to what is sent from now on */
	if (filter_is_option(o->level, o->option))
		return o->payload_bytes <= o->payload_room ? filter_set(c, o->option, o->payload, o->payload_bytes) :
							     EINVAL;
	if (!multicast_is_option(o->level, o->option)) {
		error = stream_option_set(c, o);
		if (o->level == SOL_SOCKET && o->option == SO_MAX_PACING_RATE)
			paced_learn(c); /* the kernel keeps it only for streams */
		return error;
	}
	error = -multicast_set(c, o->level, o->option, o->value, o->bytes);
	return error == EPERM ? command_refuse(c->channel, XTS_REFUSED_OPTION) : error;
}

static int option_get(struct connection *c, struct option_call *o)
{
	if (multicast_is_option(o->level, o->option))
		return -multicast_get(c, o->level, o->option, o->value, &o->bytes);
	return stream_option_get(c, o);
}

static void describe(const struct connection *c, struct xts_connection_stats *out)
{
	struct filter_use filter = filter_of(c);

	out->datagrams_dropped = c->shared ? atomic_load_explicit(&c->shared->dropped, memory_order_relaxed) :
					     c->datagrams->dropped;
	out->filter_instructions = filter.instructions;
	snprintf(out->filter, sizeof out->filter, "%s", filter_totals_name(filter.totals));
}

static void count(struct connection *c, int by)
{
	c->worker->stats.datagram_sockets += (uint32_t)by;
}

/* --- several processes have it ------------------------------------------------------------------------------------ */

static bool can_be_shared(const struct connection *c)
{
	return c->channel->link.features & XTS_FEATURE_SHARE_DATAGRAM && !c->datagrams->closing;
}

/* Credits that its host had posted are void. */
static void named(struct connection *c, bool withdraws)
{
	(void)withdraws;
	c->held = 0;
	c->datagrams->sends = false;
}

static int may_join(struct channel *ch, const struct shared *s)
{
	(void)s;
	return ch->link.features & XTS_FEATURE_SHARE_DATAGRAM ? 0 : ENOENT;
}

/* The descriptor in struct shared stays open when those of the members are closed. */
void datagram_share_begins(struct shared *s, struct connection *l)
{
	s->multicast = multicast_hold(l->datagrams->multicast);
	s->bound = l->datagrams->bound;
	atomic_store(&s->dropped, l->datagrams->dropped);
	groups_use(s->multicast, s->fd);
	filter_share(l, s);
	returned_join_shared(s, l);
}

static void share_joined(struct shared *s, struct connection *c)
{
	c->datagrams->multicast = multicast_join(c->datagrams->multicast, s->multicast);
	filter_joins(c);
	returned_join_shared(s, c);
}

static void share_parts(struct shared *s, struct connection *c)
{
	filter_unshare(c, s);
}

static void share_ends(struct shared *s)
{
	filter_end(s);
	multicast_release(s->multicast);
	s->multicast = NULL;
}

static bool share_drops_some(struct shared *s)
{
	return returned_drop_block(&s->returned);
}

/* Its members are not listeners. */
static void count_member(struct connection *c, int by)
{
	(void)c;
	(void)by;
}

static const struct socket_kind datagram_kind = {
	.protocol = BOUND_UDP,
	.use = XTS_USE_CONNECTIONS,
	.members_receive = true,
	.waits_shared = true,
	.messages_a_turn = MESSAGES_A_TURN,
	.look_ms_most = LOOK_MS_MOST,
	.event = event,
	.look = look,
	.send = datagram_send,
	.credits_came = credits_came,
	.close = close_begins,
	.close_goes_on = close_goes_on,
	.drop_outgoing = datagram_drop_waiting,
	.bind = datagram_bind,
	.option_set = option_set,
	.option_get = option_get,
	.describe = describe,
	.first_to_end = kind_ends_itself,
	.refuse_some = kind_has_nothing,
	.drain = kind_does_nothing,
	.count = count,
	.free = free_datagrams,
	.save = kind_cannot_be_saved,
	.hand_over = datagram_hand_over,
	.arrives_as = CONNECTION_DATAGRAM,
	.arrive = datagram_arrive,
	.load = datagram_load,
	.can_be_shared = can_be_shared,
	.named = named,
	.share_begins = datagram_share_begins,
	.share_joined = share_joined,
	.share_parts = share_parts,
	.share_ends = share_ends,
	.share_drops_some = share_drops_some,
	.may_join = may_join,
	.join = datagram_join,
	.join_first = datagram_join_first,
	.count_member = count_member,
};

void datagram_kind_add(void)
{
	socket_kind_add(&datagram_kind, CONNECTION_DATAGRAM);
}
