/*
 * Which process a socket belongs to: the part of struct xts_sock that only fork, exec and shared listeners need.
 * inherit.h has the theory of operation.
 */
#ifndef XTS_OWNERSHIP_H
#define XTS_OWNERSHIP_H

#include <stdbool.h>
#include <stdint.h>

enum { NOT_INHERITED, INHERITED_ASK, INHERITED_KEYED }; /* the parent has it; or its key and state are here */
enum { NOT_MOVED, MOVING, MOVED }; /* a connection that is being, or has been, given to another process */

struct sharers;
struct xts_sock;

struct ownership {
	uint64_t key; /* of a shared listener, or a connection on its way between processes; else 0 */

	/* listeners, and sockets that are bound */
	bool share_at_listen; /* it shall have a key at listen */
	bool shared;          /* it has one with the proxy */
	bool others_may_have; /* other processes may have it too */
	bool leaves_last;     /* no other process has it any more, and this one is leaving */
	bool accepting;       /* the application has waited for it, or accepted */
	/* an accepted connection: its NEWCONN is not yet answered, so that it may still go back */
	bool offered;
	uint64_t accepting_ns;   /* when this process last waited for it or accepted */
	struct sharers *sharers; /* of one that was there at a fork */
	struct xts_sock *shared_next;

	/* connections */
	bool taking;            /* a thread is taking it over */
	bool kept_for_children; /* closed here, but not yet closed, since a child may want it */
	bool gone_unreported;   /* nobody has used it since it has gone */
	uint8_t inherited, moved;
	uint8_t why_gone;           /* enum xts_reason: why this process does not have it after fork or exec */
	uint32_t children_may_want; /* living children that may come to want it */
	uint32_t number_at_parent;  /* INHERITED_ASK: its number in the parent */
};

#endif
