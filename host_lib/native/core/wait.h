/*
 * Waiting and waking: wait.c; bells, which wake a sleeping thread: bell.c.
 *
 * A call that has to wait names a *subject*: a counter of waiters inside the object that must change. One waiting
 * thread of a stack, the leader, sleeps on the queue for all; the others sleep on their own bells (eventfds). Code that
 * changes an object wakes its subject. A caller keeps no pointer over a wait: it looks up its socket again and reads
 * stack->channel again, since both may be gone.
 */
#ifndef XTS_WAIT_H
#define XTS_WAIT_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
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
	pthread_t id;
	_Atomic bool cancelled; /* somebody has asked that it ends: cancel.c */
	struct stack *own;      /* the stack that XTS_STACKS gives it; NULL: none so far */
	struct stack *chosen;   /* the stack that the program chose; else NULL */
	uint32_t chosen_use;    /* the use of that stack for which it was chosen */
	uint32_t ordinal;       /* from 1 on, in the order of the first sockets; 0: no socket so far */
	struct stack *promised; /* the stack for which it is batching or holding */
	struct stack *turn;     /* the stack whose turn xts_flush() ends */
	int bell;               /* an eventfd, its own or the spare one: bell.c */
	bool shares_bell, rung; /* it uses the spare bell; the spare was rung for this thread */
	bool sleeping;          /* in poll: ring to wake it */
	bool batching;          /* the thread has promised to come back: no doorbell until then */
	/* the thread will probably come back: no doorbell until then, or until the progress thread's timer expires */
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
	nfds_t count;         /* how many others */
	const sigset_t *mask; /* NULL: the mask stays */
	bool patient;         /* spins PATIENCE times as long */
	bool looked;          /* the revents are from this wait */
	bool ready;           /* one of the descriptors is ready */
};

/* Sleeps until the subject is woken: 0, -ETIMEDOUT at deadline_ns, -ENOBUFS. Releases the lock meanwhile. */
int wait_for(struct stack *st, uint16_t *subject, uint64_t deadline_ns, bool spin);
/* The same for one of s's own subjects. -EBADF: it was closed meanwhile, and must not be touched (core/socket.h). */
int socket_wait(struct xts_sock *s, uint16_t *subject, uint64_t deadline_ns, bool spin);
/* Nobody wakes it: handles what comes until this time has passed. 0, -ENOBUFS. */
int wait_a_while(struct stack *st, uint64_t pause_ns);
/* As wait_for(), but a signal ends it: -EINTR. */
int wait_interruptibly(struct stack *st, uint16_t *subject, uint64_t deadline_ns, bool spin);
/* The same; 0 also when watched->ready. */
int wait_watching(struct stack *st, uint16_t *subject, uint64_t deadline_ns, bool spin, struct watched_fds *watched);
extern struct xts_kernel_calls kernel_calls;
void wake(struct stack *st, uint16_t *subject);
void wake_all(struct stack *st);
void wake_sleepers_on_queue(struct stack *st); /* so that they compute again how long they may sleep */
void thread_ring(struct stack *st, struct thread *thread);
int sleep_on_bell(struct stack *st, struct thread *thread, struct watched_fds *watched, uint64_t deadline_ns);
/* Sleeps on the armed queue, then handles the frames that have come. */
int sleep_on_channel(struct channel *c, struct thread *thread, struct watched_fds *watched, uint64_t deadline_ns);
/* Has somebody woken for frames so lately that it must not do so again yet (XTS_WAKEUP_GAP_US)? Then sleeps until it
 * may, without the queue, handles the frames that have come, and *r is as of sleep_on_channel(). */
bool wait_for_gap(struct channel *c, struct thread *thread, struct watched_fds *watched, uint64_t deadline_ns, int *r);
/* ppoll() until the deadline (0: does not sleep), on our own descriptors and on the watched ones. Returns 0; 1: a
 * watched one is ready; -ETIMEDOUT, -EINTR. Without the lock. */
int poll_until(struct pollfd own[SLEEP_FDS], struct watched_fds *watched, uint64_t deadline_ns);
/* In a call that sends: waits until there is room, or s has changed in another way. 0: look again. Otherwise it returns
 * the result of the call: -EBADF: s was closed meanwhile and must not be touched (socket.h); -EAGAIN: the deadline has
 * passed; -ERESTART or -EINTR, as interrupted() decides; -ENOBUFS. */
int wait_to_send(struct xts_sock *s, uint64_t deadline_ns, bool spin);
/* The same in a call that receives or accepts. */
int wait_to_receive(struct xts_sock *s, uint64_t deadline_ns, bool spin);
/* The result of a call that got -EINTR. A call with a timeout is never made again (signal(7)). */
static inline int interrupted(uint64_t timeout_ns)
{
	return timeout_ns == FOREVER || xts_inside.cancelled ? -ERESTART : -EINTR;
}

/* cancel.c. Is the thread, which waits, to end? Then it goes out, and does. */
bool cancel_is_due(struct thread *thread);
void cancel_run(void); /* outside: ends the thread, if there is a request */

struct thread *thread_self(struct stack *st); /* NULL: no memory, or no bell available */

/* Threads that have no bell of their own share this one of their stack. */
struct bells {
	int spare;      /* -1: none so far */
	unsigned meant; /* how many threads it was rung for that have not noticed yet */
};

int bell_make(void);                               /* -1: no descriptor is available */
void bell_reserve(struct stack *st);               /* makes the spare, when the stack attaches */
bool bell_get(struct stack *st, struct thread *t); /* false: there is none */
/* t is awake again, and its bell was ringing or not */
void bell_heard(struct stack *st, struct thread *t, bool ringing);
void bell_give_up(struct thread *t); /* of a thread that is ending */
void bells_forget(struct stack *st); /* in a forked child: they belong to the parent */

#endif
