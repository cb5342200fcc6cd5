/*
 * A channel goes to another process of the proxy, which takes this one's place: PROTOCOL.md, "Upgrade".
 *
 * Theory of operation
 *
 * Links, rings and credits are not handed over. The process that has the channel says MOVE; the host finishes its calls
 * and answers MOVE_ACK, its last message of this epoch. Then the channel is *left* (turns/leave.c): GOODBYE with
 * ERESTART is its last frame, and nothing more is received or written. Frames arrive in order and none is lost, so each
 * side has everything that the other one has sent, and nothing is under way. A host that has nothing under way need not
 * answer, since GOODBYE acknowledges all that has come: so it may sleep, or be stopped.
 *
 * What is left are TCP sides, listening sockets and datagram sockets. Each becomes a record and a descriptor, under a
 * *key* made of the ticket in MOVE and its identifier here. The supervisor takes them, some at a time, and at last the
 * queue, with which the channel is freed (loop/move_requests.c). What cannot be handed over is closed then: made again
 * by the host's library, or reset.
 *
 * The next process keeps each of them as a parked connection (move.c), and then gets the queue. The host says HELLO
 * there with the epoch that it has, and CLAIM with the keys. Until then they belong to its channel (channel->returning)
 * and end with it. Both halves are the same in a worker that takes back what it has given.
 */
#ifndef XTS_MOVE_H
#define XTS_MOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "link/link.h"
#include "processes/heard.h"

struct channel;

/* How a channel leaves; NULL in most. */
struct move_out {
	uint64_t ticket;
	uint64_t asked_ns; /* when MOVE was sent */
	uint64_t until_ns; /* then it is left in any case */
	uint64_t received; /* messages that had come then */
	uint64_t epoch;    /* of its host; 0: it has none */
	uint8_t *session;  /* of its queue (xts_queue_settle()) */
	uint32_t session_bytes;
	uint8_t *known; /* of a trunk: of the hosts behind it (struct identity) */
	uint32_t known_bytes;
	uint32_t parked; /* connections that went with it, and no process holds */
	uint32_t reset;  /* connections that could not be handed over, and were not reported yet */
	bool said;       /* of a trunk: MOVE was sent; the channels behind it hear it first */
	bool parted;     /* of a trunk: those have been left */
	bool acked;      /* the host has sent its last message */
	bool ends;       /* its epoch ends, and then the queue is left */
	bool left;
	bool settled; /* the session is there, or there is none */
};

/* The key of a socket of this identifier. Never 0. */
static inline uint64_t move_key(uint64_t ticket, uint32_t proxy_id)
{
	return (ticket & ~(uint64_t)UINT32_MAX) | proxy_id;
}

struct handed;
struct move_head;
struct move_note;
struct parked;
struct parked_facts;
struct worker_state;
struct xts_tenant;
struct xts_resumed;

/* A socket has come: it is kept, and `come` is empty then. facts: what its kernel says; NULL: it was not asked. 0 or
 * -errno. */
int move_arrive(struct worker_state *w, struct xts_tenant *t, const struct move_head *h, struct handed *come,
		const struct parked_facts *facts);
/* That socket is a shared one. -EBADMSG: there is none of this key that could be. Takes the lock. */
int move_arrives_shared(struct worker_state *w, const struct xts_tenant *t, const struct move_note *n);
/* Ends those that no channel has collected: whoever has given them has ended, and will bring none. */
void move_forget_arrived(struct worker_state *w);
/* Those of this ticket belong to the channel. Takes the lock. */
void move_collect(struct worker_state *w, struct channel *ch, const struct xts_tenant *t, uint64_t ticket);
/* With the lock held: what waits goes to TCP from now on. */
void move_deliver(struct parked *p, struct worker_state *w);
/* Those of this ticket belong to this channel from now on, and not to its trunk. Takes the lock. */
void move_pass(struct channel *trunk, struct channel *ch, uint64_t ticket);
/* Its host has not claimed anything so far, and it goes on to the next process: the next socket that waits for the
 * host, with the head of its record, and a note (without a name: none). False: there is none. Takes the lock. */
bool move_next_unclaimed(struct channel *ch, struct move_head *h, struct move_note *n, struct handed *next);
/* The same of a connection of its tenant that no process holds. */
bool move_next_parked(struct channel *ch, struct move_head *h, struct move_note *n, struct handed *next);
/* In place of the identifier of a socket, for one that no host has: numbers from 1 to MOVE_NO_SOCKETS. */
#define MOVE_NO_SOCKETS 0xfffu
uint32_t move_no_socket(uint32_t number);
/* Of this channel's first identifiers: none is one that the process before has given to what its host has not claimed
 * yet. Should this process die, its host claims both from the next one, which has to tell them apart. */
uint16_t move_generation(const struct channel *ch);
/* The channel ends, or its host has claimed all that it has: sockets that have come for it, and were not claimed, are
 * reset, or left to the processes that have them too. */
void move_unclaimed_end(struct channel *ch, bool all_are_claimed);
void move_free(struct channel *ch);

/* --- move_relayed.c ----------------------------------------------------------------------------------------------- */

/* The trunk has come from another process, with the channels behind it. Their sockets are the trunk's until its link
 * opens. 0 or -ENOMEM. */
int move_expect(struct channel *trunk, const struct xts_resumed *how);
/* The link is open: they are there. 0 or -errno. */
int move_expected_come(struct channel *trunk);
/* The tenant of the one whose host has this epoch; NULL: there is none. */
struct xts_tenant *move_expected_tenant(const struct channel *trunk, uint64_t epoch);
/* They do not come: it is another relay. */
void move_expect_none(struct channel *trunk);

/* One of them, whose process has died (turns/replay.h). */
struct move_replayed {
	struct xts_tenant *tenant; /* a reference */
	uint64_t ticket, epoch;
	struct xts_link_replay replay;
	struct heard_frames heard;
	int ended; /* its host has said GOODBYE: an errno, ESHUTDOWN in good order. 0: it has not */
};
/* NULL: there is none of this number. */
struct move_replayed *move_expected_replayed(struct channel *trunk, uint32_t number);

#endif
