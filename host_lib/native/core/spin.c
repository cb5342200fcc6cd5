/* Waiting on the processor: spin.h. */
#include <sched.h>
#include <time.h>

#include "core/channel.h"
#include "core/clock.h"
#include "core/settings.h"
#include "core/signals.h"
#include "core/spin.h"
#include "core/status_page.h"
#include "link/link.h"

#define SKIP_MAX 64u
#define YIELD_EVERY 16u
/* Looks at the queue between two at the kernel, which costs as much as some ten of them. */
#define LOOKS 64u
/* Frames for others do not keep it from looking at the kernel for longer. */
#define KERNEL_NS (50 * NS_PER_US)
#define STATUS_NS (100 * NS_PER_MS) /* how often a wait that never sleeps tells what it has cost */

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Is a kernel descriptor ready now? Called without the lock. */
static bool look_at_watched(struct watched_fds *watched)
{
	struct timespec none = { 0 };

	if (!watched || !watched->count)
		return false;
	watched->ready = kernel_calls.ppoll(watched->fds + SLEEP_FDS, watched->count, &none, NULL) > 0;
	watched->looked = true;
	return watched->ready;
}

/* Between two looks, without the lock. Returns how long others have had the processor, as far as that is known. */
static uint64_t relax(unsigned turn)
{
	uint64_t yielded_ns = 0;

	/* The thread we wait for may be scheduled on this core. */
	if (turn % YIELD_EVERY == 0) {
		uint64_t before = now_ns();

		sched_yield();
		yielded_ns = now_ns() - before;
	}
	for (int i = 0; i < 8; i++)
		cpu_relax();
	return yielded_ns;
}

void spin(struct waiter *w, struct watched_fds *watched, uint64_t deadline_ns)
{
	struct stack *st = w->stack;
	uint64_t begun, now, end, yielded_ns = 0;
	unsigned turn = 0;
	bool other = false;

	if (st->spin_skipped) {
		st->spin_skipped--;
		return;
	}
	begun = now = now_ns();
	end = begun + st->settings.spin_us * NS_PER_US * (watched && watched->patient ? PATIENCE : 1);
	channel_flush(st, true);
	while (st->channel) {
		now = now_ns();
		channel_pump(st);
		if (w->woken || st->waiting > 1 || other || xts_inside.put_off)
			break;
		if (now >= end || now >= deadline_ns)
			break;
		pthread_mutex_unlock(&st->lock);
		if (turn % 16 == 0)
			other = look_at_watched(watched);
		yielded_ns += relax(++turn);
		stack_lock(st);
	}
	st->spin_ns += now - begun - yielded_ns;
	if (w->woken) {
		st->spins++;
		st->spin_skip = 0;
	} else if (!other) {
		st->spin_misses++;
		st->spin_skip = st->spin_skip ? st->spin_skip * 2 : 1;
		if (st->spin_skip > SKIP_MAX)
			st->spin_skip = SKIP_MAX;
		st->spin_skipped = st->spin_skip;
	}
}

/* What sleeping would notice besides the queue. Signals that the wait lets through are delivered here. */
static int look_at_kernel(struct stack *st, struct channel *c, struct watched_fds *watched)
{
	struct pollfd own[SLEEP_FDS] = { { .fd = -1 },
					 { .fd = -1 },
					 { .fd = c->attachment.connection, .events = POLLIN } };
	int r;

	c->sleepers++;
	pthread_mutex_unlock(&st->lock);
	xts_inside.locked = 0;
	r = poll_until(own, watched, 0);
	xts_inside.locked = 1;
	stack_lock(st);
	c->sleepers--;
	if (c->dead || c != st->channel)
		return r == -ETIMEDOUT ? 0 : r;
	if (own[2].revents)
		channel_connection_event(c);
	if (st->channel == c)
		channel_tick(st, now_ns());
	return r == -ETIMEDOUT ? 0 : r;
}

int spin_as_leader(struct waiter *w, struct watched_fds *watched, uint64_t deadline_ns)
{
	struct stack *st = w->stack;
	struct channel *c = st->channel;
	uint64_t frames = c->link.stats.received_frames, begun = now_ns(), now, yielded_ns = 0;
	bool some;
	int r;

	st->spinning = w;
	for (unsigned turn = 1; turn <= LOOKS; turn++) {
		channel_pump(st);
		/* what has come may have to be acknowledged before more does: the caller flushes */
		if (st->channel != c || w->woken || xts_inside.put_off || c->link.stats.received_frames != frames)
			break;
		now = now_ns();
		if (now >= deadline_ns)
			break;
		pthread_mutex_unlock(&st->lock);
		yielded_ns += relax(turn);
		stack_lock(st);
		if (st->channel != c)
			break;
	}
	now = now_ns();
	st->spin_ns += now - begun - yielded_ns;
	if (st->channel == c && now - st->spin_told_ns >= STATUS_NS) {
		st->spin_told_ns = now;
		status_link(st);
	}
	if (w->woken || st->channel != c)
		return 0;
	some = c->link.stats.received_frames != frames;
	if (some && now - st->spin_looked_ns < KERNEL_NS)
		return 0;
	st->spin_looked_ns = now;
	r = look_at_kernel(st, c, watched);
	return r || w->woken || now < deadline_ns ? r : -ETIMEDOUT;
}

void spin_ends(struct waiter *w, bool other)
{
	struct stack *st = w->stack;

	st->spinning = NULL;
	if (w->woken)
		st->spins++;
	else if (!other)
		st->spin_misses++;
}
