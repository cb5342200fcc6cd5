/* Deferring signal handlers, and running them later. signals.h has the theory of operation. */
#include "core/caller.h"
#include "core/signals.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/wait.h"

#define KERNEL_SIGNALS 64
#define BIT(number) (UINT64_C(1) << ((number) - 1))
#define LIBRARY_OWN (BIT(32) | BIT(33)) /* used by the C library: cancellation, setuid() */
#define FAULTS (BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGFPE) | BIT(SIGILL) | BIT(SIGTRAP) | BIT(SIGSYS) | BIT(SIGABRT))
/* Deferred signals are sent again; with these, sending one cancels another that is pending. */
#define JOB_CONTROL (BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU) | BIT(SIGCONT))
#define BLOCKED_MEANWHILE (~(FAULTS | LIBRARY_OWN))
#define FOREVER_S INT_MAX
#define ONCE ((int)SA_RESETHAND)

/* Values of xts_inside.put_off. */
enum { PUTTING_OFF = 1, PUT_OFF };

typedef void handler(int number, siginfo_t *info, void *context);

/* The program's handler of a signal. The kernel has the other attributes (mask, SA_RESTART, SA_ONSTACK …). */
struct action {
	handler *_Atomic handler;
	_Atomic int flags; /* SA_SIGINFO and SA_RESETHAND */
};

/* A signal that has been put off. */
struct put_off {
	siginfo_t info;
	int number;
	pid_t process;
	uint64_t in_force, back; /* the thread's mask while the signal is delivered, and after it */
	bool restarts;
};

__thread struct xts_inside xts_inside __attribute__((tls_model("initial-exec")));
static __thread struct put_off put_off __attribute__((tls_model("initial-exec")));
static struct action actions[KERNEL_SIGNALS + 1];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* serialises changes of actions */

/* --- the kernel's masks ------------------------------------------------------------------------------------------- */

static uint64_t read_mask(const sigset_t *set)
{
	uint64_t mask;

	memcpy(&mask, set, sizeof mask);
	return mask;
}

static uint64_t change_mask(int how, uint64_t mask)
{
	uint64_t before = 0;

	kernel_calls.syscall(SYS_rt_sigprocmask, how, &mask, &before, MASK_BYTES);
	return before;
}

/* --- arriving ----------------------------------------------------------------------------------------------------- */

static void run(int number, siginfo_t *info, void *context)
{
	struct action *a = &actions[number];
	struct sigaction once = { .sa_handler = SIG_DFL };
	handler *program = atomic_load(&a->handler);

	if (atomic_load(&a->flags) & ONCE)
		kernel_calls.sigaction(number, &once, NULL);
	program(number, info, context);
}

/* Sends it to this thread, with the siginfo it came with. */
static bool send_again(int number, siginfo_t *info)
{
	return kernel_calls.syscall(SYS_rt_tgsigqueueinfo, getpid(), kernel_calls.syscall(SYS_gettid), number, info) ==
	       0;
}

/*
 * The signal that came first, which interrupted the thread itself, decides about the thread's mask and about the call.
 * own: the mask of the interrupted code; now: the mask while it is handled. During a sleep another mask was in force.
 */
static void note_interrupted(int number, uint64_t own, uint64_t now)
{
	uint64_t slept = xts_inside.mask ? read_mask(xts_inside.mask) : own, added;
	struct sigaction installed;

	kernel_calls.sigaction(number, NULL, &installed);
	added = read_mask(&installed.sa_mask) | (installed.sa_flags & SA_NODEFER ? 0 : BIT(number));
	put_off.in_force = own & BIT(number) || now == (slept | added) ? slept : own;
	put_off.back = own;
	put_off.restarts = installed.sa_flags & SA_RESTART;
}

static void put_it_off(int number, const siginfo_t *info, uint64_t own)
{
	uint64_t now = change_mask(SIG_BLOCK, BLOCKED_MEANWHILE);

	put_off.info = *info;
	put_off.number = number;
	put_off.process = getpid();
	note_interrupted(number, own, now);
	xts_inside.put_off = PUT_OFF;
	xts_inside.cut = 1;
	if (xts_inside.limit)
		*xts_inside.limit = (struct __kernel_timespec){ 0 };
}

/*
 * A second signal, while one is already put off. Either the other one interrupted this one's handler before it did
 * anything: the kernel delivers pending signals at once, one on top of the other. Or this one interrupts the other's
 * (PUTTING_OFF). The second is sent again, and the kernel keeps it.
 */
static void put_second_off(int number, siginfo_t *info, uint64_t own)
{
	uint64_t now = change_mask(SIG_BLOCK, BLOCKED_MEANWHILE);

	if (xts_inside.put_off == PUT_OFF)
		note_interrupted(number, own, now);
	send_again(number, info);
}

/* The handler that the kernel has for every signal for which the program has one. */
static void arrive(int number, siginfo_t *info, void *context)
{
	ucontext_t *interrupted = context;
	sig_atomic_t none = 0;
	int before = errno;
	uint64_t own;

	if (!xts_inside.depth || BIT(number) & FAULTS) {
		run(number, info, context);
		return;
	}
	own = read_mask(&interrupted->uc_sigmask);
	if (__atomic_compare_exchange_n(&xts_inside.put_off, &none, PUTTING_OFF, false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED))
		put_it_off(number, info, own);
	else
		put_second_off(number, info, own);
	own |= BLOCKED_MEANWHILE;
	memcpy(&interrupted->uc_sigmask, &own, sizeof own);
	errno = before;
}

/* --- running what was put off ------------------------------------------------------------------------------------- */

/* Runs the handler here, when the kernel's queue of signals is full or it would not send this one again unchanged. */
static void run_here(struct put_off *one)
{
	struct sigaction installed;
	ucontext_t context;

	getcontext(&context);
	memcpy(&context.uc_sigmask, &one->back, sizeof one->back);
	kernel_calls.sigaction(one->number, NULL, &installed);
	change_mask(SIG_SETMASK, one->in_force | read_mask(&installed.sa_mask) | BIT(one->number));
	run(one->number, &one->info, &context);
}

enum xts_ran xts_run_put_off(void)
{
	struct put_off one = put_off;
	int before = errno;

	if (xts_inside.cancelled)
		cancel_run(); /* returns if there was no request after all: the call is made again */
	if (!xts_inside.put_off)
		return XTS_RAN_RESTARTS;
	xts_inside.put_off = xts_inside.cut = 0;
	if (BIT(one.number) & JOB_CONTROL || !send_again(one.number, &one.info))
		run_here(&one);
	change_mask(SIG_SETMASK, one.in_force); /* the signal that was sent again is delivered here */
	if (one.back != one.in_force)
		change_mask(SIG_SETMASK, one.back);
	errno = before;
	return one.restarts ? XTS_RAN_RESTARTS : XTS_RAN_ENDS;
}

bool xts_come_out_again(bool restarts)
{
	enum xts_ran ran = xts_come_out();

	if (!restarts || xts_inside.depth)
		return false;
	return ran == XTS_RAN_NONE ? signal_restarts() : ran == XTS_RAN_RESTARTS;
}

/*
 * Called after a handler that was not put off has ended a wait. Which handler it was cannot be known. If all installed
 * handlers have SA_RESTART, the answer is certain. If only some have it, we assume that one without it interrupted us,
 * so that a program that relies on EINTR gets it. Faults do not interrupt a sleeping thread.
 */
bool signal_restarts(void)
{
	struct sigaction action;

	for (int number = 1; number < NSIG; number++) {
		if ((number <= KERNEL_SIGNALS && BIT(number) & FAULTS) ||
		    kernel_calls.sigaction(number, NULL, &action) < 0)
			continue; /* 32 and 33 are the C library's own */
		if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)
			continue;
		if (!(action.sa_flags & SA_RESTART))
			return false;
	}
	return true;
}

/* --- sleeping ----------------------------------------------------------------------------------------------------- */

static void sleep_begins(struct __kernel_timespec *limit, const struct timespec *timeout, const sigset_t *mask)
{
	*limit = (struct __kernel_timespec){ .tv_sec = FOREVER_S };
	if (timeout)
		*limit = (struct __kernel_timespec){ .tv_sec = timeout->tv_sec, .tv_nsec = timeout->tv_nsec };
	xts_inside.mask = mask;
	xts_inside.limit = limit;
	__asm__ volatile("" ::: "memory");
}

static int sleep_ends(long r)
{
	__asm__ volatile("" ::: "memory");
	xts_inside.limit = NULL;
	xts_inside.mask = NULL;
	if (!xts_inside.cut)
		return (int)r;
	xts_inside.cut = 0;
	if (r > 0)
		return (int)r;
	errno = EINTR;
	return -1;
}

int xts_sleep_poll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
#ifdef SYS_ppoll_time64
	const long number = SYS_ppoll_time64;
#else
	const long number = SYS_ppoll;
#endif
	struct __kernel_timespec limit;
	long r = 0;

	sleep_begins(&limit, timeout, mask);
	/* A direct system call: the C library's function copies the limit before it enters the kernel, so that arrive()
	 * could not change it. */
	if (!xts_inside.cut)
		r = kernel_calls.syscall(number, fds, count, &limit, mask, MASK_BYTES);
	return sleep_ends(r);
}

/* For kernels before 5.11. */
static int sleep_old(int set, struct epoll_event *events, int max, const struct timespec *timeout, const sigset_t *mask)
{
	struct pollfd fd = { .fd = set, .events = POLLIN };
	int r = xts_sleep_poll(&fd, 1, timeout, mask);

	return r > 0 ? kernel_calls.epoll_wait(set, events, max, 0) : r;
}

int xts_sleep_epoll(int set, struct epoll_event *events, int max, const struct timespec *timeout, const sigset_t *mask)
{
	struct __kernel_timespec limit;
	long r = 0;

	sleep_begins(&limit, timeout, mask);
	if (!xts_inside.cut)
		r = kernel_calls.syscall(SYS_epoll_pwait2, set, events, max, &limit, mask, MASK_BYTES);
	r = sleep_ends(r);
	return r < 0 && errno == ENOSYS ? sleep_old(set, events, max, timeout, mask) : (int)r;
}

/* --- installing --------------------------------------------------------------------------------------------------- */

/* The action that the kernel is given in place of the program's. */
static struct sigaction for_kernel(const struct sigaction *action)
{
	struct sigaction k = *action;

	k.sa_sigaction = arrive;
	k.sa_flags = (k.sa_flags | SA_SIGINFO) & ~ONCE;
	return k;
}

static void set_action(struct action *a, handler *program, int flags)
{
	atomic_store(&a->handler, program);
	atomic_store(&a->flags, flags & (SA_SIGINFO | ONCE));
}

static int change(int number, const struct sigaction *action, struct sigaction *old)
{
	struct action *a = &actions[number];
	handler *program = atomic_load(&a->handler);
	struct sigaction k, was;
	int flags = atomic_load(&a->flags), r;

	if (action && action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN) {
		k = for_kernel(action);
		set_action(a, action->sa_sigaction, action->sa_flags); /* set before the handler can be called */
		action = &k;
	}
	r = kernel_calls.sigaction(number, action, &was);
	if (r < 0) {
		set_action(a, program, flags);
		return r;
	}
	if (was.sa_sigaction == arrive) {
		was.sa_sigaction = program;
		was.sa_flags = (was.sa_flags & ~SA_SIGINFO) | flags;
	}
	if (old)
		*old = was;
	return 0;
}

int xts_sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
	struct sigaction read = { 0 };
	int r;

	if (number < 1 || number > KERNEL_SIGNALS)
		return kernel_calls.sigaction(number, action, old);
	if (action)
		read = *action; /* an invalid pointer faults here, while no lock is held */
	xts_look_who_calls();
	xts_go_in();
	pthread_mutex_lock(&lock);
	r = change(number, action ? &read : NULL, old);
	pthread_mutex_unlock(&lock);
	xts_come_out();
	return r;
}

/* --- fork --------------------------------------------------------------------------------------------------------- */

void signals_before_fork(void)
{
	xts_go_in();
	pthread_mutex_lock(&lock);
}

void signals_after_fork_parent(void)
{
	pthread_mutex_unlock(&lock);
	xts_come_out();
}

void signals_after_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	if (xts_inside.put_off && put_off.process != getpid()) {
		xts_inside.put_off = xts_inside.cut = 0;
		change_mask(SIG_SETMASK, put_off.back);
	}
	xts_come_out();
}

void signals_orphaned(void)
{
	pthread_mutex_init(&lock, NULL);
	if (xts_inside.put_off && put_off.process != getpid()) {
		xts_inside.put_off = xts_inside.cut = 0;
		change_mask(SIG_SETMASK, put_off.back);
	}
}
