/* Why a connection waits: see waiting.h. */
#include "waiting.h"

#include "channel.h"

void waiting_for(struct connection *c, enum xts_wait_direction direction, enum xts_wait reason)
{
	if (XTS_WAITS_MEASURED && c->waiting.waits.now[direction] != reason)
		xts_wait_enter(&c->waiting.waits, direction, reason, c->worker->now_ns);
}

void waiting_noted(struct connection *c)
{
	if (XTS_WAITS_MEASURED && !c->waiting.noted_ns)
		c->waiting.noted_ns = c->worker->now_ns;
}

void waiting_has_turn(struct connection *c)
{
	if (!c->waiting.noted_ns)
		return;
	xts_wait_add(&c->waiting.waits, XTS_WAIT_TURN, c->worker->now_ns - c->waiting.noted_ns);
	c->waiting.noted_ns = 0;
}

static uint64_t missing_until_now(const struct channel *ch)
{
	uint64_t since_ns = ch->frames_missing.since_ns;

	return ch->frames_missing.ns + (since_ns ? ch->worker->now_ns - since_ns : 0);
}

void waiting_frames_missing(struct channel *ch, bool missing)
{
	if (!XTS_WAITS_MEASURED || missing == (ch->frames_missing.since_ns != 0))
		return;
	ch->frames_missing.ns = missing_until_now(ch);
	ch->frames_missing.since_ns = missing ? ch->worker->now_ns : 0;
}

void waiting_ready(struct connection *c)
{
	if (!XTS_WAITS_MEASURED)
		return;
	c->waiting.ready_ns = c->worker->now_ns;
	c->waiting.missing_ns = missing_until_now(c->channel);
}

/* Adds the time on the ready list. */
static void add_ready(const struct connection *c, struct xts_waits *to)
{
	uint64_t all_ns = c->worker->now_ns - c->waiting.ready_ns;
	uint64_t missing_ns = missing_until_now(c->channel) - c->waiting.missing_ns;

	if (missing_ns > all_ns)
		missing_ns = all_ns;
	if (missing_ns)
		xts_wait_add(to, XTS_WAIT_FRAME_CREDITS, missing_ns);
	if (missing_ns < all_ns)
		xts_wait_add(to, XTS_WAIT_TURN, all_ns - missing_ns);
}

void waiting_served(struct connection *c)
{
	if (c->waiting.ready_ns)
		add_ready(c, &c->waiting.waits);
	c->waiting.ready_ns = 0;
}

void waiting_leaves(struct connection *c)
{
	waiting_served(c);
	waiting_for(c, XTS_WAIT_RECEIVING, XTS_WAIT_NONE);
}

void waiting_copy(const struct connection *c, struct xts_waits *out)
{
	uint64_t now_ns = c->worker->now_ns;

	*out = c->waiting.waits;
	for (int i = 0; i < 2; i++) {
		if (out->now[i])
			out->ns[out->now[i] - 1] += now_ns - out->since_ns[i];
		out->since_ns[i] = 0;
	}
	if (c->waiting.noted_ns)
		xts_wait_add(out, XTS_WAIT_TURN, now_ns - c->waiting.noted_ns);
	if (!c->waiting.ready_ns || !c->channel)
		return;
	add_ready(c, out);
	if (c->channel->frames_missing.since_ns && !out->now[XTS_WAIT_RECEIVING])
		out->now[XTS_WAIT_RECEIVING] = XTS_WAIT_FRAME_CREDITS;
}
