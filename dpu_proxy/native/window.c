/* What connections may make the proxy keep: windows (post credits), and memory of pushed protocols; the channel's limits of both. */
#include "channel.h"

bool channel_window_left(const struct channel *ch)
{
	return ch->window_bytes + 4096 <= ch->worker->config.limits.spill_bytes;
}

static void count_window(struct connection *c, uint32_t bytes)
{
	c->window += bytes;
	c->channel->window_bytes += bytes;
	c->worker->stats.window_bytes += bytes;
}

/* A window of wanted bytes, or what the channel's limit leaves of it; false when that is less than least. */
static bool take_window(struct connection *c, uint32_t wanted, uint32_t least)
{
	const struct channel *ch = c->channel;
	const struct xts_limits *limits = &c->worker->config.limits;
	uint64_t left = limits->spill_bytes > ch->window_bytes ? limits->spill_bytes - ch->window_bytes : 0;
	uint32_t window = left < wanted ? (uint32_t)left : wanted;

	if (window < least) {
		c->worker->stats.refused_limit++;
		return false;
	}
	count_window(c, window);
	xts_credit_grant_init(&c->grant, window);
	return true;
}

uint32_t connection_grant_window(struct connection *c)
{
	if (!c->window && !take_window(c, c->worker->config.limits.window_bytes, 2))
		return 0;
	return c->window; /* a second connect on the same socket keeps its window */
}

bool connection_grant_claimed(struct connection *c, uint32_t spilled)
{
	uint32_t window = c->worker->config.limits.window_bytes;

	if (!take_window(c, window > spilled ? window : spilled, spilled > 2 ? spilled : 2))
		return false;
	c->grant.outstanding -= spilled;
	return true;
}

/* Half of the budget stays for connections to come: without windows of their own they would be refused. */
void connection_grow_window(struct connection *c)
{
	const struct xts_limits *limits = &c->worker->config.limits;
	uint32_t growth = limits->window_bytes_max > c->window ? limits->window_bytes_max - c->window : 0;

	if (growth > c->window)
		growth = c->window;
	if (!growth || c->channel->window_bytes + growth > limits->spill_bytes / 2)
		return;
	xts_credit_grow(&c->grant, growth);
	count_window(c, growth);
}

bool connection_count_memory(struct connection *c, int64_t bytes)
{
	struct worker_state *w = c->worker;
	struct channel *ch = c->channel;

	if (bytes > 0 && (!ch || ch->ulp_bytes + (uint64_t)bytes > w->config.limits.ulp_bytes)) {
		w->stats.refused_limit++;
		return false;
	}
	if (ch)
		ch->ulp_bytes += (uint64_t)bytes;
	w->stats.ulp_bytes += (uint64_t)bytes;
	return true;
}
