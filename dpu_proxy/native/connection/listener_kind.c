/* Listeners, from LISTEN to their close: the kind's table (socket_kind.h). listener.c accepts and announces. */
#include "connection/connection_inside.h"
#include "channel/ledger.h"
#include "connection/socket_kind.h"
#include "connection/tcp_move.h"
#include "processes/share.h"
#include "pushed/pushed.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "addresses/socket_address.h"

#define ACCEPTS_A_TURN 64u /* connections that it announces before the next connection has its turn (gather.c) */
#define LOOK_MS_MOST 100u

/* --- LISTEN ------------------------------------------------------------------------------------------------------- */

void listener_become(struct connection *c)
{
	kind_of(c)->count(c, -1);
	connection_enter(c, CONNECTION_LISTENER);
	kind_of(c)->count(c, 1);
	tenant_give(c->tenant, XTS_USE_CONNECTIONS, 1);
	c->channel->connection_count--;
	c->channel->listener_count++;
}

/* A listener has SO_REUSEADDR, unless the host has set it itself, which getsockopt() goes on to say. It changes nothing
 * while the listener is there. But connections that it has accepted have the option too: if they are in TIME_WAIT when
 * the proxy has been started again, the host can have the port again at once, as if its listener had never gone. */
static void allow_rebinding(struct connection *c)
{
	socklen_t length = sizeof(int);
	int on = 0;

	if (getsockopt(c->tcp.fd, SOL_SOCKET, SO_REUSEADDR, &on, &length) || on)
		return;
	on = 1;
	c->tcp.rebinding = setsockopt(c->tcp.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0;
}

int listener_start(struct connection *c, const struct xts_listen *m)
{
	struct channel *ch = c->channel;
	bool was_idle = c->state == CONNECTION_IDLE;
	struct xts_endpoint local;
	int error = 0;

	if (!kind_of(c)->streams)
		return EOPNOTSUPP;
	if ((c->state != CONNECTION_IDLE && c->state != CONNECTION_LISTENER) || c->connect_reply)
		return EINVAL;
	socket_local(c->tcp.fd, &local);
	if (!command_allowed(ch, XTS_POLICY_LISTEN, &local))
		return EACCES;
	if (!local.port) { /* as the kernel's listen() would do, from all ports */
		error = connection_bind_fd(c, &local, NULL);
		if (error)
			return error;
	}
	error = bound_address_listens(c->bound_to);
	if (error)
		return error;
	if (c->state == CONNECTION_IDLE && !tenant_take(c->tenant, XTS_USE_LISTENERS, 1)) {
		ch->worker->stats.refused_limit++;
		return command_refuse(ch, XTS_REFUSED_LISTENERS);
	}
	if (xts_credit_add(&c->held, m->post_credits)) {
		error = EINVAL;
	} else if (listen(c->tcp.fd, m->backlog > INT32_MAX ? INT32_MAX : (int)m->backlog)) {
		error = errno;
		c->held -= m->post_credits;
	}
	if (c->state == CONNECTION_IDLE && error)
		tenant_give(c->tenant, XTS_USE_LISTENERS, 1);
	if (error)
		return error;
	if (was_idle) {
		c->held = m->post_credits; /* others may have crossed the end of a listener that it was */
		listener_become(c);
		allow_rebinding(c);
	}
	if (c->shared)
		share_listens(c, m->backlog, was_idle);
	if (!c->bound_to)
		(void)connection_note_bound_address(c); /* if there is no memory, the address is not registered */
	ledger_count(c);                                /* it may be rebinding now */
	c->readable = true;
	connection_wake(c);
	return -connection_watch(c);
}

/* --- events ------------------------------------------------------------------------------------------------------- */

static void may_accept(struct connection *l)
{
	l->readable = true;
	connection_wake(l);
}

static void event(struct connection *l, uint32_t events)
{
	(void)events;
	may_accept(l);
}

static void look(struct connection *l)
{
	may_accept(l);
	if (l->shares)
		share_take_back_unanswered(l);
}

/* Post credits of a listener count connections. */
static void credits_came(struct connection *l, uint32_t post_credits)
{
	(void)post_credits;
	l->readable = true;
}

/* --- its end ------------------------------------------------------------------------------------------------------ */

void listener_close(struct connection *l)
{
	if (l->tcp.fd < 0)
		return;
	ledger_forget(l->tcp.fd);
	if (l->in_epoll) /* close() does not remove it while another process has the socket open */
		(void)epoll_ctl(l->worker->epoll_fd, EPOLL_CTL_DEL, l->tcp.fd, NULL);
	close(l->tcp.fd);
	l->tcp.fd = -1;
	l->in_epoll = false;
	bound_address_release(l->bound_to);
	l->bound_to = NULL;
	l->readable = false;
}

bool listener_refuse_some(struct connection *l)
{
	if (l->tcp.fd < 0)
		return true;
	(void)listen(l->tcp.fd, 0); /* so that no further connections arrive */
	while (backlog_refuse_one(l->tcp.fd)) {
		if (worker_turn_is_over(l->worker))
			return false;
	}
	return true;
}

/* A backlog may take several turns. The host's next messages have to find the address free, and wait. True: closed. */
static bool close_some(struct connection *l, bool unwaited, bool keeps)
{
	if (l->shared ? !share_end_some(l, !keeps) : !listener_refuse_some(l))
		return false;
	if (l->shared)
		share_leave(l, !keeps);
	l->unwaited = unwaited;
	connection_close_at_once(l);
	connection_wake(l);
	return true;
}

static bool goes_on(struct channel *ch)
{
	struct connection *l = ch->continuation.connection;

	if (close_some(l, ch->continuation.close.unwaited, ch->continuation.close.keeps))
		continuation_done(ch);
	return true;
}

static void close_begins(struct connection *l, uint8_t flags, bool unread)
{
	struct continuation on = { .resume = goes_on,
				   .connection = l,
				   .close = { .unwaited = close_is_unwaited(flags), .keeps = flags & XTS_FLAG_LINGER } };

	(void)unread;
	if (!close_some(l, on.close.unwaited, on.close.keeps))
		continuation_begin(l->channel, &on);
}

static bool close_goes_on(const struct connection *l)
{
	return l->channel->continuation.resume == goes_on && l->channel->continuation.connection == l;
}

static bool is_about_to_end(const struct connection *l)
{
	return close_goes_on(l) || share_shut_goes_on(l) || (l->shared && atomic_load(&l->shared->shut));
}

static bool send_some(struct connection *l, uint32_t budget)
{
	return !is_about_to_end(l) && listener_send(l, budget);
}

/* TCP refuses new connections from now on. */
static void drain(struct connection *l)
{
	if (l->shared)
		share_drain(l);
	else
		listener_close(l);
}

/* The connections that it has accepted end before it, one by one. */
static struct connection *first_to_end(struct connection *l)
{
	struct connection *accepted = accepting_any(l);

	if (!accepted && l->shared && !list_empty(&l->offers))
		accepted = list_entry(l->offers.next, struct connection, offers);
	return accepted ? accepted : l;
}

static void free_listener(struct connection *l)
{
	if (l->shared)
		share_leave(l, false);
	if (l->tcp.pushed)
		accepting_drop(l);
	while (!list_empty(&l->offers)) /* the host will still answer them */
		listener_offer_ends(list_entry(l->offers.next, struct connection, offers));
}

/* --- the kind ----------------------------------------------------------------------------------------------------- */

static void count(struct connection *l, int by)
{
	l->worker->stats.listeners += (uint32_t)by;
}

/* Its protocols are pushed again by its host, from the new process's own configuration, before it accepts there.
 * Members of a shared one would accept without them until that is done. */
static bool pushes_again(const struct connection *l)
{
	return l->channel->link.features & XTS_FEATURE_MOVE_PUSHED && !l->shared && !l->tcp.pushed->peeking;
}

static void drop_protocols(struct connection *l)
{
	if (!l->tcp.pushed)
		return;
	accepting_drop(l);
	pushed_free(l->tcp.pushed);
	l->tcp.pushed = NULL;
}

/* The listening socket, with what waits in its backlog. What it has announced goes by itself. */
static int hand_over(struct connection *l, struct handed *to)
{
	if ((l->tcp.pushed && !pushes_again(l)) || l->tcp.fd < 0 || l->close_reply)
		return EOPNOTSUPP;
	if (!to)
		return 0;
	drop_protocols(l);
	if (l->shared)
		share_is_elsewhere(l);
	while (!list_empty(&l->offers)) /* or they would go to other members here */
		listener_offer_ends(list_entry(l->offers.next, struct connection, offers));
	if (l->in_epoll)
		(void)epoll_ctl(l->worker->epoll_fd, EPOLL_CTL_DEL, l->tcp.fd, NULL);
	l->in_epoll = false;
	tcp_side_move(&to->side, &l->tcp);
	return 0;
}

static int load(struct connection *l, struct tcp_side *from, const struct kind_record *own)
{
	(void)own;
	tenant_take_anyway(l->tenant, XTS_USE_LISTENERS, 1); /* it exists, whatever the limit is here */
	tcp_side_move(&l->tcp, from);
	listener_become(l);
	(void)connection_note_bound_address(l); /* if there is no memory, the address is not registered */
	if (l->bound_to)
		(void)bound_address_listens(l->bound_to);
	l->readable = true;
	return 0;
}

static bool can_be_shared(const struct connection *l)
{
	(void)l;
	return true;
}

static void named(struct connection *l, bool withdraws)
{
	if (withdraws && l->channel->link.features & XTS_FEATURE_WITHDRAW)
		l->held = 0;
}

static const struct socket_kind listener_kind = {
	.protocol = BOUND_TCP,
	.use = XTS_USE_LISTENERS,
	.streams = true,
	.window_follows_buffers = true,
	.shares_frames = true,
	.asks_again = true, /* its post credits bound how many may wait for accept() */
	.members_receive = true,
	.members_accept = true,
	.waits_shared = true,
	.messages_a_turn = ACCEPTS_A_TURN,
	.look_ms_most = LOOK_MS_MOST,
	.event = event,
	.look = look,
	.send = send_some,
	.credits_came = credits_came,
	.close = close_begins,
	.close_goes_on = close_goes_on,
	.drop_outgoing = stream_drop_outgoing,
	.bind = stream_bind,
	.option_set = stream_option_set,
	.option_get = stream_option_get,
	.describe = kind_tells_nothing,
	.first_to_end = first_to_end,
	.refuse_some = listener_refuse_some,
	.drain = drain,
	.count = count,
	.free = free_listener,
	.save = kind_cannot_be_saved,
	.hand_over = hand_over,
	.in_ledger = true,
	.arrives_as = CONNECTION_LISTENER,
	.arrive = kind_arrives_as_tcp_side,
	.load = load,
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

void listener_kind_add(void)
{
	socket_kind_add(&listener_kind, CONNECTION_LISTENER);
}
