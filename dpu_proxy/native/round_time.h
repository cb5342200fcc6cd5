/*
 * How much CPU time a worker takes from one round to the next, by the clock of its thread.
 *
 * A channel that has become active waits for the round that is under way. Wall-clock time does not say how long that
 * is where the core is shared: it has what other threads take, and the hypervisor. The CPU time of a round is what
 * budgets (schedule.h) are to bound, whatever the machine does meanwhile.
 *
 * The thread's clock is a system call that took 1.1 us where it was measured (a virtual machine). So rounds are counted
 * together until ROUND_TIME_LOOK_NS have passed, which makes it 1 % of a busy core: what is counted is at least the
 * longest round in it, and longer by no more than that.
 */
#ifndef XTS_ROUND_TIME_H
#define XTS_ROUND_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include "worker.h"

#define ROUND_TIME_LOOK_NS 100000u

struct round_time {
	uint64_t looked_ns; /* at the thread's clock, by the worker's */
	uint64_t cpu_ns;    /* what it said */
	bool worked;        /* in a round since then something was done */
};

/* A round begins. Its thread's alone. */
void round_time_begin(struct round_time *t, uint64_t now_ns, struct xts_worker_stats *stats);
/* Something was done in it. */
static inline void round_time_worked(struct round_time *t)
{
	t->worked = true;
}

#endif
