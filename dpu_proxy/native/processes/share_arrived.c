/*
 * Shared listeners and datagram sockets that have come from another process of the proxy (move.h), and whose members
 * sleep.
 *
 * Theory of operation. A member claims its socket when its host has noticed the move, which may be in days: the master
 * of a pre-fork server sleeps in sigsuspend(). Until then it is kept (struct parked). But other processes that have the
 * socket may come before that, on new channels: a worker behind a relay, whose channels do not move, or one that was
 * started meanwhile. They join by the key, as ever. So the key has moved, too, and the first of them makes the shared
 * socket again, with a descriptor of its own. The member that sleeps finds it by its key when it wakes up, and joins
 * (share_start()).
 *
 * What the record of a datagram socket has for all members, as datagrams that were given back, is for the first of them
 * then. The rest is of the one that sleeps.
 *
 * Until it wakes up its descriptor keeps the socket open, too. So what waits in a backlog is not refused when the
 * others have left: it is this member's.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "addresses/socket_address.h"
#include "processes/parked.h"
#include "processes/share_inside.h"

static struct list arrived = { &arrived, &arrived }; /* under the registry's lock */

void parked_is_shared(struct parked *p, uint64_t shared_key)
{
	if (!p->shared_key)
		list_append(&arrived, &p->arrived);
	p->shared_key = shared_key;
}

static struct parked *find(const struct xts_tenant *t, uint64_t key)
{
	for (struct list *node = arrived.next; node != &arrived; node = node->next) {
		struct parked *p = list_entry(node, struct parked, arrived);

		if (p->shared_key == key && p->keyed.tenant == t)
			return p;
	}
	return NULL;
}

struct shared *shared_arrived(struct xts_tenant *t, uint64_t key, struct parked **sleeps, int *error)
{
	struct parked *p = key ? find(t, key) : NULL;
	struct shared *s = p ? shared_new(&p->tcp, p->state) : NULL;

	if (!p)
		return NULL;
	*sleeps = p;
	*error = !s || s->fd < 0 ? ENOBUFS : registry_add(&s->keyed, t, key, KEYED_LISTENER);
	if (!*error) {
		s->elsewhere = true;
		list_append(&shared_sockets, &s->all);
		return s;
	}
	if (s && s->fd >= 0)
		close(s->fd);
	free(s);
	return NULL;
}

int shared_join_first(struct connection *l, struct shared *s, struct parked *sleeps)
{
	uint64_t before = parked_bytes(sleeps);
	int error = shared_kind(s)->join_first(l, s, &sleeps->own);

	tenant_give(sleeps->keyed.tenant, XTS_USE_KEPT_BYTES, before - parked_bytes(sleeps));
	return error;
}

void shared_has_begun(struct shared *s, struct connection *l)
{
	struct xts_endpoint local = { 0 };

	socket_local(s->fd, &local);
	if (!l->bound_to && local.port)
		(void)connection_note_bound_address(l); /* if there is no memory, it is not registered */
	s->bound_to = l->bound_to ? bound_address_hold(l->bound_to) : NULL;
}
