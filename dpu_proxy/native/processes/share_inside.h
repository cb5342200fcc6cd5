/* A shared socket as its own files see it: share.c, share_turn.c, share_returned.c, share_end.c. */
#ifndef XTS_SHARE_INSIDE_H
#define XTS_SHARE_INSIDE_H

#include "connection/socket_kind.h"
#include "processes/share.h"

/* A bound stream that becomes a listener later keeps the kind that it had: only LISTEN says that it accepts. */
static inline const struct socket_kind *shared_kind(const struct shared *s)
{
	return socket_kinds[s->state];
}

extern struct list shared_sockets; /* all of them; under the registry's lock */

/* The next member on m's worker, in a ring. */
static inline struct connection *shared_next_here(const struct connection *m)
{
	return list_entry(m->shares->here.next, struct member, here)->connection;
}

/* All below need the lock. Any member on this worker, or NULL. */
struct connection *shared_member_here(const struct shared *s, const struct worker_state *w);
/* The members on this worker look whether there is something to offer. */
void shared_wake_here(struct shared *s, struct worker_state *w);
/* Members on this worker try at once, and those on others when their workers have been poked. */
void shared_tell_members(struct shared *s, struct worker_state *w);
/* For the socket of this TCP side, by a descriptor of its own (-1: there was none), without a key and members. NULL: no
 * memory. Needs no lock. */
struct shared *shared_new(const struct tcp_side *side, uint8_t state);
/* One that came from another process of the proxy, under this key, and whose member has not claimed it: that is in
 * *sleeps (share_arrived.c). It has no members. NULL with *error, which stays if there is none. */
struct parked;
struct shared *shared_arrived(struct xts_tenant *t, uint64_t key, struct parked **sleeps, int *error);
/* l has made it its own, as the first: notes its address for it. */
void shared_has_begun(struct shared *s, struct connection *l);
/* kind_of(l)->join_first(). Only if the member that sleeps has a record of its own. */
int shared_join_first(struct connection *l, struct shared *s, struct parked *sleeps);
/* Is this its only member? */
bool shared_has_only(const struct shared *s, const struct connection *l);
/* Nobody keeps it when this member has left, if that is the last one. */
bool shared_is_not_kept(const struct shared *s, const struct connection *l, bool closed);
/* One that a member has given back, or a block of datagrams. False: there is none. */
bool shared_reset_one_waiting(struct shared *s);

#endif
