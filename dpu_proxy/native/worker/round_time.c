/* Measures the CPU time of rounds; see round_time.h. */
#include "worker/round_time.h"

#include <time.h>

#include "worker/histogram.h"

static uint64_t thread_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void round_time_begin(struct round_time *t, uint64_t now_ns, struct xts_worker_stats *stats)
{
	uint64_t cpu_ns, took_ns;

	if (t->polls_from_ns) {
		t->polled_ns += now_ns - t->polls_from_ns;
		t->polls_from_ns = 0;
	}
	if (now_ns - t->looked_ns < ROUND_TIME_LOOK_NS)
		return;
	cpu_ns = thread_cpu_ns();
	took_ns = cpu_ns - t->cpu_ns;
	t->looked_ns = now_ns;
	t->cpu_ns = cpu_ns;
	stats->cpu_ns += took_ns;
	stats->poll_ns += t->polled_ns < took_ns ? t->polled_ns : took_ns;
	t->polled_ns = 0;
	if (!t->worked)
		return;
	t->worked = false;
	histogram_add(&stats->round_cpu, took_ns);
}
