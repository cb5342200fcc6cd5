/*
 * Post credits (the paper, "Flow Control"): permission to post bytes to the peer. They are additive, with one account
 * for each direction of a socket. The conservation law, which tests and debug builds check over both ends of an
 * account:
 *
 *     held by the sender + in flight + buffered at the receiver + unadvertised + in adverts = window
 *
 * Deadlock-free exactly when largest indivisible message + limit <= window (model-checked: tests/model/credits.pml).
 * TCP data is divisible down to one byte, so limit < window suffices here and xts_credit_grant_init() asserts it.
 */
#ifndef XTS_CREDIT_H
#define XTS_CREDIT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

/* The receiver's end: what it has granted. POST_CREDITS_UNA and POST_CREDITS_LIMIT are the names of the paper. */
struct xts_credit_grant {
	uint32_t window;       /* bytes granted in all */
	uint32_t outstanding;  /* granted and not yet received: the most the peer may still send */
	uint32_t unadvertised; /* POST_CREDITS_UNA: freed, not yet advertised */
	uint32_t limit;        /* POST_CREDITS_LIMIT: advertise when unadvertised exceeds it */
	uint32_t excess;       /* how much the window shrinks: freed bytes are not granted again until this is 0 */
};

/* Starts an account of window bytes (at least 2). The first advert, in CONNECT or a similar message, is the whole
 * window. */
static inline void xts_credit_grant_init(struct xts_credit_grant *g, uint32_t window)
{
	g->window = window;
	g->outstanding = window;
	g->unadvertised = 0;
	g->limit = window / 4;
	g->excess = 0;
}

/* Bytes have come. -EPROTO: more than were granted, so the peer breaks the protocol. */
static inline int xts_credit_receive(struct xts_credit_grant *g, uint32_t bytes)
{
	if (bytes > g->outstanding)
		return -EPROTO;
	g->outstanding -= bytes;
	return 0;
}

/* Bytes have left the buffer (read by the application, or written to TCP). */
static inline void xts_credit_free(struct xts_credit_grant *g, uint32_t bytes)
{
	uint32_t kept = bytes < g->excess ? bytes : g->excess;

	if (kept) {
		g->excess -= kept;
		g->window -= kept;
		g->limit = g->window / 4;
	}
	g->unadvertised += bytes - kept;
}

/* Enlarges the window: the growth goes out with the next advert. */
static inline void xts_credit_grow(struct xts_credit_grant *g, uint32_t bytes)
{
	g->excess = 0;
	g->window += bytes;
	g->unadvertised += bytes;
	g->limit = g->window / 4;
}

/* Shrinks the window to this many bytes (at least 2), gradually: granted credits stay granted. */
static inline void xts_credit_shrink(struct xts_credit_grant *g, uint32_t window)
{
	uint32_t free = g->unadvertised;

	g->excess = window < g->window ? g->window - window : 0;
	g->unadvertised = 0;
	xts_credit_free(g, free);
}

/* Should a pure credit advertisement go out? */
static inline bool xts_credit_due(const struct xts_credit_grant *g)
{
	return g->unadvertised > g->limit;
}

/* Takes all unadvertised credits, for a message that is about to be sent. */
static inline uint32_t xts_credit_advertise(struct xts_credit_grant *g)
{
	uint32_t bytes = g->unadvertised;

	g->unadvertised = 0;
	g->outstanding += bytes;
	return bytes;
}

/* Bytes received and not yet freed. */
static inline uint32_t xts_credit_buffered(const struct xts_credit_grant *g)
{
	return g->window - g->outstanding - g->unadvertised;
}

/* The sender's end is one number: the credits held. Adds an advert; -EPROTO if they would exceed XTS_CREDITS_MAX. */
static inline int xts_credit_add(uint32_t *held, uint32_t advert)
{
	if (advert > XTS_CREDITS_MAX || *held > XTS_CREDITS_MAX - advert)
		return -EPROTO;
	*held += advert;
	return 0;
}

#endif
