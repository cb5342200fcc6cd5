/* Time: nanoseconds of CLOCK_MONOTONIC, and deadlines. */
#ifndef XTS_CLOCK_H
#define XTS_CLOCK_H

#include <stdint.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)
#define FOREVER UINT64_MAX

uint64_t now_ns(void);
uint64_t now_coarse_ns(void); /* the same to within some milliseconds, in a few nanoseconds */

static inline uint64_t deadline_after(uint64_t timeout_ns)
{
	return timeout_ns == FOREVER ? FOREVER : now_ns() + timeout_ns;
}

#endif
