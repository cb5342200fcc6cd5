/*
 * The timers of a worker: a pairing heap of deadlines. Setting a timer takes no memory and constant time, taking it
 * back and running it logarithmic time on average, whatever the deadlines are: no peer and no host can make a round
 * look at all of them.
 */
#ifndef XTS_TIMER_H
#define XTS_TIMER_H

#include <stdbool.h>
#include <stdint.h>

struct timer {
	struct timer *child, *next, *prev; /* prev: the parent, of a first child */
	struct timers *in;                 /* NULL: not set */
	bool due; /* not in the heap any more, but on the list of those that are about to run */
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

/* Sets it, or sets it again. */
void timer_set(struct timers *timers, struct timer *t, uint64_t deadline_ns);
/* Nothing happens if it is not set. */
void timer_cancel(struct timer *t);
/* When timers_run() has something to do next; UINT64_MAX: nothing. */
uint64_t timers_next_ns(const struct timers *timers);
/* Calls those whose time has come, at most max; returns how many. What is set meanwhile runs next time at the
 * earliest. */
unsigned timers_run(struct timers *timers, uint64_t now_ns, unsigned max);

#endif
