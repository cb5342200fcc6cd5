/*
 * How far the device's clock may be from the time that it follows, for CLOCK_ACK.
 *
 * Only clock_adjtime(2) says so. Workers may not make that call. The supervisor makes it, and leaves what it has
 * learned in memory that it shares with the workers' process. It looks twice a second. Between two looks the bound
 * grows as the kernel's own does: by 500 ns a millisecond.
 */
#ifndef XTS_DEVICE_CLOCK_H
#define XTS_DEVICE_CLOCK_H

#include <stdint.h>

struct xts_device_clock {
	/* The bound, less what it has grown by since CLOCK_MONOTONIC was 0: one number, so that it is always whole.
	 * INT64_MIN: the clock follows none. */
	int64_t bound_ns;
};

/* Asks the kernel. The supervisor's. */
void xts_device_clock_look(struct xts_device_clock *clock);

/* From now on the workers of this process take it from there, or from nowhere (NULL). Before they start. */
void xts_device_clock_is(const struct xts_device_clock *clock);

/* By CLOCK_MONOTONIC; UINT64_MAX: the device's clock follows none, or nobody knows. */
uint64_t xts_device_clock_error_ns(uint64_t now_ns);

#endif
