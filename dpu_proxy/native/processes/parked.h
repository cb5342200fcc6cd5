/*
 * A connection that a host has parked, until another one claims it: park.c (parking, and delivering bytes to TCP),
 * claim.c, return_to_parked.c (what its last host gives back), parked_spilled.c (of a process that has died). share.h
 * has the theory of operation.
 */
#ifndef XTS_PARKED_H
#define XTS_PARKED_H

#include "connection/handed.h"
#include "connection/tcp_counts.h"
#include "processes/share.h"

/* What its kernel says of a stream. Its host waits for the answer to its claim, and claims come one after the other; so
 * what stays as it is until then is asked for before. */
struct parked_facts {
	bool known; /* else it has to be asked for */
	bool counted;
	struct tcp_counts counts;
	struct xts_endpoint local, peer;
};

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
	struct spill *spilled; /* of the spill buffer of a process that has died; NULL: nothing (parked_spilled.c) */
	struct {
		uint32_t bytes;  /* that its host has sent, modulo 2^32 */
		uint32_t number; /* of the frame up to which they are counted */
		bool known : 1;
		bool torn : 1; /* frames are missing */
		bool kept : 1; /* all that waits came behind `bytes`, in runs for its protocols */
		bool fin : 1, close : 1, abort : 1;
		bool settled : 1; /* what waits for TCP is all that TCP has not got */
	} heard;                  /* heard.h */
	bool watched;
	uint8_t state;        /* enum connection_state: what it becomes again */
	bool moved : 1;       /* it has come from another process of the proxy (move.h) */
	bool died : 1;        /* its last host, which had a key of it, has not parked it */
	bool over : 1;        /* no process has it any more (keys_over.c) */
	bool over_is_new : 1; /* its keeper has not seen that yet */
	/* The rest is for a connection that had a key while it was held. */
	uint32_t keep_ms; /* of its key, for the next one that holds it */
	/* bytes that are returned now: they come before those of tcp.returned, which were returned earlier */
	struct returned coming;
	/* the channel that has parked it and has not returned everything yet; NULL: nobody returns anything */
	struct channel *returner;
	struct list returning; /* on returner->returning */
	uint64_t may_return;   /* how many bytes it may still return */
};

/* One that has come from another process of the proxy. */
struct parked_moved {
	struct parked parked; /* first: it is freed as one */
	struct parked_facts facts;
};

static inline struct parked *parked_of(struct keyed *k)
{
	return k ? list_entry(k, struct parked, keyed) : NULL;
}

/* How many bytes it keeps: those for TCP, those of its protocols, and its record. */
uint64_t parked_bytes(const struct parked *p);
/* It is no longer as it came from another process of the proxy: from then on only what is kept is charged. */
void parked_has_settled(struct parked *p);
/* With the lock held. Frees everything except the struct itself, because an event of this round may point to it; its TCP
 * side has gone, which kept so many bytes. Called in the keeper's thread, except when there are no returned bytes. */
void parked_become_stale(struct parked *p, uint64_t kept_bytes);

/* With the lock held, by the keeper. If no process has it any more: it ends now, or when all is delivered. */
void parked_ends_soon(struct parked *p);
/* The same: it is about to end. Closes its TCP socket in good order, if that can be. */
void parked_close(struct parked *p);

static inline uint32_t parked_spilled_bytes(const struct parked *p)
{
	return p->spilled ? p->spilled->bytes : 0;
}
/* What was in the spill buffer of the connection with this key, behind what TCP has. */
void parked_spilled(struct xts_tenant *t, uint64_t key, const uint8_t *data, uint32_t bytes);
/* Its host has sent so many bytes that TCP has not. They are what waits for TCP then, and nothing else is. With the
 * lock held. False: some are missing. */
bool parked_join_spilled(struct parked *p, uint64_t bytes);
void parked_drop_spilled(struct parked *p);

/* With the lock held: the channel that was to return the rest of it, or to claim it, has ended. If nothing has come
 * back there may have been nothing to return, and who takes the connection next knows how much its last process had
 * read. After a part there was more. */
void parked_is_left(struct parked *p);

/* With the lock held. It is a member of a shared socket, which has this key. */
void parked_is_shared(struct parked *p, uint64_t shared_key);

#endif
