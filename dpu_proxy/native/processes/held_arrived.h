/*
 * Connections with a key that have come from another process of the proxy (move.h), and are parked here until their
 * host claims them.
 *
 * Theory of operation. Only its host can claim such a connection, by a key that is made of that host's ticket. The key
 * by which other processes ask for it (TAKE) is its *name* meanwhile, and comes in a note behind its record
 * (move_record.h). Whoever asks by that name is told EBUSY, and asks again: the host is awake in a moment, or it sleeps
 * and would not have answered YIELD either. When it has claimed the connection, that is held under its name as before.
 *
 * Processes move one after the other. So the one that asks may be here while the one that holds the connection is not,
 * or the other way round. For a while, a key that nobody knows is thus no reason to give up: registry_unknown().
 *
 * If the host's channel ends before it has opened here, then its process has died and has never noticed the move. Then
 * the counts in the record are those that it has left to the others, and one of these may take the connection, as it
 * may from any process that dies (share.h). After that the counts could be those before the claim or behind it, and the
 * connection is reset. If it lives, has claimed all that it has, and this is not among it, then it has given it up, or
 * was given it and did not hear of that: the same.
 *
 * A connection that no process holds while its tenant's channels move goes with one of them. Here it is parked under
 * its own key again as soon as that channel is this process's.
 */
#ifndef XTS_HELD_ARRIVED_H
#define XTS_HELD_ARRIVED_H

#include <stdbool.h>

#include "processes/move_record.h"

struct channel;
struct connection;
struct keyed;
struct parked;
struct worker_state;
struct xts_tenant;

/* The connection of this record has a name. recovered: the process that had it has died. 0; -EBADMSG: there is no such
 * record, or the name is none; -EEXIST; -ENOMEM. Takes the lock. */
int held_arrives(struct worker_state *w, const struct xts_tenant *t, const struct move_note *n, bool recovered);

/* All below need the lock. Its host has claimed it as c: other processes may ask for it there. */
void held_is_claimed(struct parked *p, struct connection *c);
/* Its host's channel ends, and has not opened, or it does not claim it: others may take it now. False: there are none,
 * or they must not. */
bool held_outlives(struct parked *p);
/* May other processes ask for it? Not if its host has closed it, which only the last one does. */
bool held_others_have(const struct parked *p);
/* No process but its host has the connection of this key, of the kind ARRIVED, and that one has ended. */
void held_is_over(struct keyed *k);
/* With the lock held: its host has said by SHARE by which key others ask for it, and for how long it is kept for them,
 * 0: nobody else has it. The process of the proxy before has not carried that out. */
void held_is_told(struct parked *p, uint64_t key, uint32_t keep_ms);
/* If no process has it: it is parked under its own key, or ends, if bytes are missing. False: a host will claim it. */
bool held_is_parked(struct parked *p);
/* What the next process of the proxy is told of it. False: nothing. */
bool held_note(const struct parked *p, struct move_note *n);
/* It is no longer parked. */
void held_name_ends(struct parked *p);

#endif
