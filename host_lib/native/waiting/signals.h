/*
 * Signal handlers of the program, put off while their thread is inside the library.
 *
 * Theory of operation
 *
 * A handler may do what it likes on the kernel: fork, use sockets, leave by siglongjmp(). One that runs in the middle
 * of a call of ours would wait for locks that its own thread holds. So the kernel is given one handler for all
 * (arrive()), the program's are in a table, and each thread counts how deep it is inside (xts_inside.depth). At depth 0
 * the program's handler is called at once. Above, the signal is put off: its siginfo is kept, the interrupted code goes
 * on with all signals blocked (the kernel keeps what comes meanwhile; so there is at most one to keep, and RT signals
 * lose none), and where the thread comes out, with nothing held, the signal is sent to it again with the same siginfo
 * and the mask is as it was: the kernel then delivers it as any other, on the stack, with the mask and the flags it was
 * installed with. Faults (SIGSEGV and its like) are never put off.
 *
 * A wait that signals end is ended by one that has been put off: calls return -ERESTART to where the thread comes out,
 * and are made again from the beginning if that very handler has SA_RESTART, else they fail with EINTR. There is no
 * moment at which a signal is missed: while a thread sleeps, or is about to, xts_inside.limit points to the time its
 * system call will sleep for, and arrive() sets it to nothing.
 *
 * Handlers are seen that are installed by xts_sigaction(): by the interposer all that a program installs by the C
 * library. Others run at once, wherever the thread is: a fork() in one that interrupted a call does not wait, but its
 * child may only exec or _exit.
 */
#ifndef XTS_SIGNALS_H
#define XTS_SIGNALS_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <time.h>

#include <linux/time_types.h>

#include "xts.h"

#pragma GCC visibility push(default)

/* Of this thread. */
struct xts_inside {
	volatile sig_atomic_t depth;              /* calls within calls; above 0 handlers are put off */
	volatile sig_atomic_t locked;             /* in libxts, which may hold its lock */
	volatile sig_atomic_t put_off;            /* a signal is, and all are blocked */
	volatile sig_atomic_t cut;                /* one has been since the last sleep */
	struct __kernel_timespec *volatile limit; /* of the sleep the thread is in, or about to begin */
	const sigset_t *volatile mask;            /* in force during it; NULL: the thread's own */
};
extern __thread struct xts_inside xts_inside __attribute__((tls_model("initial-exec")));

/* what was put off, and what it does to an interrupted call */
enum xts_ran { XTS_RAN_NONE, XTS_RAN_RESTARTS, XTS_RAN_ENDS };

enum xts_ran xts_run_put_off(void);

static inline void xts_go_in(void)
{
	xts_inside.depth++;
	__asm__ volatile("" ::: "memory");
}

/* Nothing is held any more. Handlers that were put off run here, and may not return. errno is kept. */
static inline enum xts_ran xts_come_out(void)
{
	__asm__ volatile("" ::: "memory");
	xts_inside.depth--;
	if (__builtin_expect(xts_inside.put_off, 0) && !xts_inside.depth)
		return xts_run_put_off();
	return XTS_RAN_NONE;
}

/* Comes out of a call that may be made again; restarts: it has ended with ERESTART. True: it is to be made again. */
bool xts_come_out_again(bool restarts);
bool signal_restarts(void);

/*
 * ppoll(2) and epoll_pwait2(2) of kernel descriptors, for a thread that is inside: a signal that is put off ends them
 * (EINTR), also one that came since the last of them. timeout NULL: none. The timeout is not changed.
 */
int xts_sleep_poll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask);
int xts_sleep_epoll(int set, struct epoll_event *events, int max, const struct timespec *timeout, const sigset_t *mask);

#pragma GCC visibility pop

/* Around fork(). */
void signals_before_fork(void);
void signals_after_fork_parent(void);
void signals_after_fork_child(void); /* what was put off is the parent's */

#endif
