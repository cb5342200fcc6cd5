/*
 * The device's clock, as seen by this host: the samples measured with CLOCK and CLOCK_ACK of the link (PROTOCOL.md), in
 * clock_samples.h. They are compared with this host's CLOCK_MONOTONIC, which cannot be set.
 *
 * Samples are taken only when needed: at the beginning of a channel, with each of its pings, and when time stamps are
 * read and the last sample is older than a second.
 */
#ifndef XTS_DEVICE_CLOCK_H
#define XTS_DEVICE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "link/clock_samples.h"

struct stack;
struct xts_clock_ack;

struct device_clock {
	struct xts_clock_samples samples;
	uint64_t asked_ns;   /* when the last sample was requested; 0: never */
	uint64_t follows_ns; /* how far it may be from the time source that it follows; UINT64_MAX: it follows none */
};

/* How far the device's clock is ahead of CLOCK_REALTIME, now being a time of CLOCK_MONOTONIC; false: nothing has been
 * measured. */
bool device_clock_compare(const struct device_clock *c, struct xts_clock_sample *out);

/* For xts_link_config: context is the channel. */
void device_clock_told(void *context, struct xts_clock_ack *ack);
/* Time stamps are being read: takes another sample if the last one is a second old. */
void device_clock_refresh(struct stack *st);
/* Waits until there is a sample, for a round trip at most: 0 or -errno. */
int device_clock_need(struct stack *st);
/* Converts a time of the device's clock to this host's CLOCK_REALTIME; unchanged if nothing has been measured. */
uint64_t device_clock_to_host(const struct stack *st, uint64_t device_ns);
uint64_t device_clock_now(const struct stack *st);

#endif
