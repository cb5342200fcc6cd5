/*
 * A connection that a host has parked, until one claims it: park.c (parking, and what TCP still takes), claim.c,
 * park_returns.c (what its last host gives back). share.h has the theory of operation.
 */
#ifndef XTS_PARKED_H
#define XTS_PARKED_H

#include "share.h"

struct parked {
	struct watch watch; /* first: epoll's pointer, while there are bytes to deliver */
	struct keyed keyed;
	struct list noted;       /* on unowned->drains: TCP takes more */
	struct unowned *unowned; /* of the keeper, whose turns deliver it; NULL: there is nothing to deliver */
	struct parked *next_stale;
	int fd; /* -1: claimed or ended, to be freed */
	uint8_t ip_version;
	bool watched;
	bool accepted;
	int error; /* the connection has failed: told (again) to who claims it */
	struct outgoing out;
	struct pushed *pushed;                /* its protocols; what they have not taken waits until it is claimed */
	uint32_t kernel_send, kernel_receive; /* as in struct connection */
	struct returned returned;             /* what its hosts had not read */
	/* Of one that had a key while it was held. */
	/* what had been returned before, and not been sent again: comes after what is returned now */
	struct returned behind;
	/* has parked it, and has not said yet that all is returned; NULL: nobody returns anything */
	struct channel *returner;
	struct list returning; /* on returner->returning */
	uint64_t may_return;   /* bytes */
	struct taken_over last;
};

static inline struct parked *parked_of(struct keyed *k)
{
	return k ? list_entry(k, struct parked, keyed) : NULL;
}

/* With the lock. Only its memory is left, for an event of this round may point at it. In the keeper's thread, unless
 * what was returned has passed to somebody else. */
void parked_become_stale(struct parked *p);

#endif
