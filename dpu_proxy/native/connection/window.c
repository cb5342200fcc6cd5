/* Limits what connections may make the proxy keep: windows (post credits) and memory of pushed protocols, each by the
 * tenant's limit. */
#include "channel/channel.h"

#define WINDOW_LEAST_BYTES 4096u /* a connection with a smaller window is not worth announcing */
#define WINDOW_SHARE_MIN 16384u

bool channel_window_left(const struct channel *ch)
{
	return tenant_left(ch->tenant, XTS_USE_SPILL_BYTES) >= WINDOW_LEAST_BYTES;
}

static void count_window(struct connection *c, int64_t bytes)
{
	c->window = (uint32_t)(c->window + bytes);
	if (c->channel)
		c->channel->window_bytes += (uint64_t)bytes;
	c->worker->stats.window_bytes += (uint64_t)bytes;
}

/* Half of the budget stays for later connections, which would be refused without a window. */
static bool may_be_large(const struct connection *c, uint32_t more)
{
	uint64_t used = tenant_used(c->tenant, XTS_USE_SPILL_BYTES);

	return used + more <= (used + tenant_left(c->tenant, XTS_USE_SPILL_BYTES)) / 2;
}

/* The window for a new connection: three times its share of what is left if all allowed connections came, so that the
 * last ones get a window, too. */
static uint32_t newcomers_share(const struct connection *c, uint32_t wanted)
{
	uint64_t connections = tenant_limit(c->tenant, XTS_USE_CONNECTIONS);
	uint64_t share = tenant_left(c->tenant, XTS_USE_SPILL_BYTES) / (connections > 3 ? connections / 3 : 1);

	if (wanted > c->tenant->window_bytes && may_be_large(c, wanted))
		return wanted; /* its program has asked for it */
	if (share < WINDOW_SHARE_MIN)
		share = WINDOW_SHARE_MIN;
	return share < wanted ? (uint32_t)share : wanted;
}

void connection_return_window(struct connection *c)
{
	tenant_give(c->tenant, XTS_USE_SPILL_BYTES, c->window);
	c->channel->window_bytes -= c->window;
	c->worker->stats.window_bytes -= c->window;
	c->window = 0;
}

/* Takes a window of wanted bytes, or what the tenant's limit leaves of it; false when that is less than least. */
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

/* The same for what has had a window before: it exists, so it gets the least, whatever the limit leaves. */
static void take_window_again(struct connection *c, uint32_t wanted, uint32_t least)
{
	if (tenant_left(c->tenant, XTS_USE_SPILL_BYTES) >= least && take_window(c, wanted, least))
		return;
	tenant_take_anyway(c->tenant, XTS_USE_SPILL_BYTES, least);
	count_window(c, least);
	xts_credit_grant_init(&c->grant, least);
}

uint32_t connection_grant_window(struct connection *c)
{
	if (!c->window && !take_window(c, newcomers_share(c, buffers_begin(c)), 2))
		return 0;
	return c->window; /* a second connect on the same socket keeps its window */
}

bool connection_grant_datagrams(struct connection *c, uint32_t before, uint32_t waiting)
{
	uint32_t wanted = newcomers_share(c, XTS_DATAGRAM_WINDOW_DEFAULT);
	uint32_t largest = UINT16_MAX + XTS_DATAGRAM_CONTROL_BYTES_MAX + XTS_DATAGRAM_CREDITS;
	uint32_t least = waiting > XTS_DATAGRAM_WINDOW_MIN ? waiting : XTS_DATAGRAM_WINDOW_MIN;

	if (wanted < before)
		wanted = before;
	if (wanted < least)
		wanted = least;
	if (before)
		take_window_again(c, wanted, least);
	else if (!take_window(c, wanted, least))
		return false;
	c->grant.outstanding -= waiting;
	/* A datagram is not divided: the credits kept back must leave room for the largest one, or it would wait for
	 * ever. */
	if (c->grant.limit > c->window - largest)
		c->grant.limit = c->window - largest;
	return true;
}

/* All connections of a process come at once, after an upgrade or a crash. With a whole window each, those that had
 * found room as newcomers would find none: of 8,000, 1,446 were reset. */
void connection_grant_claimed(struct connection *c, uint32_t spilled, uint32_t least)
{
	uint32_t window = newcomers_share(c, c->tenant->window_bytes);

	if (least < spilled)
		least = spilled;
	take_window_again(c, window > least ? window : least, least);
	c->grant.outstanding -= spilled;
	buffers_claimed(c);
}

void connection_grow_window(struct connection *c)
{
	uint32_t most = c->window < c->tenant->window_bytes_max ? buffers_window_max(c) : 0;

	if (most > c->window)
		connection_set_window(c, most / 2 < c->window ? most : 2 * c->window);
}

static void count_lessened(struct connection *c)
{
	if (c->grant.window >= c->window)
		return;
	tenant_give(c->tenant, XTS_USE_SPILL_BYTES, c->window - c->grant.window);
	count_window(c, (int64_t)c->grant.window - c->window);
}

void connection_set_window(struct connection *c, uint32_t bytes)
{
	uint32_t growth = bytes > c->window ? bytes - c->window : 0;

	if (growth && (!may_be_large(c, growth) || !tenant_take(c->tenant, XTS_USE_SPILL_BYTES, growth)))
		return;
	if (growth) {
		xts_credit_grow(&c->grant, growth);
		count_window(c, growth);
	} else if (c->channel->link.features & XTS_FEATURE_SHRINK) {
		xts_credit_shrink(&c->grant, bytes);
		count_lessened(c);
	}
}

void connection_free_credits(struct connection *c, uint32_t credits)
{
	xts_credit_free(&c->grant, credits);
	count_lessened(c);
}

bool connection_count_memory(struct connection *c, int64_t bytes)
{
	struct worker_state *w = c->worker;

	if (bytes > 0 && !(c->orphan ? orphan_take_bytes(c, (uint64_t)bytes) :
				       tenant_take(c->tenant, XTS_USE_ULP_BYTES, (uint64_t)bytes))) {
		w->stats.refused_limit++;
		return false;
	}
	if (bytes < 0 && c->orphan)
		orphan_give_bytes(c, (uint64_t)-bytes);
	else if (bytes < 0)
		tenant_give(c->tenant, XTS_USE_ULP_BYTES, (uint64_t)-bytes);
	if (c->channel)
		c->channel->ulp_bytes += (uint64_t)bytes;
	w->stats.ulp_bytes += (uint64_t)bytes;
	return true;
}
