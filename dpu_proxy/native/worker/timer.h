/*
 * The timers of a worker: a pairing heap of deadlines. Setting a timer takes no memory and constant time; cancelling or
 * running it takes logarithmic time on average, whatever the deadlines are. So no peer and no host can make a round
 * visit all timers.
 */
#ifndef XTS_TIMER_H
#define XTS_TIMER_H

#include <stdbool.h>
#include <stdint.h>

struct timer {
	struct timer *child, *next, *prev; /* prev: for a first child, the parent */
	struct timers *in;                 /* NULL: not set */
	bool due;                          /* not in the heap any more, but on the list of timers that will run next */
	uint64_t deadline_ns;
	void (*expired)(struct timer *timer);
};

struct timers {
	struct timer *root;
	struct timer *due; /* linked by next and prev */
};

static inline bool timer_is_set(const struct timer *t)
{
	return t->in;
}

/* Sets a timer, or sets it again. */
void timer_set(struct timers *timers, struct timer *t, uint64_t deadline_ns);
/* Does nothing if it is not set. */
void timer_cancel(struct timer *t);
/* When timers_run() has something to do next; UINT64_MAX: never. */
uint64_t timers_next_ns(const struct timers *timers);
/* Calls the timers that are due, at most max; returns how many. A timer set meanwhile runs in the next call at the
 * earliest. */
unsigned timers_run(struct timers *timers, uint64_t now_ns, unsigned max);

#endif
