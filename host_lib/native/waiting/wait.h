/*
 * Waiting and waking: wait.c; bells, which wake a sleeping thread: bell.c.
 *
 * A call that has to wait names a *subject*, a counter of its waiters inside the thing that must change. One waiting
 * thread of a stack, the leader, sleeps on the queue for all; the others on a bell (eventfd) of their own. Whoever
 * changes something wakes the subject. The caller remembers nothing over a wait: it looks up its socket again and reads
 * stack->channel again, since both may have gone.
 */
#ifndef XTS_WAIT_H
#define XTS_WAIT_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/clock.h"
#include "core/error.h"
#include "xts_private.h"

struct channel;
struct stack;
struct xts_sock;

#define PATIENCE 4u

/* A thread that has waited: its bell rings (becomes readable) when it is woken. */
struct thread {
	struct thread *next, *previous;
	struct stack *own;      /* of the setting's choice; NULL: not chosen yet */
	struct stack *chosen;   /* by the program; else NULL */
	uint32_t chosen_use;    /* and in which use of it */
	uint32_t ordinal;       /* from 1 on, by when it first made a socket; 0: has not */
	struct stack *promised; /* where batching or holding is */
	struct stack *turn;     /* where xts_flush() ends a turn */
	int bell;               /* an eventfd, its own or the spare one: bell.c */
	bool shares_bell, rung; /* it has the spare; which was rung for it */
	bool sleeping;          /* in poll: ring to wake it */
	bool batching;          /* the thread has promised to come back: no doorbell until then */
	/* will probably come back: none until then, or until the progress thread's clock strikes */
	bool holding;
};

struct waiter {
	struct stack *stack;
	struct waiter *next, *previous;
	uint16_t *subject;
	struct thread *thread;
	bool woken;
};

#define SLEEP_FDS 3 /* bell, queue, attach connection */

/* What a wait watches besides its subject: kernel descriptors and, while it sleeps, another signal mask. */
struct watched_fds {
	struct pollfd *fds;   /* the first SLEEP_FDS are wait.c's own */
	nfds_t count;         /* of the others */
	const sigset_t *mask; /* NULL: leave it */
	bool patient;         /* spins PATIENCE times as long */
	bool looked;          /* the revents are those of this wait */
	bool ready;           /* one of them is */
};

/* Sleeps until the subject is woken: 0, -ETIMEDOUT at deadline_ns, -ENOBUFS. Gives up the lock meanwhile. */
int wait_for(struct stack *st, uint16_t *subject, uint64_t deadline_ns, bool spin);
/* The same, but a signal ends it: -EINTR. */
int wait_interruptibly(struct stack *st, uint16_t *subject, uint64_t deadline_ns, bool spin);
/* The same; 0 also when watched->ready. */
int wait_watching(struct stack *st, uint16_t *subject, uint64_t deadline_ns, bool spin, struct watched_fds *watched);
extern struct xts_kernel_calls kernel_calls;
void wake(struct stack *st, uint16_t *subject);
void wake_all(struct stack *st);
void wake_sleepers_on_queue(struct stack *st); /* to look again at how long they may sleep */
void thread_ring(struct stack *st, struct thread *thread);
int sleep_on_bell(struct stack *st, struct thread *thread, struct watched_fds *watched, uint64_t deadline_ns);
int sleep_on_channel(struct channel *c, struct thread *thread, struct watched_fds *watched, uint64_t deadline_ns);
/* In a call that sends: waits until there is room, or s has changed otherwise. 0: look again; else what the call
 * returns: -EBADF: s was closed meanwhile, and is not to be touched (socket.h); -EAGAIN: the deadline is over;
 * -ERESTART or -EINTR, as interrupted() has it; -ENOBUFS. */
int wait_to_send(struct xts_sock *s, uint64_t deadline_ns, bool spin);
/* The same in a call that receives or accepts. */
int wait_to_receive(struct xts_sock *s, uint64_t deadline_ns, bool spin);
/* After -EINTR: what the call ends with. One that has a timeout is never made again (signal(7)). */
static inline int interrupted(uint64_t timeout_ns)
{
	return timeout_ns == FOREVER ? -ERESTART : -EINTR;
}

struct thread *thread_self(struct stack *st); /* NULL: no memory, or no bell available */

/* Threads that have no bell of their own share this one of their stack. */
struct bells {
	int spare;      /* -1: none yet */
	unsigned meant; /* threads that it was rung for, and that have not noticed yet */
};

void bell_reserve(struct stack *st);               /* the spare; once attached there is one */
bool bell_get(struct stack *st, struct thread *t); /* false: there is none */
/* t is awake again, and its bell was ringing or not */
void bell_heard(struct stack *st, struct thread *t, bool ringing);
void bell_give_up(struct thread *t); /* of a thread that ends */
void bells_forget(struct stack *st); /* in a forked child: they are its parent's */

#endif
