/* The end of a shared socket: with its last member, because its worker stops, because nobody has come back for it in
 * time, or because a socket of the same tenant is bound to its address. share.h has the theory of operation. */
#include "addresses/socket_address.h"
#include "processes/share_inside.h"
#include "pushed/pushed.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* With the lock held: if this is the last member, will the socket end when it has left? */
bool shared_is_not_kept(const struct shared *s, const struct connection *l, bool closed)
{
	return closed || s->ended || s->abandoned || !l->shares->keep_ms || l->worker->draining;
}

void shared_end(struct shared *s)
{
	shared_kind(s)->share_ends(s);
	registry_remove(&s->keyed);
	list_remove(&s->all);
	s->ended = true;
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	bound_address_release(s->bound_to);
	s->bound_to = NULL;
	while (shared_reset_one_waiting(s))
		;
	pushed_free(s->pushed);
	s->pushed = NULL;
	if (list_empty(&s->members))
		free(s);
}

bool shared_end_piece(struct shared *s)
{
	registry_forget(&s->keyed);
	if (s->listens && !s->closing && !s->elsewhere)
		(void)listen(s->fd, 0); /* so that no further connections join the backlog */
	s->closing = true;
	if (shared_reset_one_waiting(s) || (s->listens && !s->elsewhere && backlog_refuse_one(s->fd)))
		return false;
	shared_end(s);
	return true;
}

bool share_end_some(struct connection *l, bool closed)
{
	struct shared *s = l->shared;
	bool ends, more, elsewhere;

	do {
		registry_lock();
		elsewhere = s->elsewhere;
		ends = shared_has_only(s, l) && shared_is_not_kept(s, l, closed);
		if (ends)
			registry_forget(&s->keyed);
		more = ends && shared_reset_one_waiting(s);
		if (ends && !more)
			shared_end(s);
		registry_unlock();
		if (more && worker_turn_is_over(l->worker))
			return false;
	} while (more);
	return !ends || elsewhere || kind_of(l)->refuse_some(l);
}

void share_drain(struct connection *l)
{
	struct shared *s = l->shared;

	registry_lock();
	if (!s->ended) {
		if (!s->elsewhere)
			(void)shutdown(s->fd, SHUT_RDWR); /* this works whatever descriptors others have for it */
		shared_end(s);
	}
	registry_unlock();
	listener_close(l);
}

/* --- those that nobody holds -------------------------------------------------------------------------------------- */

static bool is_on(const struct shared *s, enum bound_protocol protocol, const struct xts_endpoint *address)
{
	struct xts_endpoint local = { 0 };

	socket_local(s->fd, &local);
	return shared_kind(s)->protocol == protocol && local.port == address->port && endpoint_overlaps(&local, address);
}

/* With the lock held: finds a listener that no process holds, kept by keeper, of this tenant, and on this address
 * (NULL: any, for each of these). */
static struct shared *find_kept(const struct worker_state *keeper, const struct xts_tenant *t,
				enum bound_protocol protocol, const struct xts_endpoint *address)
{
	for (struct list *node = shared_sockets.next; node != &shared_sockets; node = node->next) {
		struct shared *s = list_entry(node, struct shared, all);

		if (list_empty(&s->members) && (!keeper || s->keyed.keeper == keeper) && (!t || s->keyed.tenant == t) &&
		    (!address || is_on(s, protocol, address)))
			return s;
	}
	return NULL;
}

/* Ends such listeners, until the turn is over. True: none is left. */
static bool end_kept(struct worker_state *w, const struct worker_state *keeper, const struct xts_tenant *t,
		     enum bound_protocol protocol, const struct xts_endpoint *address)
{
	struct shared *s;

	do {
		registry_lock();
		s = find_kept(keeper, t, protocol, address);
		if (s)
			(void)shared_end_piece(s);
		registry_unlock();
	} while (s && !worker_turn_is_over(w));
	return !s;
}

bool share_drain_kept(struct worker_state *w)
{
	return end_kept(w, w, NULL, BOUND_TCP, NULL);
}

bool share_gives_way(struct worker_state *w, const struct xts_tenant *t, enum bound_protocol protocol,
		     const struct xts_endpoint *local)
{
	return !local->port || end_kept(w, NULL, t, protocol, local);
}
