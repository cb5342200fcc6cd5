/* The device's clock: see device_clock.h. */
#include "core/device_clock.h"

#include <time.h>

#include "core/channel.h"
#include "core/clock.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "core/wait.h"

#define ASK_EVERY_NS NS_PER_S
#define NEED_NS (2 * NS_PER_S)

static uint64_t realtime_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

bool device_clock_compare(const struct device_clock *c, struct xts_clock_sample *out)
{
	uint64_t now = now_ns();

	if (!xts_clock_best(&c->samples, now, out))
		return false;
	out->ahead_ns -= (int64_t)(realtime_ns() - now);
	out->at_ns = now;
	return true;
}

void device_clock_told(void *context, struct xts_clock_ack *ack)
{
	struct channel *c = context;

	xts_clock_add(&c->clock.samples, ack->token, now_ns(), ack->time_ns);
	c->clock.follows_ns = ack->error_ns;
	status_clock(c);
	wake(c->stack, &c->stack->clock_waiters);
}

static void ask(struct channel *c, uint64_t now)
{
	c->clock.asked_ns = now;
	xts_link_ask_clock(&c->link);
}

void device_clock_refresh(struct stack *st)
{
	struct channel *c = st->channel;
	uint64_t now = now_ns();

	if (c && now - c->clock.asked_ns >= ASK_EVERY_NS)
		ask(c, now);
}

int device_clock_need(struct stack *st)
{
	uint64_t deadline = now_ns() + NEED_NS;
	int r = 0;

	while (!r) {
		struct channel *c = st->channel;

		if (!c)
			return -ENETDOWN;
		if (!(c->link.features & XTS_FEATURE_STAMPS))
			return -EOPNOTSUPP;
		if (c->clock.samples.count)
			return 0;
		ask(c, now_ns());
		r = wait_for(st, &st->clock_waiters, deadline, true);
	}
	return r;
}

uint64_t device_clock_to_host(const struct stack *st, uint64_t device_ns)
{
	uint64_t now = now_ns();
	struct xts_clock_sample best;

	if (!st->channel || !xts_clock_best(&st->channel->clock.samples, now, &best))
		return device_ns;
	return device_ns - (uint64_t)best.ahead_ns + (realtime_ns() - now);
}

uint64_t device_clock_now(const struct stack *st)
{
	uint64_t now = now_ns();
	struct xts_clock_sample best;

	if (!st->channel || !xts_clock_best(&st->channel->clock.samples, now, &best))
		return realtime_ns();
	return now + (uint64_t)best.ahead_ns;
}
