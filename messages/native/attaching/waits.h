/*
 * What a socket waits for, and how long it has waited: kept by both ends, each for the reasons that it can know.
 *
 * In each direction a socket waits for at most one reason at a time. The clock is read only when the reason changes,
 * and the caller reads it. The length of a wait that is still going on is not included: the reader adds the time since
 * it began.
 */
#ifndef XTS_WAITS_H
#define XTS_WAITS_H

#include <stdint.h>

/* -DXTS_WAITS=OFF builds without: what they cost is measured against that (tests/bench/compare.py). */
#ifdef XTS_NO_WAITS
#define XTS_WAITS_MEASURED 0
#else
#define XTS_WAITS_MEASURED 1
#endif

enum xts_wait {
	XTS_WAIT_NONE,
	/* Host: to send. Proxy: to pass on bytes that have come from TCP, while the application does not read. */
	XTS_WAIT_POST_CREDITS,
	/* Either end, to send a message: the other end has not recycled the frames of earlier messages, or there is no
	 * slot. */
	XTS_WAIT_FRAME_CREDITS,
	/* Host, receiving. */
	XTS_WAIT_APPLICATION = 3, /* the application has not read what has come */
	XTS_WAIT_PEER = 4,        /* the socket has sent, or is connecting, and nothing has come since */
	/* Proxy. */
	XTS_WAIT_TCP = 3,  /* bytes from the host wait in the spill buffer */
	XTS_WAIT_TURN = 4, /* there is something to do, and the worker is doing something else */
};
#define XTS_WAIT_REASONS 4

enum xts_wait_direction { XTS_WAIT_SENDING, XTS_WAIT_RECEIVING }; /* from the application's point of view */

struct xts_waits {                        /* 72 bytes */
	uint64_t ns[XTS_WAIT_REASONS];    /* by reason - 1: total length of the waits that have ended */
	uint64_t since_ns[2];             /* CLOCK_MONOTONIC, by direction: when the present wait began */
	uint32_t times[XTS_WAIT_REASONS]; /* by reason - 1: how many waits have begun */
	uint8_t now[2];                   /* enum xts_wait, by direction */
	uint8_t reserved[6];
};
_Static_assert(sizeof(struct xts_waits) == 72, "waits layout");

/* The reason changes from one to another. */
static inline void xts_wait_enter(struct xts_waits *w, enum xts_wait_direction direction, enum xts_wait was,
				  enum xts_wait reason, uint64_t now_ns)
{
	if (was)
		w->ns[was - 1] += now_ns - w->since_ns[direction];
	if (reason)
		w->times[reason - 1]++;
	w->now[direction] = (uint8_t)reason;
	w->since_ns[direction] = now_ns;
}

#endif
