/*
 * The order in which processes that ask for a connection (TAKE) get it: the one that needs it most, and then the one
 * that asked first. TAKE is answered at once, so a host has to repeat it. Without an order, the host that has just
 * given a connection up could take it back, each time, before the other one repeats its TAKE.
 *
 * A host that asks has a place in the queue for WAIT_NS, and keeps it by asking again. So a host that has died, or has
 * given up waiting, delays the others for no longer than that. A connection has only a few places. A host that finds
 * none free, or whose tenant has no budget for them, gets the connection when no host with a place wants it.
 */
#include <stdlib.h>
#include <string.h>

#include "processes/share.h"

#define WAIT_NS 50000000u /* longer than the time between two TAKEs of a host, even if the host has to wait for a CPU */
#define PLACES 8u

struct place {
	const struct channel *channel; /* only compared, never used: it may have ended */
	uint64_t expires_ns;
	uint32_t purpose;
};

struct take_queue {
	uint32_t count;
	struct place places[PLACES]; /* in the order in which they asked */
};

static void remove_at(struct take_queue *q, uint32_t at)
{
	q->count--;
	memmove(&q->places[at], &q->places[at + 1], (q->count - at) * sizeof *q->places);
}

static void expire(struct take_queue *q, uint64_t now_ns)
{
	for (uint32_t i = q->count; i-- > 0;)
		if (q->places[i].expires_ns <= now_ns)
			remove_at(q, i);
}

/* The place of ch, or q->count. */
static uint32_t find(const struct take_queue *q, const struct channel *ch)
{
	uint32_t i = 0;

	while (i < q->count && q->places[i].channel != ch)
		i++;
	return i;
}

static struct take_queue *make(struct keyed *k)
{
	if (!tenant_take(k->tenant, XTS_USE_KEPT_BYTES, sizeof *k->queue))
		return NULL;
	k->queue = calloc(1, sizeof *k->queue);
	if (!k->queue)
		tenant_give(k->tenant, XTS_USE_KEPT_BYTES, sizeof *k->queue);
	return k->queue;
}

/* All places are taken: the last one whose purpose is less than this loses its place. */
static bool make_room(struct take_queue *q, uint32_t purpose)
{
	uint32_t least = q->count - 1;

	for (uint32_t i = q->count; i-- > 0;)
		if (q->places[i].purpose < q->places[least].purpose)
			least = i;
	if (q->places[least].purpose >= purpose)
		return false;
	remove_at(q, least);
	return true;
}

void take_queue_wait(struct keyed *k, const struct channel *ch, uint32_t purpose)
{
	struct take_queue *q = k->queue ? k->queue : make(k);
	uint64_t now_ns = ch->worker->now_ns;
	uint32_t at;

	if (!q)
		return;
	expire(q, now_ns);
	at = find(q, ch);
	if (at == PLACES) {
		if (!make_room(q, purpose))
			return;
		at = q->count;
	}
	if (at == q->count)
		q->count++;
	q->places[at] = (struct place){ .channel = ch, .expires_ns = now_ns + WAIT_NS, .purpose = purpose };
}

bool take_queue_is_first(struct keyed *k, const struct channel *ch, uint32_t purpose)
{
	struct take_queue *q = k->queue;
	uint32_t own;

	if (!q)
		return true;
	expire(q, ch->worker->now_ns);
	own = find(q, ch);
	for (uint32_t i = 0; i < q->count; i++)
		if (i != own && (q->places[i].purpose > purpose || (q->places[i].purpose == purpose && i < own)))
			return false;
	return true;
}

void take_queue_served(struct keyed *k, const struct channel *ch)
{
	struct take_queue *q = k->queue;
	uint32_t at = q ? find(q, ch) : 0;

	if (!q)
		return;
	if (at < q->count)
		remove_at(q, at);
	if (q->count)
		return;
	k->queue = NULL;
	take_queue_free(q, k->tenant);
}

void take_queue_free(struct take_queue *q, struct xts_tenant *t)
{
	if (q)
		tenant_give(t, XTS_USE_KEPT_BYTES, sizeof *q);
	free(q);
}
