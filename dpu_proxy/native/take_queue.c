/*
 * In what order a connection goes to those who ask for it (TAKE): who needs it most, and then who asked first. An
 * answer to TAKE never waits, so its host has to ask again; without an order the host that has just given a connection
 * up could have it back before the one it gave it up for asks again, each time.
 *
 * Who asks has a place for WAIT_NS, and keeps it by asking again. So a host that has died, or has given up waiting,
 * holds the others up for no longer than that. A connection has a few places. Who finds none free, or whose tenant has
 * no budget for them, gets the connection when nobody who has a place wants it.
 */
#include <stdlib.h>
#include <string.h>

#include "share.h"

#define WAIT_NS 50000000u /* longer than a host waits between two TAKEs, also where it has to wait for a CPU */
#define PLACES 8u

struct place {
	const struct channel *channel; /* to be compared only: it may have ended */
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

/* Its place, or q->count. */
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

/* All places are taken: the last that asks for less than this loses its own. */
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
