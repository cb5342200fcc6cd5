/* The histogram of round_time.h. */
#include "round_time.h"

#include <time.h>

#define BOUNDS (XTS_ROUND_COUNTS - 1)

static const uint64_t bounds_us[BOUNDS] = { 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000 };

uint64_t xts_round_bound_us(uint32_t count)
{
	return count < BOUNDS ? bounds_us[count] : 0;
}

static uint64_t thread_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void round_time_begin(struct round_time *t, uint64_t now_ns, struct xts_worker_stats *stats)
{
	uint64_t cpu_ns, took_ns;
	uint32_t count = 0;

	if (now_ns - t->looked_ns < ROUND_TIME_LOOK_NS)
		return;
	cpu_ns = thread_cpu_ns();
	took_ns = cpu_ns - t->cpu_ns;
	t->looked_ns = now_ns;
	t->cpu_ns = cpu_ns;
	if (!t->worked)
		return;
	t->worked = false;
	while (count < BOUNDS && took_ns > bounds_us[count] * 1000u)
		count++;
	stats->round_cpu[count]++;
	stats->round_cpu_ns += took_ns;
}
