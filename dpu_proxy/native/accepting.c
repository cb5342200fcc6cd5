/*
 * Connections that a listener with pushed protocols has accepted, until it announces them: handshakes come first (PROTOCOL.md).
 *
 * Such a connection has state CONNECTING and its listener, in whose channel it is; it counts as a connection there. It is on one of
 * the listener's two lists, and as many as that are bounded: more wait in the kernel's own backlog. When its handshake ends
 * well it waits for a post credit of the listener, or is given back for another member if the listener is shared. When it fails, or the listener
 * goes, it is closed, and the host never hears of it.
 */
#include <errno.h>

#include "pushed.h"

#define ACCEPTING_MAX 256u

bool accepting_has_room(const struct connection *l)
{
	return l->pushed->accepting < ACCEPTING_MAX;
}

static void begin(struct connection *l, struct connection *c)
{
	struct pushed *p = l->pushed;

	c->state = CONNECTION_CONNECTING;
	c->accepted = true;
	c->writable = true;
	c->listener = l;
	list_append(&p->shaking, &c->offers);
	p->accepting++;
}

bool accepting_begin(struct connection *l, struct connection *c, struct pushed *p, const struct xts_endpoint *peer)
{
	int r = 0;

	if (!p) {
		r = pushed_copy(&c->pushed, l->pushed, c);
	} else if (!pushed_adopt(c, p)) {
		pushed_free(p);
		r = -ENOBUFS;
	}
	if (r || connection_grant_window(c) < XTS_ULP_WINDOW_MIN) {
		c->worker->stats.refused_limit += !r;
		connection_free(c, true);
		return false;
	}
	c->pushed->peer = *peer;
	for (uint32_t i = 0; !p && i < c->pushed->id_count; i++)
		c->worker->stats.ulp_pushed[c->pushed->ids[i]]++;
	begin(l, c);
	pushed_start(c); /* may be the end of c, or of its handshakes */
	if (c->fd < 0)
		return false;
	if (!c->pushed->ready && !c->pushed->peeking) {
		if (connection_watch(c)) /* its first event goes on with the handshake */
			connection_free(c, true);
		return false;
	}
	if (l->held) {
		accepting_ends(c);
		return true;
	}
	accepting_done(c, 0);
	return false;
}

void accepting_done(struct connection *c, int error)
{
	struct connection *l = c->listener;

	if (error) {
		pushed_fail(c); /* the peer is told, and gets FIN before the socket is closed */
		connection_free(c, false);
		return;
	}
	list_remove(&c->offers);
	list_append(&l->pushed->shaken, &c->offers);
	connection_wake(l);
}

struct connection *accepting_next(struct connection *l)
{
	const struct list *shaken = &l->pushed->shaken;

	return list_empty(shaken) ? NULL : list_entry(shaken->next, struct connection, offers);
}

void accepting_ends(struct connection *c)
{
	list_remove(&c->offers);
	c->listener->pushed->accepting--;
	c->listener = NULL;
}

void accepting_drop(struct connection *l)
{
	struct pushed *p = l->pushed;

	while (!list_empty(&p->shaking))
		connection_free(list_entry(p->shaking.next, struct connection, offers), true);
	while (!list_empty(&p->shaken))
		connection_free(list_entry(p->shaken.next, struct connection, offers), true);
}
