/* What the link does with time: HELLO again, pings, the end of a peer that is silent. link.h has the theory of
 * operation. */
#include "link/link_inside.h"

/* The last is sent after 127 times ping_ms: a peer may be out of reach for as long as that. */
#define PINGS_MAX 8u

/* After a silence of ping_ms; again after as long a time, twice that, and so on: the first ping may have met nobody,
 * and a proxy that is started after it can only answer another one. */
static uint64_t next_ping_ns(const struct xts_link *link)
{
	uint64_t ping_ns = link_ms_to_ns(link->config.ping_ms);

	if (!link->pinged_ns)
		return link->heard_ns + ping_ns;
	return link->pings < PINGS_MAX ? link->pinged_ns + ping_ns * ((1u << link->pings) - 1) : UINT64_MAX;
}

enum xts_link_verdict xts_link_tick(struct xts_link *link, uint64_t now_ns)
{
	const struct xts_link_config *config = &link->config;

	if (link->state == XTS_LINK_OPENING && config->role == XTS_LINK_HOST) {
		if (config->dead_ms && now_ns - link->opened_ns >= link_ms_to_ns(config->dead_ms)) {
			link_go_down(link, ETIMEDOUT, false);
			return XTS_LINK_CLOSED;
		}
		if (now_ns - link->hello_ns >= HELLO_REPEAT_NS)
			link->due |= link_hello_due(link);
	} else if (link->state == XTS_LINK_UP && link->watching && config->ping_ms) {
		link->watched_ns = now_ns;
		if (link->pinged_ns && config->dead_ms && now_ns - link->pinged_ns >= link_ms_to_ns(config->dead_ms)) {
			link_go_down(link, ETIMEDOUT, true);
			return XTS_LINK_CLOSED;
		}
		if (now_ns >= next_ping_ns(link)) {
			if (!link->pinged_ns) {
				link->pinged_ns = now_ns;
				link->pings = 0;
			}
			link->pings++;
			link->due |= DUE_PING;
			xts_link_ask_clock(link);
		}
	}
	return XTS_LINK_CONSUMED;
}

uint64_t xts_link_deadline_ns(const struct xts_link *link)
{
	const struct xts_link_config *config = &link->config;

	if (link->state == XTS_LINK_OPENING && config->role == XTS_LINK_HOST) {
		uint64_t repeat_ns = link->hello_ns + HELLO_REPEAT_NS;
		uint64_t dead_ns = link->opened_ns + link_ms_to_ns(config->dead_ms);

		return config->dead_ms && dead_ns < repeat_ns ? dead_ns : repeat_ns;
	}
	if (link->state != XTS_LINK_UP || !link->watching || !config->ping_ms)
		return UINT64_MAX;
	if (link->pinged_ns && config->dead_ms && link->pinged_ns + link_ms_to_ns(config->dead_ms) < next_ping_ns(link))
		return link->pinged_ns + link_ms_to_ns(config->dead_ms);
	return next_ping_ns(link);
}

void xts_link_watch(struct xts_link *link, bool watch, uint64_t now_ns)
{
	if (watch && !link->watching) {
		uint64_t pause_ns = now_ns - link->watched_ns;

		if (pause_ns > link_ms_to_ns(link->config.ping_ms) / 2) {
			link->heard_ns = link->heard_ns < link->watched_ns ? link->heard_ns + pause_ns : now_ns;
			link->pinged_ns += link->pinged_ns ? pause_ns : 0;
		}
		link->watched_ns = now_ns;
	}
	link->watching = watch;
}
