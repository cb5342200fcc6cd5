/*
 * Signal handlers: all installations through the C library's functions come here, and libxts keeps the handler
 * (signals.h): it runs when its thread holds no lock of ours. signal(), sigset() and siginterrupt() are replaced too,
 * since the C library's versions call its own sigaction(), not ours.
 */
#include "preload.h"

#include <pthread.h>

#define SIGNALS 64

static _Atomic bool lent;
static _Atomic bool interrupts[SIGNALS + 1]; /* set by siginterrupt(): signal() installs without SA_RESTART */

void preload_lend_calls(void)
{
	const struct xts_kernel_calls calls = { .epoll_wait = real()->epoll_wait,
						.syscall = real()->syscall,
						.sigaction = real()->sigaction,
						.getsockopt = real()->getsockopt,
						.pthread_cancel = real()->pthread_cancel };

	xts_use_kernel_calls(&calls);
	lent = true;
}

/* NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
__attribute__((weak)) void __tsan_init(void);

/* The constructors of other libraries may run before ours. A thread sanitizer that is in the program itself begins even
 * earlier, and none of the calls that it watches may be made before it has begun: what it installs is the kernel's. */
static int change(int number, const struct sigaction *action, struct sigaction *old)
{
	if (!lent && __tsan_init)
		return real()->sigaction(number, action, old);
	if (!lent)
		preload_lend_calls();
	return xts_sigaction(number, action, old);
}

EXPORT int sigaction(int number, const struct sigaction *restrict action, struct sigaction *restrict old)
{
	return change(number, action, old);
}
int __sigaction(int number, const struct sigaction *restrict action, struct sigaction *restrict old)
	__attribute__((nothrow, leaf, alias("sigaction"))) EXPORT;

/* --- older names -------------------------------------------------------------------------------------------------- */

static __sighandler_t install(int number, struct sigaction *action)
{
	struct sigaction old;

	if (action->sa_handler == SIG_ERR || number < 1 || number > SIGNALS) {
		errno = EINVAL;
		return SIG_ERR;
	}
	return change(number, action, &old) < 0 ? SIG_ERR : old.sa_handler;
}

EXPORT __sighandler_t signal(int number, __sighandler_t handler)
{
	struct sigaction action = { .sa_handler = handler };

	if (number >= 1 && number <= SIGNALS) {
		sigaddset(&action.sa_mask, number);
		action.sa_flags = interrupts[number] ? 0 : SA_RESTART;
	}
	return install(number, &action);
}
__sighandler_t bsd_signal(int number, __sighandler_t handler) __attribute__((alias("signal"))) EXPORT;
__sighandler_t ssignal(int number, __sighandler_t handler) __attribute__((alias("signal"))) EXPORT;

/* The signal() of System V, which programs compiled for it get as signal(): the handler runs once, and the signal is
 * not blocked meanwhile. */
EXPORT __sighandler_t __sysv_signal(int number, __sighandler_t handler)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER) };

	return install(number, &action);
}
__sighandler_t sysv_signal(int number, __sighandler_t handler) __attribute__((alias("__sysv_signal"))) EXPORT;

EXPORT int siginterrupt(int number, int interrupt)
{
	struct sigaction action;

	if (change(number, NULL, &action) < 0)
		return -1;
	if (number <= SIGNALS)
		interrupts[number] = interrupt;
	action.sa_flags = interrupt ? action.sa_flags & ~SA_RESTART : action.sa_flags | SA_RESTART;
	return change(number, &action, NULL);
}

EXPORT __sighandler_t sigset(int number, __sighandler_t handler)
{
	struct sigaction action = { .sa_handler = handler }, old;
	sigset_t one, before;

	if (handler == SIG_ERR || number < 1 || number > SIGNALS) {
		errno = EINVAL;
		return SIG_ERR;
	}
	sigemptyset(&one);
	sigaddset(&one, number);
	if (change(number, handler == SIG_HOLD ? NULL : &action, &old) < 0 ||
	    sigprocmask(handler == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, &one, &before) < 0)
		return SIG_ERR;
	return sigismember(&before, number) ? SIG_HOLD : old.sa_handler;
}

/* --- sleeping only in the kernel, inside -------------------------------------------------------------------------- */

/*
 * Here no bell ends the sleep, so the thread has to end in the middle of it: undo() takes back what the caller and its
 * callers have done. For that short time cancellation is as the program has it, and asynchronous, since the system call
 * is made directly.
 */
static void cancelled(void *undo)
{
	const struct preload_undo *u = undo;

	if (u && u->undo)
		u->undo(u->argument);
	xts_inside.limit = NULL;
	xts_inside.mask = NULL;
	xts_inside.depth = 0;
}

static int cancellable_begins(void)
{
	int type;

	pthread_setcancelstate(xts_inside.cancel_state, NULL);
	/* NOLINTNEXTLINE(concurrency-thread-canceltype-asynchronous) */
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	return type;
}

static void cancellable_ends(int type)
{
	pthread_setcanceltype(type, NULL);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}

int preload_sleep_poll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask,
		       const struct preload_undo *undo)
{
	int type, r;

	pthread_cleanup_push(cancelled, (void *)undo);
	type = cancellable_begins();
	r = xts_sleep_poll(fds, count, timeout, mask);
	cancellable_ends(type);
	pthread_cleanup_pop(0);
	return r;
}

int preload_sleep_epoll(int set, struct epoll_event *events, int max, const struct timespec *timeout,
			const sigset_t *mask, const struct preload_undo *undo)
{
	int type, r;

	pthread_cleanup_push(cancelled, (void *)undo);
	type = cancellable_begins();
	r = xts_sleep_epoll(set, events, max, timeout, mask);
	cancellable_ends(type);
	pthread_cleanup_pop(0);
	return r;
}

/* --- cancelling --------------------------------------------------------------------------------------------------- */

EXPORT int pthread_cancel(pthread_t thread)
{
	if (!lent)
		preload_lend_calls();
	return xts_pthread_cancel(thread);
}
