/*
 * What holds of a worker after every operation, and the rounds it makes.
 */
#ifndef XTS_FUZZ_WORKER_CHECKS_H
#define XTS_FUZZ_WORKER_CHECKS_H

#include "worker_scene.h"

static void check_offers(const struct connection *l)
{
	uint32_t offers = 0;

	if (l->state != CONNECTION_LISTENER)
		return;
	for (const struct list *n = l->offers.next; n != &l->offers; n = n->next, offers++) {
		const struct connection *c = list_entry(n, struct connection, offers);

		ENSURE(c->listener == l && c->announced && c->channel == l->channel);
	}
	ENSURE(!l->shares || offers == l->shares->offer_count);
}

/* What waits is what the runs say, if there are any. */
static void check_outgoing(const struct outgoing *o)
{
	uint32_t bytes = 0, pdus = 0;

	for (uint32_t i = 0; i < outgoing_runs(o); i++) {
		const struct run *r = &o->runs->run[(o->runs->first + i) & (o->runs->room - 1)];

		bytes += r->bytes;
		pdus += r->mark.pdu;
	}
	ENSURE((!outgoing_runs(o) || bytes == o->spill.bytes) && pdus == (o->runs ? o->runs->pdus : 0));
}

static void check_pushed(const struct connection *c)
{
	const struct pushed *p = c->tcp.pushed;

	if (!p)
		return;
	ENSURE(p->connection == c);
	ENSURE(!p->ready || p->started);
	ENSURE(!p->handshaking || (p->started && !p->ready));
}

/* What must hold between any two operations. */
static void check(struct worker_state *w)
{
	struct xts_worker_stats stats;
	const struct list *node;
	uint64_t orphan_bytes = 0;
	uint32_t orphans = 0;

	for (node = w->channels.next; node != &w->channels; node = node->next) {
		const struct channel *ch = list_entry(node, struct channel, member);
		uint64_t ulp_bytes = 0;

		ENSURE(ch->reply_count <= WINDOW);
		ENSURE(ch->batch_used == 0);
		for (const struct list *n = ch->connections.next; n != &ch->connections; n = n->next) {
			const struct connection *c = list_entry(n, struct connection, member);

			ENSURE(outgoing_credits(&c->tcp.out) <= c->window);
			ENSURE(c->held <= XTS_CREDITS_MAX);
			ENSURE(c->gathered_first == BATCH_NONE && !c->dirty);
			ENSURE(!c->shared || c->state == CONNECTION_LISTENER || c->state == CONNECTION_IDLE ||
			       c->state == CONNECTION_DATAGRAM);
			connection_check(c);
			check_offers(c);
			check_outgoing(&c->tcp.out);
			check_pushed(c);
			ulp_bytes += pushed_memory(c->tcp.pushed);
			if (c->datagrams && !c->close_reply && !ch->ending)
				ENSURE(xts_credit_buffered(&c->grant) == c->datagrams->waiting_credits);
			if (c->window && !ch->ending && !c->tcp.error && c->state == CONNECTION_ESTABLISHED) {
				/* The law: granted and not received + unadvertised + buffered is the window. */
				ENSURE(c->grant.window == c->window);
				ENSURE(xts_credit_buffered(&c->grant) == outgoing_credits(&c->tcp.out));
			}
		}
		ENSURE(ch->ulp_bytes == ulp_bytes);
	}
	for (node = w->unowned.next; node != &w->unowned; node = node->next) {
		const struct unowned *u = list_entry(node, struct unowned, member);

		for (const struct list *n = u->orphans.next; n != &u->orphans; n = n->next, orphans++) {
			const struct connection *c = list_entry(n, struct connection, member);

			connection_check(c);
			ENSURE(c->orphan && c->as_orphan->unowned == u && !c->channel && !c->window);
			orphan_bytes += c->tcp.out.spill.bytes;
		}
	}
	ENSURE(w->stats.orphans == orphans && w->stats.spill_bytes - orphan_bytes <= w->stats.window_bytes);
	registry_stats(w, &stats);
	ENSURE(stats.parked_connections <= tenant_used(tenant, XTS_USE_KEPT));
	ENSURE(stats.kept_listeners <= tenant_used(tenant, XTS_USE_NAMES));
	for (unsigned i = 0; i < XTS_RESOURCES; i++)
		ENSURE(i == XTS_USE_CPU_NS || tenant_used(tenant, i) <= tenant_limit(tenant, i));
}

static void rounds(struct scene *s, unsigned count)
{
	while (count--) {
		for (unsigned i = 0; i < WORKERS; i++) {
			work(&s->workers[i]);
		}
	}
	for (unsigned i = 0; i < WORKERS; i++)
		check(&s->workers[i].state);
}

#endif
