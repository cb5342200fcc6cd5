/*
 * Which process a socket belongs to: what only fork, exec, passing and shared listeners need. What each call checks is
 * in the socket itself (struct ownership), the rest in its cold part (struct sharing; socket.h). inherit.h has the
 * theory of operation.
 */
#ifndef XTS_OWNERSHIP_H
#define XTS_OWNERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "processes/deed.h"
#include "processes/shared_status.h"

/* INHERITED: another process has it, or the proxy keeps it for the process that asks first; the key is here. */
enum { NOT_INHERITED, INHERITED };
/* A connection that is being given up: PARKING: PARK has been sent; RETURNING: unread bytes go back. */
enum { NOT_MOVED, PARKING, RETURNING };

/* Whether a socket listens that others may have, too (listener_shut.c): nothing was said, or a value of LISTENING. */
enum listens_told { TOLD_NOTHING, TOLD_NOT_YET, TOLD_LISTENS, TOLD_SHUT };

struct common;
struct xts_sock;

struct ownership {
	struct common *common; /* of a connection: other processes may have it; NULL: this one alone (take_over.c) */
	uint8_t inherited, moved;
	uint8_t why_gone;     /* enum xts_reason: why this process does not have it after a fork or exec */
	bool gone_unreported; /* it has gone, and no call has used it since */
	bool shared;          /* its key is registered at the proxy */
	/* an accepted connection whose NEWCONN is unanswered, so that it may still go back */
	bool offered;
	bool taking; /* a thread is taking it over */
	/* closed by the application; kept for other processes that have it, or taken over in order to end it */
	bool ending;
};

struct sharing {
	/* of a listener, bound or datagram socket that is shared, or a connection that several processes may have; else
	 * 0 */
	uint64_t key;
	uint32_t number_before; /* after exec: its number in the old program */
	uint8_t taking_for;     /* the greatest purpose of the threads that wait for the take-over */

	/* listeners and bound sockets */
	bool share_at_listen;  /* it gets a key when it listens */
	bool others_may_have;  /* other processes may have it too */
	bool received;         /* it came from another program: not made again if its key is unknown to the proxy */
	uint64_t passed_ns;    /* when it was last passed to another program; 0: never */
	bool leaves_last;      /* this process is leaving it, and no other has it */
	bool leaves;           /* this process is leaving it to others, for which the proxy keeps it */
	bool stays;            /* this process has closed it, and other processes have it */
	bool accepting;        /* the application has called accept() */
	uint64_t accepting_ns; /* when this process last waited for it or accepted */
	bool key_is_told;      /* the proxy has it from this member */
	bool key_settles;      /* it is a new one, which the proxy is told once more */
	bool key_is_lost;      /* closed, and the proxy's next process has not been told its key */
	uint8_t listens_told;  /* enum listens_told: what LISTENING has said since this process began to join it */
	struct xts_sock *shared_next;

	/* connections: take_over.c */
	bool counted;       /* counted in stack->commons: it has an entry, or is being closed after it had one */
	bool close_waits;   /* closed while it was being given up: the closing thread goes on when that is done */
	uint8_t asked_for;  /* the purpose (as in TAKE) for which another process asks for it; 0: none asks */
	uint64_t polled_ns; /* since when others that wait for events have not been given it; 0: none has asked */
	uint32_t park_token;
	uint64_t used_ns;     /* when this process used it last */
	uint64_t taken_ns;    /* when it took it over last */
	uint64_t sought_ns;   /* a poll waits for it: when this process last asked for it */
	uint8_t sought_for;   /* the greatest purpose for which a call wanted it that could not wait */
	bool shuts_later;     /* it has shut it down, and has not had it since */
	bool silent;          /* such a call has waited for its holder in vain */
	uint64_t unknown_ns;  /* since when the proxy does not know its key; 0: it was never asked, or knew it */
	uint32_t pdu_read;    /* bytes of the next PDU to come that another process has read */
	uint64_t sent_before; /* sent_bytes when this process took it over */
	/* sockets that were passed to other programs, and those with a key that existed at a fork: passed_copies.h */
	bool has_deed;
	bool deed_is_shared; /* other processes may have the same open file */
	int deed_fd;
	int childs_deed; /* during a fork: the open file for the child; -1: there is none */
	struct deed_id deed_id;
	/* memory that all who have it share: shared_status.h; NULL: none. And its count of changes as last seen */
	struct shared_status *status, *deed_status;
	uint32_t status_seen;
	bool is_given; /* to programs that are started: given.h */
	int given_fd;  /* of the mirror that they get */
};

#endif
