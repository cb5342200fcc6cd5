/*
 * A connection that a host has parked, until another one claims it: park.c (parking, and delivering bytes to TCP),
 * claim.c, return_to_parked.c (what its last host gives back). share.h has the theory of operation.
 */
#ifndef XTS_PARKED_H
#define XTS_PARKED_H

#include "processes/share.h"

struct parked {
	struct watch watch; /* first: epoll's pointer, while there are bytes to deliver */
	struct keyed keyed;
	struct list noted;       /* on unowned->drains: TCP can take more */
	struct unowned *unowned; /* where the keeper has its turns for delivering; NULL: nothing to deliver */
	struct parked *next_stale;
	int fd; /* -1: claimed or ended, and will be freed */
	uint8_t ip_version;
	bool watched;
	bool accepted;
	int error; /* the connection has failed with this error, which the host that claims it gets (again) */
	struct outgoing out;
	struct pushed *pushed; /* its protocols; bytes that they have not taken wait until it is claimed */
	uint32_t kernel_send, kernel_receive; /* as in struct connection */
	struct returned returned;             /* bytes that its hosts had not read */
	/* The rest is for a connection that had a key while it was held. */
	/* bytes returned earlier and not sent again: they come after those that are returned now */
	struct returned behind;
	/* the channel that has parked it and has not returned everything yet; NULL: nobody returns anything */
	struct channel *returner;
	struct list returning; /* on returner->returning */
	uint64_t may_return;   /* how many bytes it may still return */
	struct taken_over last;
};

static inline struct parked *parked_of(struct keyed *k)
{
	return k ? list_entry(k, struct parked, keyed) : NULL;
}

/* With the lock held. Frees everything except the struct itself, because an event of this round may point to it. Called
 * in the keeper's thread, except when the returned bytes have passed to another owner. */
void parked_become_stale(struct parked *p);

#endif
