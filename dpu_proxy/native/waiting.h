/*
 * Why a connection waits, as far as the proxy knows (waits.h), for `xts top` and the control socket.
 *
 * For TCP and for post credits it waits by itself, one reason in each direction. For the worker's turn it waits from
 * an event to connection_turn(), and on the ready list to connection_send(). Of the time on that list, what its channel
 * has spent without frame credits or slots is a wait for those: the channel keeps one sum of it for all its
 * connections. Time is the worker's now_ns: no clock is read for this.
 *
 * What waits in the queue while its channel has no turn is not seen here: xts_worker_turn_delay_seconds has that.
 */
#ifndef XTS_WAITING_H
#define XTS_WAITING_H

#include <stdbool.h>
#include <stdint.h>

#include "waits.h"

struct channel;
struct connection;
struct xts_waits;

struct connection_waits { /* of a connection */
	struct xts_waits waits;
	uint64_t noted_ns;   /* since when an event waits; 0: none does */
	uint64_t ready_ns;   /* since when it is on the ready list; 0: it is not */
	uint64_t missing_ns; /* what frames_missing of its channel was then */
};

struct frames_missing {        /* of a channel that has something to send */
	uint64_t ns, since_ns; /* until since_ns, from when on they are missing; 0: they are not */
};

/* It waits for another reason in this direction, or for none. */
void waiting_for(struct connection *c, enum xts_wait_direction direction, enum xts_wait reason);
void waiting_noted(struct connection *c);
void waiting_has_turn(struct connection *c);
void waiting_ready(struct connection *c);
void waiting_served(struct connection *c);
/* It is no channel's any more. */
void waiting_leaves(struct connection *c);
void waiting_frames_missing(struct channel *ch, bool missing);
/* With the waits that go on until now; since_ns is 0. */
void waiting_copy(const struct connection *c, struct xts_waits *out);

#endif
