/* Why a connection waits: see wait_reasons.h. */
#include "connection/wait_reasons.h"

#include <string.h>

#include "channel/channel.h"

static void add(struct connection_waits *w, enum xts_wait reason, uint64_t ns)
{
	w->ns[reason - 1] += ns;
	w->times[reason - 1]++;
}

static void begin(struct connection_waits *w, enum xts_wait reason, uint64_t now_ns)
{
	w->ns[reason - 1] -= now_ns;
	w->times[reason - 1]++;
}

static void end(struct connection_waits *w, enum xts_wait reason, uint64_t now_ns)
{
	w->ns[reason - 1] += now_ns;
}

void waiting_for(struct connection *c, enum xts_wait_direction direction, enum xts_wait reason)
{
	struct connection_waits *w = &c->waiting;
	enum xts_wait was = c->waits_for[direction];

	if (!XTS_WAITS_MEASURED || was == reason)
		return;
	if (was)
		end(w, was, c->worker->now_ns);
	if (reason)
		begin(w, reason, c->worker->now_ns);
	c->waits_for[direction] = (uint8_t)reason;
}

void waiting_noted(struct connection *c)
{
	if (!XTS_WAITS_MEASURED || c->waits_for_turn)
		return;
	c->waits_for_turn = true;
	begin(&c->waiting, XTS_WAIT_TURN, c->worker->now_ns);
}

void waiting_has_turn(struct connection *c)
{
	if (!c->waits_for_turn)
		return;
	c->waits_for_turn = false;
	end(&c->waiting, XTS_WAIT_TURN, c->worker->now_ns);
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
static void add_ready(const struct connection *c, struct connection_waits *to)
{
	uint64_t all_ns = c->worker->now_ns - c->waiting.ready_ns;
	uint64_t missing_ns = missing_until_now(c->channel) - c->waiting.missing_ns;

	if (missing_ns > all_ns)
		missing_ns = all_ns;
	if (missing_ns)
		add(to, XTS_WAIT_FRAME_CREDITS, missing_ns);
	if (missing_ns < all_ns)
		add(to, XTS_WAIT_TURN, all_ns - missing_ns);
}

void waiting_served(struct connection *c)
{
	if (c->waiting.ready_ns)
		add_ready(c, &c->waiting);
	c->waiting.ready_ns = 0;
}

void waiting_leaves(struct connection *c)
{
	waiting_served(c);
	waiting_for(c, XTS_WAIT_RECEIVING, XTS_WAIT_NONE);
}

void waiting_copy(const struct connection *c, struct xts_waits *out)
{
	struct connection_waits w = c->waiting;
	uint64_t now_ns = c->worker->now_ns;

	for (int i = 0; i < 2; i++)
		if (c->waits_for[i])
			end(&w, c->waits_for[i], now_ns);
	if (c->waits_for_turn)
		end(&w, XTS_WAIT_TURN, now_ns);
	*out = (struct xts_waits){ .now = { c->waits_for[0], c->waits_for[1] } };
	if (w.ready_ns && c->channel) {
		add_ready(c, &w);
		if (c->channel->frames_missing.since_ns && !out->now[XTS_WAIT_RECEIVING])
			out->now[XTS_WAIT_RECEIVING] = XTS_WAIT_FRAME_CREDITS;
	}
	memcpy(out->ns, w.ns, sizeof out->ns);
	memcpy(out->times, w.times, sizeof out->times);
}
