/*
 * Why a socket waits, and for how long it has: kept by both ends, each for the reasons that it knows.
 *
 * A socket waits for at most one reason in each direction at a time. The clock is read only when the reason changes,
 * and the caller reads it. The end of a wait that goes on is not known yet: who reads adds what has passed since.
 */
#ifndef XTS_WAITS_H
#define XTS_WAITS_H

#include <stdint.h>

enum xts_wait {
	XTS_WAIT_NONE,
	/* The host: to send. The proxy: to pass on what has come from TCP, as the application does not read. */
	XTS_WAIT_POST_CREDITS,
	/* Either end, to send a message: the other has not recycled the frames of those before, or there is no slot. */
	XTS_WAIT_FRAME_CREDITS,
	/* The host, receiving. */
	XTS_WAIT_APPLICATION = 3, /* it has not read what has come */
	XTS_WAIT_PEER = 4,        /* it has sent, or connects, and nothing has come since */
	/* The proxy. */
	XTS_WAIT_TCP = 3,  /* what the host has sent waits in the spill buffer */
	XTS_WAIT_TURN = 4, /* it has something to do, and the worker is at something else */
};
#define XTS_WAIT_REASONS 4

enum xts_wait_direction { XTS_WAIT_SENDING, XTS_WAIT_RECEIVING }; /* as the application sees them */

struct xts_waits {                        /* 72 bytes */
	uint64_t ns[XTS_WAIT_REASONS];    /* by reason - 1: of waits that have ended */
	uint64_t since_ns[2];             /* CLOCK_MONOTONIC, of the waits that go on, by direction */
	uint32_t times[XTS_WAIT_REASONS]; /* that a wait has begun */
	uint8_t now[2];                   /* enum xts_wait, by direction */
	uint8_t reserved[6];
};
_Static_assert(sizeof(struct xts_waits) == 72, "waits layout");

/* A wait that has ended already. */
static inline void xts_wait_add(struct xts_waits *w, enum xts_wait reason, uint64_t ns)
{
	w->ns[reason - 1] += ns;
	w->times[reason - 1]++;
}

/* The reason changes. */
static inline void xts_wait_enter(struct xts_waits *w, enum xts_wait_direction direction, enum xts_wait reason,
				  uint64_t now_ns)
{
	uint8_t was = w->now[direction];

	if (was)
		w->ns[was - 1] += now_ns - w->since_ns[direction];
	if (reason)
		w->times[reason - 1]++;
	w->now[direction] = (uint8_t)reason;
	w->since_ns[direction] = now_ns;
}

#endif
