/* What everybody who works for a worker asks of it: the time, whether the turn is over, to look again. */
#include "worker/worker_state.h"

#include <sys/eventfd.h>
#include <time.h>

#include "worker/common_lock.h"

_Thread_local uint64_t common_locks;

bool worker_turn_is_over(struct worker_state *w)
{
	w->now_ns = w->config.clock_ns();
	return w->now_ns >= w->turn_end_ns;
}

uint64_t worker_monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void worker_poke(struct worker_state *w)
{
	if (!atomic_exchange(&w->left, true)) /* else it has been told, and looks at everything when it hears of that */
		(void)eventfd_write(w->command_fd, 1);
}
