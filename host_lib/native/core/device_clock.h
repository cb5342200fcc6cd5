/*
 * The device's clock, as this host sees it: what was measured by CLOCK and CLOCK_ACK of the link (PROTOCOL.md), in
 * clock_samples.h. It is compared with this host's CLOCK_MONOTONIC, which nobody sets.
 *
 * Nothing measures while nobody asks: it is done at the beginning of a channel, with each of its pings, and when time
 * stamps are read and the last question is older than a second.
 */
#ifndef XTS_DEVICE_CLOCK_H
#define XTS_DEVICE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "clock_samples.h"

struct stack;
struct xts_clock_ack;

struct device_clock {
	struct xts_clock_samples samples;
	uint64_t asked_ns;   /* when it was asked for last; 0: never */
	uint64_t follows_ns; /* how far it may be from the time that it follows; UINT64_MAX: it follows none */
};

/* How far it is ahead of CLOCK_REALTIME now, at CLOCK_MONOTONIC of now; false: nothing has been measured. */
bool device_clock_compare(const struct device_clock *c, struct xts_clock_sample *out);

/* For xts_link_config: context is the channel. */
void device_clock_told(void *context, struct xts_clock_ack *ack);
/* Stamps are being read: measures again if the last time is a second ago. */
void device_clock_refresh(struct stack *st);
/* Until something has been measured: 0 or -errno. Waits for a round trip at most. */
int device_clock_need(struct stack *st);
/* A time of the device's clock, by this host's CLOCK_REALTIME; the same time where nothing has been measured. */
uint64_t device_clock_to_host(const struct stack *st, uint64_t device_ns);
uint64_t device_clock_now(const struct stack *st);

#endif
