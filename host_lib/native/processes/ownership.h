/*
 * Which process a socket belongs to: the part of struct xts_sock that only fork, exec and shared listeners need.
 * inherit.h has the theory of operation.
 */
#ifndef XTS_OWNERSHIP_H
#define XTS_OWNERSHIP_H

#include <stdbool.h>
#include <stdint.h>

/* INHERITED: another process has it, or the proxy keeps it for whoever asks first; the key is here. */
enum { NOT_INHERITED, INHERITED };
/* a connection that is being given up: PARK is out; then what is unread goes back */
enum { NOT_MOVED, PARKING, RETURNING };

struct common;
struct sharers;
struct xts_sock;

struct ownership {
	uint64_t key; /* of a shared listener, or a connection that several processes may have; else 0 */
	uint8_t inherited, moved;
	bool taking;            /* a thread is taking it over */
	uint8_t taking_for;     /* the greatest purpose of the threads that wait for that */
	bool gone_unreported;   /* nobody has used it since it has gone */
	uint8_t why_gone;       /* enum xts_reason: why this process does not have it after fork or exec */
	uint32_t number_before; /* over exec: its number in the old program */

	/* listeners, and sockets that are bound */
	bool share_at_listen; /* it shall have a key at listen */
	bool shared;          /* it has one with the proxy */
	bool others_may_have; /* other processes may have it too */
	bool received;        /* from another program: it is not made again where nothing has its key */
	uint64_t passed_ns;   /* when it was passed to another program last; 0: never */
	bool leaves_last;     /* no other process has it any more, and this one is leaving */
	bool stays;           /* a datagram socket that this process has closed, and others have */
	bool accepting;       /* the application has called accept() */
	/* an accepted connection: its NEWCONN is not yet answered, so that it may still go back */
	bool offered;
	uint64_t accepting_ns;   /* when this process last waited for it or accepted */
	struct sharers *sharers; /* of one that was there at a fork */
	struct xts_sock *shared_next;

	/* connections: take_turns.c */
	struct common *common; /* other processes may have it; NULL: this one alone */
	bool counted;          /* in stack->commons: it has that, or is being closed after it */
	bool ending;           /* closed by the application; kept for others that have it, or taken to be ended */
	bool close_waits;      /* closed while it was being given up: its thread goes on when that is done */
	uint8_t asked_for;     /* another process asks for it: the purpose, as in TAKE; 0: nobody does */
	uint32_t park_token;
	uint64_t used_ns;     /* when this process used it last */
	uint64_t sought_ns;   /* a poll waits for it: when it was asked for last */
	uint32_t pdu_read;    /* of the next PDU that comes, so much had been read by another process */
	uint64_t sent_before; /* sent_bytes when this process took it over */
	/* It was passed to other programs: this process's place in its name (0: none), and the socket that holds it. */
	uint8_t passed_place;
	bool passed_place_shared; /* other processes may hold the same place */
	int passed_fd;
};

#endif
