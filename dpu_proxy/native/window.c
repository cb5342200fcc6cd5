/* What connections may make the proxy keep: windows (post credits), and memory of pushed protocols; their tenant's limits of both. */
#include "channel.h"

#define WINDOW_LEAST_BYTES 4096u /* a newcomer with less is not worth an announcement */

bool channel_window_left(const struct channel *ch)
{
	return tenant_left(ch->tenant, XTS_USE_SPILL_BYTES) >= WINDOW_LEAST_BYTES;
}

static void count_window(struct connection *c, uint32_t bytes)
{
	c->window += bytes;
	c->channel->window_bytes += bytes;
	c->worker->stats.window_bytes += bytes;
}

void connection_return_window(struct connection *c)
{
	tenant_give(c->tenant, XTS_USE_SPILL_BYTES, c->window);
	c->channel->window_bytes -= c->window;
	c->worker->stats.window_bytes -= c->window;
	c->window = 0;
}

/* A window of wanted bytes, or what the tenant's limit leaves of it; false when that is less than least. */
static bool take_window(struct connection *c, uint32_t wanted, uint32_t least)
{
	uint32_t window = wanted;

	while (!tenant_take(c->tenant, XTS_USE_SPILL_BYTES, window)) {
		uint64_t left = tenant_left(c->tenant, XTS_USE_SPILL_BYTES);

		if (left < least) {
			c->worker->stats.refused_limit++;
			return false;
		}
		window = left < wanted ? (uint32_t)left : wanted;
	}
	count_window(c, window);
	xts_credit_grant_init(&c->grant, window);
	return true;
}

uint32_t connection_grant_window(struct connection *c)
{
	if (!c->window && !take_window(c, c->tenant->window_bytes, 2))
		return 0;
	return c->window; /* a second connect on the same socket keeps its window */
}

bool connection_grant_claimed(struct connection *c, uint32_t spilled)
{
	uint32_t window = c->tenant->window_bytes;

	if (!take_window(c, window > spilled ? window : spilled, spilled > 2 ? spilled : 2))
		return false;
	c->grant.outstanding -= spilled;
	return true;
}

/* Half of the budget stays for connections to come: without windows of their own they would be refused. */
void connection_grow_window(struct connection *c)
{
	uint32_t window_max = c->tenant->window_bytes_max;
	uint32_t growth = window_max > c->window ? window_max - c->window : 0;
	uint64_t used = tenant_used(c->tenant, XTS_USE_SPILL_BYTES);

	if (growth > c->window)
		growth = c->window;
	if (!growth || used + growth > (used + tenant_left(c->tenant, XTS_USE_SPILL_BYTES)) / 2 ||
	    !tenant_take(c->tenant, XTS_USE_SPILL_BYTES, growth))
		return;
	xts_credit_grow(&c->grant, growth);
	count_window(c, growth);
}

bool connection_count_memory(struct connection *c, int64_t bytes)
{
	struct worker_state *w = c->worker;

	enum xts_resource resource = c->orphan ? XTS_USE_ORPHAN_BYTES : XTS_USE_ULP_BYTES;

	if (bytes > 0 && !tenant_take(c->tenant, resource, (uint64_t)bytes)) {
		w->stats.refused_limit++;
		return false;
	}
	if (bytes < 0)
		tenant_give(c->tenant, resource, (uint64_t)-bytes);
	if (c->channel)
		c->channel->ulp_bytes += (uint64_t)bytes;
	w->stats.ulp_bytes += (uint64_t)bytes;
	return true;
}
