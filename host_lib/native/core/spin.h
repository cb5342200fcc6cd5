/*
 * Waiting on the processor.
 *
 * A thread that is about to wait spins for XTS_SPIN_US at most, if it is the only one of its stack and exactly one
 * socket awaits an answer. After spins that found nothing it skips more and more of them.
 *
 * With XTS_POLLING=always the leader (wait.c) never sleeps while the stack has a socket: it looks at the queue all the
 * time, and at kernel descriptors, signals and the attach connection between. Other waiting threads of the stack sleep
 * until it wakes them, since two that poll one queue only take the lock from one another.
 *
 * A wait that spinning has ended is a hit; one that spinning has not ended, a miss. Both are counted, and the time.
 */
#ifndef XTS_SPIN_H
#define XTS_SPIN_H

#include "core/stack.h"
#include "core/wait.h"

/* Before a wait: is it likely enough that it ends soon? */
static inline bool spin_is_worth_it(const struct stack *st, const struct watched_fds *watched)
{
	/* kernel descriptors: looking at more of them costs more than the spin saves */
	const nfds_t watched_max = 8;

	return st->waiting == 1 && st->asked == 1 && st->settings.spin_us != SPIN_NEVER && !st->settings.polls_always &&
	       (!watched || watched->count <= watched_max);
}

/* Spins for as long as the setting says, at most. */
void spin(struct waiter *w, struct watched_fds *watched, uint64_t deadline_ns);

static inline bool spin_always(const struct stack *st)
{
	return st->settings.polls_always && st->sockets;
}

/* The leader polls for a while; w->woken, or it is to be called again. Result as of sleep_on_channel(). */
int spin_as_leader(struct waiter *w, struct watched_fds *watched, uint64_t deadline_ns);
/* Its wait is over; other: because of a kernel descriptor, which is neither hit nor miss. */
void spin_ends(struct waiter *w, bool other);

#endif
