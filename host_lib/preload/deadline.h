/* Timeouts in the forms that programs use, as deadlines of libxts. */
#ifndef XTS_PRELOAD_DEADLINE_H
#define XTS_PRELOAD_DEADLINE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "core/arguments.h"
#include "xts_private.h"

#define NS_A_SECOND 1000000000
#define SECONDS_MAX (1L << 32) /* a longer timeout is infinite */

static inline uint64_t deadline_of_ms(int timeout_ms)
{
	if (timeout_ms <= 0)
		return timeout_ms ? XTS_FOREVER : 0;
	return xts_now_ns() + (uint64_t)timeout_ms * 1000000;
}

/* timeout NULL: none. False, with EINVAL or EFAULT, for a timeout that the kernel refuses. */
static inline bool deadline_of(const struct timespec *timeout, uint64_t *deadline_ns)
{
	*deadline_ns = XTS_FOREVER;
	if (!timeout)
		return true;
	if (argument_is_bad(timeout, sizeof *timeout)) {
		errno = EFAULT;
		return false;
	}
	if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= NS_A_SECOND) {
		errno = EINVAL;
		return false;
	}
	if (!timeout->tv_sec && !timeout->tv_nsec)
		*deadline_ns = 0;
	else if (timeout->tv_sec < SECONDS_MAX)
		*deadline_ns = xts_now_ns() + (uint64_t)timeout->tv_sec * NS_A_SECOND + (uint64_t)timeout->tv_nsec;
	return true;
}

/* The time until the deadline, in *left; NULL: infinite. */
static inline const struct timespec *time_until(uint64_t deadline_ns, struct timespec *left)
{
	uint64_t now = deadline_ns && deadline_ns != XTS_FOREVER ? xts_now_ns() : 0;
	uint64_t left_ns = deadline_ns > now ? deadline_ns - now : 0;

	left->tv_sec = (time_t)(left_ns / NS_A_SECOND);
	left->tv_nsec = (long)(left_ns % NS_A_SECOND);
	return deadline_ns == XTS_FOREVER ? NULL : left;
}

#endif
