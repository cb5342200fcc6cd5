/* Time: nanoseconds of CLOCK_MONOTONIC, and deadlines. */
#ifndef XTS_CLOCK_H
#define XTS_CLOCK_H

#include <stdint.h>

#include "common/time_units.h"

#define FOREVER UINT64_MAX

uint64_t now_ns(void);
uint64_t now_coarse_ns(void); /* the same to within some milliseconds, in a few nanoseconds */

static inline uint64_t deadline_after(uint64_t timeout_ns)
{
	return timeout_ns == FOREVER ? FOREVER : now_ns() + timeout_ns;
}

#endif
