/*
 * A stack: what a thread that uses sockets locks.
 *
 * Theory of operation
 *
 * A stack has one lock, at most one live *channel* (channel.h), the sockets and polling contexts on it, and the threads
 * that wait for them. Stacks share nothing: a call on a socket of one takes no lock of another, and no call holds two
 * stacks' locks. Which stack a new socket comes into, and what is the process's, is in process.h.
 *
 * A stack is for one endpoint. A thread that exits, or a program that gives a stack up, abandons it: other threads can
 * still use its sockets, under its lock; when it has no sockets and no polling contexts any more its channel is closed,
 * and the stack is free for the next thread.
 *
 * The lock is never held while sleeping. Every public call is
 *
 *     st = stack_enter_of(number); r = ...; stack_leave(st); return r, or -1 and errno
 *
 * and works on the caller's thread: it takes frames from the queue (channel_pump), which changes sockets, builds frames
 * in transmit slots, and stack_leave() sends what is left to send and rings the peer once.
 *
 * What cannot leave at once for want of frame credits (a close, an advert, small data already accepted) is noted in the
 * socket's todo bits, and the socket is in the channel's outbox until it has left (outbox.h). If the application sleeps
 * elsewhere meanwhile, the progress thread (progress_thread.h) sees to it.
 */
#ifndef XTS_STACK_H
#define XTS_STACK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/channel.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/settings.h"
#include "processes/inherit.h"
#include "waiting/progress_thread.h"
#include "waiting/wait.h"

struct block;
struct epoll_ctx;
struct name_query;
struct piece;
struct received_datagram;
struct xts_sock;

#define STACK_EXPLICIT UINT32_MAX

enum { STACK_FREE, STACK_USED };

struct stack {
	pthread_mutex_t lock;
	struct stack *_Atomic next; /* in order of creation; stacks are never freed */
	/* Whose it is; changed under the process's lock: choose_stack.c. */
	_Atomic uint8_t use;           /* STACK_FREE, or it is somebody's */
	uint32_t place;                /* in the list: its number for the program */
	uint32_t slot;                 /* the thread, or the group of threads, that it is for; or STACK_EXPLICIT */
	char endpoint[ENDPOINT_BYTES]; /* empty: the process's */
	bool abandoned;                /* its owner makes no new sockets: it ends when it has none any more */
	_Atomic uint32_t uses;         /* ended so far: distinguishes one use of this object from the next */
	_Atomic uint64_t lock_waits;   /* a thread found the lock taken */
	bool started;                  /* settings are complete */
	struct settings settings;
	struct channel *channel; /* the live one or NULL */
	struct channel *dead;    /* to be released when nobody sleeps on them any more */
	bool attaching;
	uint32_t token;                        /* of the last request */
	int last_error;                        /* why the last channel ended or could not be opened */
	char attach_error[ATTACH_ERROR_BYTES]; /* the same of one that could not be opened, as a sentence; else empty */

	/* sockets */
	struct block *blocks, *last_block; /* of the table, this stack's (socket_table.c) */
	struct xts_sock *free_sockets;
	uint32_t sockets;                /* in use */
	unsigned asked;                  /* sockets that have sent since they last received */
	struct name_query *name_queries; /* that wait for an answer */
	uint8_t device_families;         /* XTS_FAMILY_*, by the last answer; 0: not known */
	struct piece *spare_pieces;      /* kept for the next message, so that none allocates (buffer.c) */
	unsigned spare_piece_count;
	struct received_datagram *spare_datagrams; /* likewise (datagram_queue.c) */
	unsigned spare_datagram_count;

	/* waiting */
	struct waiter *waiters, *leader;
	unsigned waiting;
	uint16_t attach_waiters, frame_waiters, poll_waiters, close_waiters, clock_waiters;
	/* spins to skip, and how many are left to skip: doubles with every one in vain */
	unsigned spin_skip, spin_skipped;
	struct bells bells;
	struct progress progress;
	struct epoll_ctx *contexts;
	unsigned idle_contexts; /* polling contexts whose descriptor the application may be sleeping on */
	unsigned mirrors;
	struct xts_sock *dirty; /* sockets whose mirror is out of date */

	/* other processes: inherit.h */
	struct xts_sock *shared;      /* this process's shared listeners */
	struct xts_sock *to_join;     /* inherited listeners that it has not joined */
	bool joint;                   /* some of them are, or were, other processes' too */
	unsigned untaken;             /* inherited sockets not taken over yet */
	unsigned moving;              /* connections that are being given up */
	unsigned commons;             /* connections of which other processes may have a copy */
	bool asked_to_yield;          /* others ask for some of them */
	uint64_t looks_at_copies_ns;  /* when to look again who has one */
	uint64_t looks_at_commons_ns; /* when to look after them at all */

	/* counted */
	uint64_t not_inherited; /* sockets that could not be kept over fork or exec */
	uint64_t spins, sleeps, bad_ids, bad_messages;
	uint64_t spin_misses, spin_ns;       /* spins that found nothing; what all spins took */
	uint64_t sent_bytes, received_bytes; /* of all sockets ever, since the process began or was forked */
	uint64_t cpu_written_ns;             /* figures (status_figures.c): when the CPU time was written */
	uint32_t counts_written;             /* likewise: the counts that were */
	uint32_t lose_ppm, lose_next;        /* simulated_loss.c */
	uint64_t lose_random;
};

/* Of zeroed memory: sets what is not zero at the beginning. */
void stack_init(struct stack *st);
/* No new sockets are made in it. Under its lock: ends it, if it has no sockets and contexts. */
void stack_end_if_empty(struct stack *st);

void stack_lock(struct stack *st);           /* the lock alone, within a call; waits are counted */
struct stack *stack_enter(struct stack *st); /* locks it; returns it */
/* the one this socket is in, or for a number nobody has the caller's own */
struct stack *stack_enter_of(int number);
struct stack *stack_enter_own(void); /* the caller's own: where its new sockets come */
void stack_leave(struct stack *st);
/* Leaves, as stack_leave(), with the result of a call that may be interrupted. True: it is -ERESTART, and the call
 * is to be made again from the beginning. One that is not becomes -EINTR, unless the caller is inside still
 * (signals.h) and decides itself. */
bool stack_leave_interrupted(struct stack *st, ssize_t *result);
static inline bool stack_restarts(struct stack *st, ssize_t *result)
{
	if (__builtin_expect(*result == -ERESTART, 0))
		return stack_leave_interrupted(st, result);
	stack_leave(st);
	return false;
}
/* Before the lock is given up for anything but a wait of wait.c: sends what was queued, and arms the doorbell for a
 * thread that sleeps on the queue outside of our waits. */
void stack_rest(struct stack *st);
void stack_settle(struct stack *st); /* waits, a second at most, until all messages have left */

#endif
