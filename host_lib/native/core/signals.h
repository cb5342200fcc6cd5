/*
 * Signal handlers of the program are deferred ("put off") while their thread is inside the library.
 *
 * Theory of operation
 *
 * With kernel sockets a handler may fork, use sockets, or leave by siglongjmp(). A handler that ran in the middle of a
 * library call would wait for locks that its own thread holds. So the kernel is given one handler for all signals
 * (arrive()), the program's handlers are in a table, and each thread counts how deep it is inside the library
 * (xts_inside.depth). At depth 0 the program's handler is called at once. At a greater depth the signal is put off: its
 * siginfo is kept, and the interrupted code goes on with all signals blocked. The kernel keeps signals that arrive
 * meanwhile, so there is at most one to keep here, and no RT signal is lost. When the thread leaves the library and
 * holds no lock, the signal is sent to it again with the same siginfo, and the mask is restored: the kernel then
 * delivers it as usual, on the stack and with the mask and flags that the handler was installed with. Faults (SIGSEGV
 * and similar) are never put off.
 *
 * A signal that is put off ends an interruptible wait: the call returns -ERESTART to the place where the thread leaves
 * the library. It is made again from the beginning if the handler of that signal has SA_RESTART; otherwise it fails
 * with EINTR. No signal can be missed: while a thread sleeps, or is about to, xts_inside.limit points to the timeout of
 * its system call, and arrive() sets that to 0.
 *
 * This works for handlers that are installed by xts_sigaction(); the interposer calls it for all that a program
 * installs through the C library. Other handlers run at once, wherever the thread is. If such a handler has interrupted
 * a library call and forks, the fork() does not wait, but the child may only exec or _exit.
 */
#ifndef XTS_SIGNALS_H
#define XTS_SIGNALS_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <time.h>

#include <linux/time_types.h>

#include "xts.h"

#define MASK_BYTES sizeof(uint64_t) /* size of the kernel's signal sets; the C library's are larger */

#pragma GCC visibility push(default)

struct xts_sock;

/* State of this thread. */
struct xts_inside {
	volatile sig_atomic_t depth;              /* nesting of calls; above 0, handlers are put off */
	volatile sig_atomic_t locked;             /* in libxts, which may hold its lock */
	volatile sig_atomic_t put_off;            /* a signal has been put off, and all are blocked */
	volatile sig_atomic_t cut;                /* a signal has been put off since the last sleep */
	struct __kernel_timespec *volatile limit; /* the timeout of the present sleep, or of one about to begin */
	const sigset_t *volatile mask;            /* the mask in force during that sleep; NULL: the thread's own */
	volatile sig_atomic_t cancelled;          /* a wait has ended because the thread is to end: cancel.c */
	struct xts_sock *held;                    /* the socket of the present call (socket_hold()); NULL: none */
	int cancel_state;                         /* the program's, while the thread is inside */
};
extern __thread struct xts_inside xts_inside __attribute__((tls_model("initial-exec")));

/* whether a handler that was put off has run, and what that does to the interrupted call */
enum xts_ran { XTS_RAN_NONE, XTS_RAN_RESTARTS, XTS_RAN_ENDS };

enum xts_ran xts_run_put_off(void);

/* Cancellation is disabled inside: cancel.c. */
static inline void xts_go_in(void)
{
	xts_inside.depth++;
	__asm__ volatile("" ::: "memory");
	if (xts_inside.depth == 1)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &xts_inside.cancel_state);
}

/* Leaves the library with no lock held. Handlers that were put off run here, and may not return. errno is kept. */
static inline enum xts_ran xts_come_out(void)
{
	if (xts_inside.depth == 1) /* before a handler can run, which may go in itself */
		pthread_setcancelstate(xts_inside.cancel_state, NULL);
	__asm__ volatile("" ::: "memory");
	xts_inside.depth--;
	if (__builtin_expect(xts_inside.put_off | xts_inside.cancelled, 0) && !xts_inside.depth)
		return xts_run_put_off();
	return XTS_RAN_NONE;
}

/* Leaves a call that may be made again; restarts: the call has ended with ERESTART. True: the caller makes it again. */
bool xts_come_out_again(bool restarts);
bool signal_restarts(void);

/*
 * ppoll(2) and epoll_pwait2(2) of kernel descriptors, for a thread inside the library. A signal that is put off ends
 * them (EINTR), even if it came earlier, after the last such call. timeout NULL: none. The timeout is not changed.
 */
int xts_sleep_poll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask);
int xts_sleep_epoll(int set, struct epoll_event *events, int max, const struct timespec *timeout, const sigset_t *mask);

#pragma GCC visibility pop

/* Around fork(). */
void signals_before_fork(void);
void signals_after_fork_parent(void);
void signals_after_fork_child(void); /* signals that were put off belong to the parent */
void signals_orphaned(void);         /* the same in a child that nobody has expected: core/caller.h */

#endif
