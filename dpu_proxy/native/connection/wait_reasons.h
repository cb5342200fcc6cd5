/*
 * Why a connection waits, as far as the proxy knows (waits.h), for `xts top` and the control socket.
 *
 * Waits for TCP and for post credits belong to the connection, with one reason in each direction. It waits for the
 * worker's turn from an event to connection_turn(), and on the ready list until connection_send(). The part of the time
 * on that list in which its channel had no frame credits or slots counts as a wait for those; the channel keeps one sum
 * of it for all its connections. Time is the worker's now_ns: no clock is read for this.
 *
 * Messages that wait in the queue while the channel has no turn are not seen here: xts_worker_turn_delay_seconds
 * measures that.
 */
#ifndef XTS_WAIT_REASONS_H
#define XTS_WAIT_REASONS_H

#include <stdbool.h>
#include <stdint.h>

#include "attaching/waits.h"

struct channel;
struct connection;
struct xts_waits;

/* The waits of a connection; what it waits for now is in struct connection. While it waits for a reason, the time when
 * that began is subtracted from ns, so that it need not be stored. */
struct connection_waits {
	uint64_t ns[XTS_WAIT_REASONS];    /* by reason - 1, as in struct xts_waits */
	uint32_t times[XTS_WAIT_REASONS]; /* likewise */
	uint64_t ready_ns;                /* since when it is on the ready list; 0: it is not on it */
	uint64_t missing_ns;              /* the value of its channel's frames_missing then */
};

struct frames_missing {        /* of a channel that has something to send */
	uint64_t ns, since_ns; /* sum until since_ns; since_ns: since when they are missing; 0: they are not */
};

/* The connection now waits for this reason in this direction, or for none. */
void waiting_for(struct connection *c, enum xts_wait_direction direction, enum xts_wait reason);
void waiting_noted(struct connection *c);
void waiting_has_turn(struct connection *c);
void waiting_ready(struct connection *c);
void waiting_served(struct connection *c);
/* The connection leaves its channel. */
void waiting_leaves(struct connection *c);
void waiting_frames_missing(struct channel *ch, bool missing);
/* Copies the waits, including those that still go on, until now; since_ns is 0. */
void waiting_copy(const struct connection *c, struct xts_waits *out);

#endif
