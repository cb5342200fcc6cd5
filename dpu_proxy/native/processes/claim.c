/* Parked connections that a host claims, or takes by their key. From then on they belong to its channel (parked.h). */
#include <errno.h>
#include <inttypes.h>
#include <sys/epoll.h>

#include "connection/socket_kind.h"
#include "processes/held_arrived.h"
#include "processes/parked.h"
#include "processes/share.h"
#include "pushed/pushed.h"

static struct connection *claim(struct channel *ch, struct parked *p, int *error)
{
	struct connection *c = (p->moved ? connection_new_moved : connection_new)(ch, p->tcp.fd, p->tcp.ip_version,
										  error);
	uint64_t kept = parked_bytes(p);

	if (!c)
		return NULL;
	if (!socket_kinds[p->state]->load(c, &p->tcp, p->own)) {
		if (p->watched)
			(void)epoll_ctl(p->keyed.keeper->epoll_fd, EPOLL_CTL_DEL, c->tcp.fd, NULL);
		held_is_claimed(p, c);
		parked_become_stale(p, kept);
		ch->worker->stats.claims++;
		return c;
	}
	c->tcp = TCP_SIDE_NONE; /* it stays parked */
	connection_free(c, false);
	*error = command_refuse(ch, XTS_REFUSED_WINDOWS);
	return NULL;
}

/* One that has waited in another way has bytes of which the counts do not tell. */
static bool was_recovered(const struct parked *p)
{
	return p->moved && !outgoing_runs(&p->tcp.out);
}

/* What was found is for its protocol. */
static bool give_to_protocol(struct outgoing *o)
{
	const struct run all = { .bytes = o->spill.bytes };

	if (!all.bytes)
		return true;
	if (runs_make_room(&o->runs, 1))
		return false;
	runs_append(o->runs, &all);
	return true;
}

/* The same of one whose protocols were written down: what the host has sent since waits in runs. */
static bool is_whole(struct parked *p, const struct claim_counts *counts, uint64_t to_host, uint64_t to_tcp)
{
	if (p->heard.torn || to_host || to_tcp != p->tcp.out.spill.bytes ||
	    (p->tcp.fin_done && (outgoing_waits(&p->tcp.out) || !(counts->fin_sent || p->heard.close))))
		return false;
	p->tcp.fin_wanted = counts->fin_sent || p->tcp.fin_done;
	return true;
}

/* Its process has died. Between what TCP has and what its host has may be bytes that were found: those that the host is
 * to be sent are `returned`, those that it has sent wait for TCP, behind some that TCP has (replay.h). With the lock
 * held. True: now nothing is missing. */
static bool make_whole(struct parked *p, const struct claim_counts *counts)
{
	uint64_t to_host = p->tcp.received_bytes - counts->received_bytes,
		 to_tcp = counts->sent_bytes - p->tcp.accepted_bytes;

	if (p->state != CONNECTION_ESTABLISHED)
		return true;
	if (p->heard.kept)
		return is_whole(p, counts, to_host, to_tcp);
	if (!was_recovered(p) || (to_host && to_host != returned_bytes(&p->tcp.returned)) ||
	    (p->tcp.fin_done && (to_tcp || !(counts->fin_sent || p->heard.close))) || !parked_join_spilled(p, to_tcp))
		return false;
	if (!to_host)
		returned_free(&p->tcp.returned, p->keyed.tenant);
	p->tcp.fin_wanted = counts->fin_sent || p->tcp.fin_done;
	return !p->tcp.pushed || give_to_protocol(&p->tcp.out);
}

struct connection *park_claim(struct channel *ch, uint64_t key, const struct claim_counts *counts,
			      struct parked_facts *facts, int *error)
{
	struct connection *c = NULL;
	struct parked *p;

	registry_lock();
	p = parked_of(registry_find(ch->tenant, key, KEYED_PARKED));
	if (p && facts && p->moved)
		*facts = list_entry(p, struct parked_moved, parked)->facts;
	if (p && counts && !p->returner && !make_whole(p, counts)) {
		channel_log(ch,
			    "a connection is torn: to its host %" PRIu64 " bytes, found %" PRIu64 "; to TCP %" PRIu64
			    ", found %u and %u",
			    p->tcp.received_bytes - counts->received_bytes, returned_bytes(&p->tcp.returned),
			    counts->sent_bytes - p->tcp.accepted_bytes, parked_spilled_bytes(p), p->tcp.out.spill.bytes);
		ch->worker->stats.torn++; /* it is reset when the host has claimed all */
		*error = ECONNRESET;
	} else if (p && !p->returner)
		c = claim(ch, p, error);
	else
		*error = p ? EBUSY : ENOENT;
	registry_unlock();
	if (c)
		parked_taken(c);
	if (c && counts && c->state == CONNECTION_ESTABLISHED && !outgoing_waits(&c->tcp.out))
		connection_drained(c); /* FIN may not have been sent */
	ch->worker->stats.resumed += c && counts;
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
