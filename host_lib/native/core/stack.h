/*
 * A stack: the object that a thread locks to use its sockets.
 *
 * Theory of operation
 *
 * A stack has one lock, at most one live *channel* (channel.h), the sockets and polling contexts on it, and the threads
 * that wait for them. Stacks share nothing: a call on a socket of one takes no lock of another, and no call holds two
 * stacks' locks. process.h says in which stack a new socket is made, and what belongs to the process.
 *
 * A stack is for one endpoint. When a thread exits, or a program gives a stack up, the stack is abandoned: other
 * threads can still use its sockets, under its lock. When it has no sockets and no polling contexts left, its channel
 * is closed, and the stack is free for the next thread.
 *
 * The lock is never held while sleeping. Every public call is
 *
 *     st = stack_enter_of(number); r = ...; stack_leave(st); return r, or -1 and errno
 *
 * and works on the caller's thread: it receives frames from the queue (channel_pump), which changes sockets, and builds
 * frames in transmit slots; stack_leave() sends the frames that are left and rings the peer's doorbell once.
 *
 * A message that cannot leave at once for lack of frame credits (a close, an advert, small data already accepted) is
 * noted in the socket's todo bits, and the socket is in the channel's outbox until the message has left (outbox.h). If
 * the application sleeps elsewhere meanwhile, the progress thread sends it (progress_thread.h).
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
#include "processes/again.h"
#include "processes/inherit.h"
#include "waiting/progress_thread.h"
#include "core/wait.h"

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
	/* The owner; changed under the process's lock: choose_stack.c. */
	_Atomic uint8_t use;           /* STACK_FREE, or it has an owner */
	uint32_t place;                /* its index in the list, which is its number for the program */
	uint32_t slot;                 /* the thread, or the group of threads, that it is for; or STACK_EXPLICIT */
	char endpoint[ENDPOINT_BYTES]; /* empty: the process's default */
	bool abandoned;                /* its owner makes no new sockets: the stack ends when it has no sockets left */
	_Atomic uint32_t uses;         /* how often it has ended: distinguishes one use of this object from the next */
	_Atomic uint64_t lock_waits;   /* how often a thread found the lock taken */
	bool started;                  /* settings are complete */
	struct settings settings;
	struct channel *channel; /* the live channel or NULL */
	struct channel *dead;    /* channels to be released when no thread sleeps on them any more */
	bool attaching;
	uint32_t token; /* the token of the last request */
	int last_error; /* why the last channel ended or could not be opened */
	/* the same as a sentence, for a channel that could not be opened; else empty */
	char attach_error[ATTACH_ERROR_BYTES];

	/* sockets */
	struct block *blocks, *last_block; /* this stack's blocks of the socket table (socket_table.c) */
	struct xts_sock *free_sockets;
	uint32_t sockets;                /* sockets in use */
	unsigned asked;                  /* sockets that have sent since they last received */
	struct name_query *name_queries; /* queries that wait for an answer */
	uint8_t device_families;         /* XTS_FAMILY_*, from the last answer; 0: not known */
	struct piece *spare_pieces;      /* kept for the next message, so that no message allocates (received_data.c) */
	unsigned spare_piece_count;
	struct received_datagram *spare_datagrams; /* the same (datagram_queue.c) */
	unsigned spare_datagram_count;

	/* waiting */
	struct waiter *waiters, *leader;
	unsigned waiting;
	uint16_t attach_waiters, frame_waiters, poll_waiters, close_waiters, clock_waiters;
	uint16_t catch_up_waiters;
	/* spins to skip, and how many are left to skip: doubles with every spin that finds nothing */
	unsigned spin_skip, spin_skipped;
	struct waiter *spinning; /* polls instead of sleeping, or has done so in its wait (XTS_POLLING=always) */
	uint64_t spin_looked_ns; /* when it last looked at the kernel */
	uint64_t spin_told_ns;   /* when the status page was last told of that */
	uint64_t woken_ns; /* when somebody last woke and found frames; 0: it has not, or nobody asks (XTS_WAKEUP_GAP_US) */
	struct bells bells;
	struct progress progress;
	struct epoll_ctx *contexts;
	unsigned idle_contexts; /* polling contexts whose descriptor the application may be sleeping on */
	/* what threads outside of its waits may be waiting for: mirrors, and watches of other stacks' contexts */
	unsigned outside;
	struct xts_sock *dirty; /* sockets whose mirror is out of date */

	/* other processes: inherit.h */
	struct xts_sock *shared;      /* this process's shared listeners */
	struct xts_sock *to_join;     /* inherited listeners that it has not joined */
	bool joint;                   /* some of them belong, or belonged, to other processes too */
	unsigned untaken;             /* inherited sockets not taken over yet */
	unsigned moving;              /* connections that are being given up */
	unsigned commons;             /* connections of which other processes may have a copy */
	bool asked_to_yield;          /* other processes ask for some of them */
	uint64_t looks_at_copies_ns;  /* when to look again which processes have one */
	uint64_t looks_at_commons_ns; /* when the next periodic look is due */
	uint64_t looks_at_keys_ns;    /* the same, for keys of shared sockets (key_renewal.h) */

	struct again again;

	/* counters */
	uint64_t not_inherited; /* sockets that could not be kept over fork or exec */
	uint64_t spins, sleeps, bad_ids, bad_messages;
	uint64_t spin_misses, spin_ns; /* spins that found nothing; the time that all spins took, without yields */
	uint64_t sent_bytes, received_bytes; /* of all sockets, since the process began or was forked */
	uint64_t cpu_written_ns;             /* figures (status_figures.c): when the CPU time was written */
	uint32_t counts_written;             /* for the same: the counts that were written */
	uint32_t lose_ppm, lose_next;        /* simulated_loss.c */
	uint64_t lose_random;
};

/* Initialises zeroed memory. */
void stack_init(struct stack *st);
/* The stack makes no new sockets. Called under its lock: ends it, if it has no sockets and contexts. */
void stack_end_if_empty(struct stack *st);

void stack_lock(struct stack *st);           /* takes only the lock, within a call; counts waits */
struct stack *stack_enter(struct stack *st); /* locks it; returns it */
/* Enters the stack of this socket, or the caller's own if no socket has the number. */
struct stack *stack_enter_of(int number);
struct stack *stack_enter_own(void); /* enters the caller's own, in which its new sockets are made */
void stack_leave(struct stack *st);
/* As stack_leave(), with the result of a call that may be interrupted. True: the result is -ERESTART, and the call has
 * to be made again from the beginning. If it shall not be, -ERESTART becomes -EINTR, unless the caller is still inside
 * the library (signals.h) and decides itself. */
bool stack_leave_interrupted(struct stack *st, ssize_t *result);
static inline bool stack_restarts(struct stack *st, ssize_t *result)
{
	if (__builtin_expect(*result == -ERESTART, 0))
		return stack_leave_interrupted(st, result);
	stack_leave(st);
	return false;
}
/* To be called before the lock is released for anything other than a wait of wait.c: sends what was queued, and arms
 * the doorbell for a thread that sleeps on the queue outside those waits. */
void stack_rest(struct stack *st);
void stack_settle(struct stack *st); /* waits for all messages to leave: a second, or 10 if a proxy is about to come */

#endif
