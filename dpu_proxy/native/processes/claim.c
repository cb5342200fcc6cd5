/* Parked connections that a host claims, or takes by their key. From then on they belong to its channel (parked.h). */
#include <errno.h>
#include <sys/epoll.h>

#include "connection/socket_kind.h"
#include "processes/parked.h"
#include "processes/share.h"
#include "pushed/pushed.h"

static struct connection *claim(struct channel *ch, struct parked *p, int *error)
{
	struct connection *c = connection_new(ch, p->tcp.fd, p->tcp.ip_version, error);
	uint64_t kept = parked_bytes(p);

	if (!c)
		return NULL;
	if (!socket_kinds[p->state]->load(c, &p->tcp, p->own)) {
		if (p->watched)
			(void)epoll_ctl(p->keyed.keeper->epoll_fd, EPOLL_CTL_DEL, c->tcp.fd, NULL);
		parked_become_stale(p, kept);
		ch->worker->stats.claims++;
		return c;
	}
	c->tcp = TCP_SIDE_NONE; /* it stays parked */
	connection_free(c, false);
	*error = command_refuse(ch, XTS_REFUSED_WINDOWS);
	return NULL;
}

struct connection *park_claim(struct channel *ch, uint64_t key, int *error)
{
	struct connection *c = NULL;
	struct parked *p;

	registry_lock();
	p = parked_of(registry_find(ch->tenant, key, KEYED_PARKED));
	if (p && !p->returner)
		c = claim(ch, p, error);
	else
		*error = p ? EBUSY : ENOENT;
	registry_unlock();
	if (c)
		parked_taken(c);
	return c;
}

void parked_taken(struct connection *c)
{
	if (connection_watch(c)) /* epoll reports everything that has arrived, and room for what is spilled */
		connection_fail(c, ENOBUFS);
	connection_wake(c);
}

struct connection *parked_take(struct channel *ch, struct keyed *k, uint32_t purpose, struct taken_over *out, int *error)
{
	struct parked *p = parked_of(k);
	struct take_queue *queue = k->queue;
	struct connection *c;

	if (p->returner || !take_queue_is_first(k, ch, purpose)) {
		*error = EBUSY;
		return NULL;
	}
	*out = (struct taken_over){
		.died = p->died,
		.delivered_bytes = p->tcp.received_bytes,
		.accepted_bytes = p->tcp.accepted_bytes,
		.keep_ms = p->keep_ms,
	};
	k->queue = NULL; /* the queue goes with the connection */
	c = claim(ch, p, error);
	if (c)
		out->queue = queue;
	else
		k->queue = queue;
	return c;
}
