/* Parked connections that a host claims, or takes by their key. From then on they belong to its channel (parked.h). */
#include <errno.h>
#include <sys/epoll.h>

#include "addresses/socket_address.h"
#include "processes/parked.h"
#include "processes/share.h"
#include "pushed/pushed.h"

/* Moves the TCP side of p to c, which has its window and its protocols. */
static void give_to(struct parked *p, struct connection *c)
{
	struct worker_state *keeper = p->keyed.keeper;
	struct xts_endpoint peer;

	if (p->watched)
		(void)epoll_ctl(keeper->epoll_fd, EPOLL_CTL_DEL, p->fd, NULL);
	connection_enter(c, CONNECTION_ESTABLISHED);
	c->accepted = p->accepted;
	c->error = p->error;
	c->readable = p->error || p->pushed; /* layers may hold bytes that epoll does not report */
	c->returned = p->returned;
	p->returned = (struct returned){ 0 };
	c->readable |= c->returned.last != NULL;
	c->kernel_send = p->kernel_send;
	c->kernel_receive = p->kernel_receive;
	p->kernel_send = p->kernel_receive = 0;
	parked_become_stale(p); /* before c gets the bytes: this function ends their count */
	c->out = p->out;
	c->worker->stats.spill_bytes += c->out.spill.bytes;
	c->channel->spill_bytes += c->out.spill.bytes;
	c->worker->stats.claims++;
	socket_peer(c->fd, &peer);
	closed_begin(c, XTS_BEGUN_CLAIM, &peer);
}

static struct connection *claim(struct channel *ch, struct parked *p, int *error)
{
	struct connection *c = connection_new(ch, p->fd, p->ip_version, error);

	if (!c)
		return NULL;
	if (connection_grant_claimed(c, outgoing_credits(&p->out)) &&
	    (!p->pushed || (c->window >= XTS_ULP_WINDOW_MIN && pushed_adopt(c, p->pushed)))) {
		give_to(p, c);
		return c;
	}
	c->fd = -1; /* it stays parked */
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
	if (p)
		c = claim(ch, p, error);
	else
		*error = ENOENT;
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
	*out = p->last;
	k->queue = NULL; /* the queue goes with the connection */
	c = claim(ch, p, error);
	if (c)
		out->queue = queue;
	else
		k->queue = queue;
	return c;
}
