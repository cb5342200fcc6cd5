/*
 * The maximum error of the device's clock against the time source that it follows, for CLOCK_ACK.
 *
 * Only clock_adjtime(2) reports it, and workers may not make that call. The supervisor makes it twice a second, and
 * puts the result into memory shared with the workers' process. In between the bound grows as the kernel's own does: by
 * 500 ns per millisecond.
 */
#ifndef XTS_DEVICE_CLOCK_H
#define XTS_DEVICE_CLOCK_H

#include <stdint.h>

struct xts_device_clock {
	/* The bound, less what it has grown by since CLOCK_MONOTONIC was 0. It is a single number, so that it is always
	 * read consistently. INT64_MIN: the clock is not synchronized. */
	int64_t bound_ns;
};

/* Asks the kernel. Called by the supervisor. */
void xts_device_clock_look(struct xts_device_clock *clock);

/* From now on the workers of this process read it from `clock`, or (NULL) have none. Called before they start. */
void xts_device_clock_is(const struct xts_device_clock *clock);

/* The bound at now_ns of CLOCK_MONOTONIC; UINT64_MAX: the device's clock is not synchronized, or the bound is not
 * known. */
uint64_t xts_device_clock_error_ns(uint64_t now_ns);

#endif
