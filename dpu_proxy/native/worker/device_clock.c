/* The bound of the device's clock; see device_clock.h. */
#include "worker/device_clock.h"

#include <stddef.h>
#include <sys/timex.h>
#include <time.h>

#define GROWS_BY 2000 /* one nanosecond in this many: the kernel's MAXFREQ, 500 ppm */
/* NTP_PHASE_LIMIT: beyond it the kernel itself reports that the clock is not synchronized */
#define MOST_NS 16000000000
#define NONE INT64_MIN

static const struct xts_device_clock *shared;

void xts_device_clock_look(struct xts_device_clock *clock)
{
	struct timex kernel = { .modes = 0 }; /* this only reads: setting the clock needs CAP_SYS_TIME */
	int state = clock_adjtime(CLOCK_REALTIME, &kernel);
	int64_t bound_ns = NONE;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (state >= 0 && state != TIME_ERROR && !(kernel.status & STA_UNSYNC) && kernel.maxerror >= 0)
		bound_ns = (int64_t)kernel.maxerror * 1000 -
			   ((int64_t)now.tv_sec * 1000000000 + (int64_t)now.tv_nsec) / GROWS_BY;
	__atomic_store_n(&clock->bound_ns, bound_ns, __ATOMIC_RELAXED);
}

void xts_device_clock_is(const struct xts_device_clock *clock)
{
	shared = clock;
}

uint64_t xts_device_clock_error_ns(uint64_t now_ns)
{
	int64_t bound_ns = shared ? __atomic_load_n(&shared->bound_ns, __ATOMIC_RELAXED) : NONE;
	int64_t error_ns = bound_ns == NONE ? -1 : bound_ns + (int64_t)(now_ns / GROWS_BY);

	return error_ns >= 0 && error_ns <= MOST_NS ? (uint64_t)error_ns : UINT64_MAX;
}
