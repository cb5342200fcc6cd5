/* The rate of a connection: see paced.h. */
#include "connection/paced.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "connection/connection.h"
#include "tenants/pacer.h"
#include "worker/timer.h"

/* Few connections have one. */
struct paced {
	struct timer timer; /* set while it waits */
	struct connection *connection;
	struct pacer own;   /* of the socket itself */
	uint64_t permitted; /* bytes, from may_ns on */
	uint64_t may_ns;
	bool more; /* it wanted more than that */
};

/* A worker that is late while data waits makes up for this much, besides PACER_CATCH_UP_NS: no pause was the program's. */
#define LATE_NS 100000000u

static void expired(struct timer *timer)
{
	connection_note(list_entry(timer, struct paced, timer)->connection, EPOLLOUT);
}

/* NULL: there is no memory for a permit, and the connection goes on without. */
static struct paced *paced_of(struct connection *c)
{
	if (c->paced)
		return c->paced;
	c->paced = calloc(1, sizeof *c->paced);
	if (!c->paced)
		return NULL;
	c->paced->timer.expired = expired;
	c->paced->connection = c;
	return c->paced;
}

bool paced_is(const struct connection *c)
{
	return pacer_rate(&c->tenant->pacer) || (c->paced && pacer_rate(&c->paced->own));
}

static void reserve(struct paced *p, struct pacer *from, uint64_t bytes, uint64_t now_ns)
{
	uint64_t may_ns = pacer_reserve(from, bytes, now_ns);

	if (may_ns > p->may_ns)
		p->may_ns = may_ns;
}

/* The time from which a connection asks for its next permit: now, or when the one before came due, if there has been
 * data for the next one since. */
static uint64_t asks_ns(const struct paced *p, uint64_t now_ns)
{
	if (!p->more || p->may_ns >= now_ns)
		return now_ns;
	return p->may_ns + LATE_NS < now_ns ? now_ns - LATE_NS : p->may_ns;
}

bool paced_may(struct connection *c, uint32_t least, uint32_t *bytes)
{
	uint64_t now_ns = c->worker->now_ns, wanted = *bytes;
	uint32_t chunk = pacer_chunk(pacer_rate(&c->tenant->pacer));
	struct paced *p = paced_is(c) && *bytes ? paced_of(c) : NULL;

	if (!p)
		return true;
	if (p->permitted < least) {
		uint64_t since_ns = asks_ns(p, now_ns);

		wanted = wanted < chunk ? wanted : chunk;
		wanted = (wanted > least ? wanted : least) - p->permitted;
		reserve(p, &c->tenant->pacer, wanted, since_ns);
		reserve(p, &p->own, wanted, since_ns);
		p->permitted += wanted;
		p->more = p->permitted < *bytes;
	}
	if (p->may_ns > now_ns) {
		if (!timer_is_set(&p->timer))
			c->worker->stats.paced++;
		timer_set(&c->worker->timers, &p->timer, p->may_ns);
		return false;
	}
	*bytes = *bytes < p->permitted ? *bytes : (uint32_t)p->permitted;
	return true;
}

void paced_sent(struct connection *c, uint32_t bytes)
{
	if (c->paced)
		c->paced->permitted -= bytes < c->paced->permitted ? bytes : c->paced->permitted;
}

/* A rate of 0 is the lowest there is, as in the kernel. */
uint64_t paced_asked(int fd)
{
	unsigned long bytes_s = ULONG_MAX; /* no limit */
	socklen_t length = sizeof bytes_s;

	if (getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_s, &length) || bytes_s == ULONG_MAX)
		return 0;
	return bytes_s ? bytes_s : 1;
}

void paced_learn(struct connection *c)
{
	uint64_t bytes_s = paced_asked(c->tcp.fd);
	struct paced *p = c->paced || bytes_s ? paced_of(c) : NULL; /* most never have a rate */

	if (p)
		pacer_configure(&p->own, bytes_s);
}

void paced_free(struct connection *c)
{
	if (!c->paced)
		return;
	timer_cancel(&c->paced->timer);
	free(c->paced);
	c->paced = NULL;
}
