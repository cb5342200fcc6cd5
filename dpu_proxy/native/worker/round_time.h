/*
 * How much CPU time a worker takes from one round to the next, by the clock of its thread.
 *
 * A channel that becomes active waits for the current round. Wall-clock time does not tell how long a round is when the
 * core is shared, because it includes the time of other threads and of the hypervisor. What the budgets of schedule.h
 * bound is the CPU time of a round, whatever else the machine does.
 *
 * Reading the thread's clock is a system call that took 1.1 us where it was measured (a virtual machine). So rounds are
 * measured together until ROUND_TIME_LOOK_NS have passed, which limits the cost to 1 % of a busy core. The time counted
 * is at least that of the longest round among them, and longer by at most ROUND_TIME_LOOK_NS.
 *
 * Polling is the time after rounds that found nothing, until the next one or until the worker sleeps, by the worker's
 * own clock. Of each look's CPU time at most all of it was polling: so what others got while the worker yielded does
 * not count.
 */
#ifndef XTS_ROUND_TIME_H
#define XTS_ROUND_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/worker.h"

#define ROUND_TIME_LOOK_NS 100000u

struct round_time {
	uint64_t looked_ns;     /* when the thread's clock was last read, by the worker's clock */
	uint64_t cpu_ns;        /* what the thread's clock said then */
	bool worked;            /* some round since then has done something */
	uint64_t polled_ns;     /* polling since then */
	uint64_t polls_from_ns; /* polling since, by the worker's clock; 0: the last round has found something */
};

/* A round begins. Called only by the worker's own thread. */
void round_time_begin(struct round_time *t, uint64_t now_ns, struct xts_worker_stats *stats);
/* The round has done something. */
static inline void round_time_worked(struct round_time *t)
{
	t->worked = true;
}

#endif
