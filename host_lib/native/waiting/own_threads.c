/*
 * A program may count on having one thread, or on what it has changed for all of its threads. The library's own thread,
 * which it does not know, must not be in the way (progress_thread.c). So around such a call the thread is gone, and its
 * successor is what the call has made of the one that made it.
 *
 * - unshare() and setns() fail with EINVAL in a process with threads, for some namespaces.
 * - The C library carries setuid() and its kin out in each thread, and aborts the program if one thread may and another
 *   may not. Capabilities are of a thread, and the C library knows nothing of them. A server that keeps some (ProFTPD:
 *   prctl(PR_SET_KEEPCAPS), setuid(), capset()) and later changes its user again is such a program. While all threads
 *   have the same capabilities, nothing is paused.
 */
#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/caller.h"
#include "core/clock.h"
#include "core/process.h"
#include "core/stack.h"
#include "waiting/progress_thread.h"
#include "xts_private.h"

/* A thread that ends is gone after a few looks, unless others have both cores: it needs some microseconds of one. What
 * is not gone after that time is left alone. */
#define YIELDS 100u
#define GONE_WITHIN_NS (2 * NS_PER_S)

struct capabilities {
	struct __user_cap_data_struct of[_LINUX_CAPABILITY_U32S_3];
};

static bool capabilities_of(pid_t tid, struct capabilities *out)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3, .pid = tid };

	return syscall(SYS_capget, &head, out->of) == 0;
}

/* Would a change of user that the caller makes meet another answer in the thread of that stack? */
static bool differs(struct stack *st)
{
	struct capabilities own, its;
	bool started;
	pid_t tid;

	stack_enter(st);
	started = st->progress.started;
	tid = st->progress.self ? st->progress.tid : 0;
	stack_leave(st);
	return started &&
	       (!tid || !capabilities_of(0, &own) || !capabilities_of(tid, &its) || memcmp(&own, &its, sizeof own));
}

/* Until the kernel counts it no more, which is later than the C library's "joined". */
static void wait_until_gone(struct stack *st)
{
	const struct timespec pause = { .tv_nsec = 100000 };
	uint64_t deadline_ns = now_ns() + GONE_WITHIN_NS;
	bool started = true;
	pid_t tid = 0;

	for (unsigned i = 0; now_ns() < deadline_ns; i++) {
		if (started) {
			stack_enter(st);
			started = st->progress.started;
			tid = st->progress.tid;
			stack_leave(st);
		}
		if (!started && (!tid || syscall(SYS_tgkill, getpid(), tid, 0) < 0))
			return;
		if (i < YIELDS)
			sched_yield();
		else
			nanosleep(&pause, NULL);
	}
}

bool xts_threads_pause(bool always)
{
	int before = errno;
	bool any = always;

	xts_look_who_calls();
	for (struct stack *st = process_stacks(); st && !any; st = process_next(st))
		any = differs(st);
	for (struct stack *st = process_stacks(); st && any; st = process_next(st)) {
		stack_enter(st);
		progress_pause(st);
		stack_leave(st);
	}
	for (struct stack *st = process_stacks(); st && any; st = process_next(st))
		wait_until_gone(st);
	errno = before;
	return any;
}

void xts_threads_resume(void)
{
	int before = errno;

	for (struct stack *st = process_stacks(); st; st = process_next(st)) {
		stack_enter(st);
		progress_resume(st);
		stack_leave(st);
	}
	errno = before;
}
