/* Listeners: accept connections and announce them by NEWCONN. A listener's post credits count connections
 * (PROTOCOL.md). */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "addresses/socket_address.h"
#include "connection/tcp_move.h"
#include "wire/endpoint.h"
#include "processes/share.h"
#include "pushed/pushed.h"

/* Is it an error of the connection that accept(2) would have returned? Such an error says
 * nothing about the listener. */
static bool is_passing(int error)
{
	return error == ECONNABORTED || error == EINTR || error == EPROTO || error == ENETDOWN ||
	       error == ENOPROTOOPT || error == EHOSTDOWN || error == ENONET || error == EHOSTUNREACH ||
	       error == EOPNOTSUPP || error == ENETUNREACH;
}

bool listener_has_room(const struct connection *l)
{
	return tenant_left(l->tenant, XTS_USE_CONNECTIONS) && channel_window_left(l->channel);
}

bool backlog_refuse_one(int listener_fd)
{
	int fd = accept4(listener_fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return is_passing(errno);
	reset_and_close(fd);
	return true;
}

/* --- announcing --------------------------------------------------------------------------------------------------- */

void listener_offer_ends(struct connection *c)
{
	if (!c->listener)
		return;
	list_remove(&c->offers);
	if (c->listener->shares)
		share_offer_ends(c->listener->shares);
	c->listener = NULL;
}

void listener_announce(struct connection *l, struct connection *c, const struct xts_endpoint *peer,
		       const struct xts_tx_slot *slot)
{
	struct xts_newconn m = { .proxy_id = c->proxy_id, .post_credits = connection_grant_window(c) };

	c->tcp.accepted = true;
	connection_enter(c, CONNECTION_ESTABLISHED);
	c->announced = true;
	c->writable = true;
	c->listener = l;
	list_append(&l->offers, &c->offers);
	if (l->shares)
		share_offer_begins(l->shares);
	socket_local(c->tcp.fd, &m.local);
	m.peer = *peer;
	xts_head_encode(slot->data, XTS_REPLY_NEWCONN, 0, 0, l->xts_socket);
	xts_newconn_encode(slot->data, &m);
	channel_submit(l->channel, slot, XTS_NEWCONN_BYTES);
	l->held--;
	connection_look_sooner(l);
	l->worker->stats.accepts++;
}

/* No two of a worker's are the same, so that connections which are given back keep their order. */
static uint64_t accept_time(struct worker_state *w)
{
	w->accepted_ns = w->now_ns > w->accepted_ns ? w->now_ns : w->accepted_ns + 1;
	return w->accepted_ns;
}

/* The next connection: one that was given back, or a new one. False, and errno. */
static bool next_connection(struct connection *l, struct sockaddr_storage *peer, struct tcp_side *tcp, uint64_t *came_ns)
{
	socklen_t length = sizeof *peer;

	if (!l->shared || !share_take_waiting(l, tcp, came_ns)) {
		*came_ns = accept_time(l->worker);
		*tcp = (struct tcp_side){ .ip_version = l->tcp.ip_version, .rebinding = l->tcp.rebinding };
		tcp->fd = accept4(l->tcp.fd, (struct sockaddr *)peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
		return tcp->fd >= 0;
	}
	if (!getpeername(tcp->fd, (struct sockaddr *)peer, &length))
		return true;
	tcp_side_end(tcp, l->tenant); /* reset by its peer in the meantime: the host never knew of it */
	errno = ECONNABORTED;
	return false;
}

static void accepted_all(struct connection *l)
{
	l->readable = false;
	if (errno != EAGAIN)
		connection_look_later(l); /* out of descriptors or memory: try again a little later */
	else if (l->shared)
		share_accepted_all(l);
}

/* Its channel is about to be handed over: what is accepted now might not finish its handshake here. */
static bool leaves_it_to_the_next(const struct connection *l)
{
	const struct channel *ch = l->channel;

	return ch->move || ch->worker->now_ns < ch->accepts_held_until_ns;
}

/* Which member takes the next connection; NULL: none can now. */
static struct connection *next_member(struct connection *l)
{
	struct connection *to = l->shared ? share_turn(l) : l;

	if (!to || (!to->held && !to->tcp.pushed))
		return NULL;
	if (!listener_has_room(to) || (to->tcp.pushed && (!accepting_has_room(to) || leaves_it_to_the_next(to)))) {
		/* Further connections wait in the kernel's backlog, as they would for a busy server. */
		connection_look_later(to);
		l->readable = false;
		return NULL;
	}
	return to;
}

/* Announces a connection whose handshake is done; false: there is none, or it has to wait. */
static bool announce_ready(struct connection *l)
{
	struct connection *c = accepting_next(l);
	struct xts_tx_slot slot;

	if (!c)
		return false;
	if (!l->held || (l->shares && l->shares->stuck)) {
		if (l->shared)
			share_give_back(c); /* its handshake is done already: another member gets it */
		return l->shared;
	}
	if (!channel_slot(l->channel, &slot)) {
		connection_wake(l);
		return false;
	}
	accepting_ends(c);
	listener_announce(l, c, &c->tcp.pushed->peer, &slot);
	return true;
}

bool listener_send(struct connection *l, uint32_t budget)
{
	struct sockaddr_storage peer;
	struct xts_tx_slot slot;

	while (budget--) {
		struct connection *c, *to;
		struct xts_endpoint from;
		struct tcp_side tcp;
		uint64_t came_ns;
		int error = 0;

		if (l->tcp.pushed && announce_ready(l))
			continue;
		if (l->shared ? !share_has_news(l) : !l->readable)
			return false;
		to = next_member(l);
		if (!to)
			return false;
		if (!channel_slot(to->channel, &slot)) {
			connection_wake(to); /* its own channel wakes it when it has a slot again */
			share_turn_ends(to);
			return to == l;
		}
		if (!next_connection(l, &peer, &tcp, &came_ns)) {
			channel_abandon(to->channel, &slot);
			if (is_passing(errno))
				continue;
			accepted_all(l);
			return false;
		}
		c = connection_new(to->channel, tcp.fd, tcp.ip_version, &error);
		if (!c) {
			channel_abandon(to->channel, &slot);
			tcp_side_end(&tcp, l->tenant);
			connection_look_later(l);
			l->readable = false;
			return false;
		}
		tcp_side_move(&c->tcp, &tcp);
		c->since_ns = came_ns;
		share_turn_ends(to);
		from = xts_endpoint_of(&peer);
		closed_begin(c, XTS_BEGUN_ACCEPT, &from);
		if ((to->tcp.pushed || c->tcp.pushed) && !accepting_begin(to, c, &from))
			channel_abandon(to->channel, &slot); /* its handshake is under way, or has failed */
		else
			listener_announce(to, c, &from, &slot);
		/* Accepting one may cost 100 us: another one may have to end to make room, and protocols may have to
		 * start. */
		if (worker_turn_is_over(l->worker))
			break;
	}
	return true;
}
