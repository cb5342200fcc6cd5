/*
 * A connection that a host has parked, until another one claims it: park.c (parking, and delivering bytes to TCP),
 * claim.c, return_to_parked.c (what its last host gives back). share.h has the theory of operation.
 */
#ifndef XTS_PARKED_H
#define XTS_PARKED_H

#include "connection/handed.h"
#include "processes/share.h"

struct parked {
	struct watch watch; /* first: epoll's pointer, while there are bytes to deliver */
	struct keyed keyed;
	struct list noted;       /* on unowned->drains: TCP can take more */
	struct unowned *unowned; /* where the keeper has its turns for delivering; NULL: nothing to deliver */
	struct parked *next_stale;
	/* Without a socket: claimed or ended, and will be freed. Bytes that its protocols have not taken wait until it
	 * is claimed. An error is told (again) to the host that claims it. */
	struct tcp_side tcp;
	struct kind_record *own;   /* of a kind that has a record of its own (handed.h); else NULL */
	uint64_t shared_key;       /* a member of a shared socket that has come from another process; 0: it is none */
	struct list arrived;       /* with that: on the list of these (share_arrived.c) */
	struct arrived_name *name; /* by which other processes may ask for it; NULL: none (held_arrived.h) */
	bool watched;
	bool moved;    /* it has come from another process of the proxy (move.h) */
	uint8_t state; /* enum connection_state: what it becomes again */
	/* The rest is for a connection that had a key while it was held. */
	/* bytes that are returned now: they come before those of tcp.returned, which were returned earlier */
	struct returned coming;
	/* the channel that has parked it and has not returned everything yet; NULL: nobody returns anything */
	struct channel *returner;
	struct list returning; /* on returner->returning */
	uint64_t may_return;   /* how many bytes it may still return */
	bool died;             /* its last host has not parked it */
	uint32_t keep_ms;      /* of its key, for the next one that holds it */
};

static inline struct parked *parked_of(struct keyed *k)
{
	return k ? list_entry(k, struct parked, keyed) : NULL;
}

/* How many bytes it keeps: those for TCP, those of its protocols, and its record. */
uint64_t parked_bytes(const struct parked *p);
/* With the lock held. Frees everything except the struct itself, because an event of this round may point to it; its TCP
 * side has gone, which kept so many bytes. Called in the keeper's thread, except when there are no returned bytes. */
void parked_become_stale(struct parked *p, uint64_t kept_bytes);

/* With the lock held. It is a member of a shared socket, which has this key. */
void parked_is_shared(struct parked *p, uint64_t shared_key);

#endif
