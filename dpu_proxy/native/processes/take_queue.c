/*
 * The order in which processes that ask for a connection (TAKE) get it. TAKE is answered at once, so a host has to
 * repeat it. Without an order, the host that has just given a connection up could take it back, each time, before the
 * other one repeats its TAKE.
 *
 * A host that asks has a place in the queue. Of hosts that have not been passed over the one goes first that needs the
 * connection most, and then the one that asked first. A host is *passed over* if another one gets the connection. From
 * then on it goes before all that have not been, in the order in which they asked, whatever they need it for: else a
 * host that sends all the time would keep one that wants to receive waiting for ever.
 *
 * A place keeps the others waiting for WAIT_NS after the host has asked, and then it is *late*: a host that has died,
 * or has given up waiting, delays the others for no longer than that. But a host may be late because it is stopped, or
 * gets little of a core. If it is passed over while it is late, and asks again, it is waited for twice as long as it
 * took. Who does not ask for LEFT_NS has left.
 *
 * A connection has only a few places. A host that finds none free, or whose tenant has no budget for them, gets the
 * connection when no host with a place wants it.
 */
#include <stdlib.h>
#include <string.h>

#include "processes/share.h"

#define WAIT_NS 50000000u   /* longer than the time between two TAKEs of a host, even if it has to wait for a CPU */
#define LEFT_NS 1000000000u /* also the longest time that others wait for a host that is slow */
#define PLACES 8u

struct place {
	const struct channel *channel; /* only compared, never used: it may have ended */
	uint64_t asked_ns;
	uint32_t wait_ns; /* for so long after that the others wait */
	uint32_t purpose;
	bool passed, passed_late;
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

static void forget_those_that_left(struct take_queue *q, uint64_t now_ns)
{
	for (uint32_t i = q->count; i-- > 0;)
		if (now_ns - q->places[i].asked_ns >= LEFT_NS)
			remove_at(q, i);
}

static bool is_late(const struct place *p, uint64_t now_ns)
{
	return now_ns - p->asked_ns >= p->wait_ns;
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

/* All places are taken: one that is late loses its place, or else the last one whose purpose is less than this. */
static bool make_room(struct take_queue *q, uint32_t purpose, uint64_t now_ns)
{
	uint32_t least = q->count - 1;

	for (uint32_t i = q->count; i-- > 0;) {
		const struct place *p = &q->places[i], *than = &q->places[least];
		bool late = is_late(p, now_ns), than_late = is_late(than, now_ns);

		if (late != than_late ? late : p->purpose < than->purpose)
			least = i;
	}
	if (!is_late(&q->places[least], now_ns) && q->places[least].purpose >= purpose)
		return false;
	remove_at(q, least);
	return true;
}

/* The host with this place asks again: how long the others wait for the next time. */
static uint32_t wait_for_next(const struct place *p, uint64_t now_ns)
{
	uint64_t twice_ns = 2 * (now_ns - p->asked_ns);

	if (!p->passed_late || twice_ns <= p->wait_ns)
		return p->wait_ns;
	return twice_ns < LEFT_NS ? (uint32_t)twice_ns : LEFT_NS;
}

void take_queue_wait(struct keyed *k, const struct channel *ch, uint32_t purpose)
{
	struct take_queue *q = k->queue ? k->queue : make(k);
	uint64_t now_ns = ch->worker->now_ns;
	struct place *p;
	uint32_t at;

	if (!q)
		return;
	forget_those_that_left(q, now_ns);
	at = find(q, ch);
	if (at == PLACES) {
		if (!make_room(q, purpose, now_ns))
			return;
		at = q->count;
	}
	p = &q->places[at];
	if (at == q->count) {
		*p = (struct place){ .channel = ch, .wait_ns = WAIT_NS };
		q->count++;
	} else {
		p->wait_ns = wait_for_next(p, now_ns);
		p->passed_late = false;
	}
	p->asked_ns = now_ns;
	p->purpose = purpose;
}

/* Does the host of place i go before the one of place own, or before one without a place (q->count)? */
static bool goes_before(const struct take_queue *q, uint32_t i, uint32_t own, uint32_t purpose)
{
	const struct place *p = &q->places[i];
	bool passed = own < q->count && q->places[own].passed;

	if (p->passed != passed)
		return p->passed;
	return i < own ? passed || p->purpose >= purpose : !passed && p->purpose > purpose;
}

bool take_queue_is_first(struct keyed *k, const struct channel *ch, uint32_t purpose)
{
	struct take_queue *q = k->queue;
	uint64_t now_ns = ch->worker->now_ns;
	uint32_t own;

	if (!q)
		return true;
	forget_those_that_left(q, now_ns);
	own = find(q, ch);
	for (uint32_t i = 0; i < q->count; i++)
		if (i != own && !is_late(&q->places[i], now_ns) && goes_before(q, i, own, purpose))
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
	for (uint32_t i = 0; i < q->count; i++) {
		q->places[i].passed = true;
		q->places[i].passed_late |= is_late(&q->places[i], ch->worker->now_ns);
	}
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
