/*
 * Doors: the calls that make a process or a thread.
 *
 * fork() is the C library's, and runs the handlers of core/caller.h. For every other door the flags say what the child
 * has, whatever else is set in them:
 *
 *     CLONE_THREAD                  a thread of this process: a caller as any other
 *     no CLONE_VM                   a copy of the memory: a fork. The handlers run around it, and the child has its
 *                                   parent's sockets as after fork()
 *     CLONE_VM, CLONE_VFORK,        the memory itself, while the parent's thread waits, and descriptors of its own: its
 *     no CLONE_FILES                close() would be one in its parent's table. It gets a copy of the memory instead,
 *                                   and becomes a fork; so what it writes there, its parent does not see
 *     CLONE_VM otherwise            a child that runs at the same time in the same memory: sharing_children.c
 *     CLONE_FILES or CLONE_SETTLS,  passed on as it is. The child has a copy of the memory, but closing a descriptor
 *     no CLONE_VM                   there closes its parent's, or it has not got this thread's variables: its first
 *                                   call finds that it is an orphan (core/caller.h)
 *
 * A fork's parent does not wait for its child's exec, even with CLONE_VFORK: the child may need an answer of it.
 */
#include "preload.h"

#include <linux/sched.h>
#include <string.h>
#include <sys/syscall.h>

#include "core/arguments.h"
#include "sharing_children.h"

#define CLONE3_BYTES_MAX 256u /* more than any kernel's struct clone_args so far */

static bool is_fork(uint64_t flags)
{
	if (flags & CLONE_THREAD)
		return false;
	if (flags & CLONE_VM)
		return (flags & CLONE_VFORK) && !(flags & (CLONE_FILES | CLONE_SETTLS));
	return !(flags & (CLONE_FILES | CLONE_SETTLS));
}

/* Without CLONE_VM the kernel refuses CLONE_SIGHAND: the child has copies of the handlers too. */
static uint64_t flags_of_fork(uint64_t flags)
{
	return flags & ~(uint64_t)(CLONE_VM | CLONE_VFORK | CLONE_SIGHAND);
}

/* In parent and child: child is the result of the door. */
static void is_through(long child)
{
	int before = errno;

	xts_fork_has_ended(child == 0);
	errno = before;
}

EXPORT pid_t _Fork(void)
{
	pid_t child;

	xts_look_who_calls();
	xts_fork_begins();
	child = real()->_Fork();
	is_through(child);
	return child;
}

EXPORT pid_t vfork(void)
{
	return real()->fork();
}
pid_t __vfork(void) __attribute__((alias("vfork"))) EXPORT;

/* --- clone() ------------------------------------------------------------------------------------------------------ */

struct start {
	int (*function)(void *);
	void *argument;
};

static int begin_as_fork(void *argument)
{
	struct start start = *(const struct start *)argument;

	is_through(0);
	_exit(start.function(start.argument)); /* what it has sent leaves first */
}

EXPORT int clone(int (*function)(void *), void *stack, int flags, void *argument, ...)
{
	struct start start = { .function = function, .argument = argument };
	pid_t *parent_tid, *child_tid;
	va_list list;
	void *tls;
	int child;

	va_start(list, argument);
	parent_tid = va_arg(list, pid_t *);
	tls = va_arg(list, void *);
	child_tid = va_arg(list, pid_t *);
	va_end(list);
	xts_look_who_calls();
	if (function && flags & CLONE_VM && !(flags & CLONE_THREAD) && !is_fork((unsigned)flags))
		return sharing_clone(&(struct clone_call){ .function = function,
							   .stack = stack,
							   .flags = flags,
							   .argument = argument,
							   .parent_tid = parent_tid,
							   .tls = tls,
							   .child_tid = child_tid });
	if (!function || !is_fork((unsigned)flags))
		return real()->clone(function, stack, flags, argument, parent_tid, tls, child_tid);
	xts_fork_begins();
	child = real()->clone(begin_as_fork, stack, (int)flags_of_fork((unsigned)flags), &start, parent_tid, tls,
			      child_tid);
	is_through(child);
	return child;
}
int __clone(int (*function)(void *), void *stack, int flags, void *argument, ...) __attribute__((alias("clone"))) EXPORT;

/* --- by number ---------------------------------------------------------------------------------------------------- */

static long fork_by_clone(const long a[6])
{
	long child;

	xts_fork_begins();
	child = real()->syscall(SYS_clone, (long)flags_of_fork((unsigned long)a[0]), a[1], a[2], a[3], a[4], a[5]);
	is_through(child);
	return child;
}

static long fork_by_clone3(const struct clone_args *wanted, size_t bytes)
{
	union {
		struct clone_args args;
		char room[CLONE3_BYTES_MAX];
	} copy;
	long child;

	memcpy(copy.room, wanted, bytes);
	copy.args.flags = flags_of_fork(copy.args.flags);
	xts_fork_begins();
	child = real()->syscall(SYS_clone3, copy.room, bytes);
	is_through(child);
	return child;
}

bool door_by_number(long number, const long a[6], long *child)
{
	const struct clone_args *wanted = (const struct clone_args *)a[0]; /* of clone3 */

	switch (number) {
#ifdef SYS_fork
	case SYS_fork:
#endif
#ifdef SYS_vfork
	case SYS_vfork: /* its child would return into its parent's stack */
#endif
#if defined SYS_fork || defined SYS_vfork
		*child = fork_by_clone((const long[6]){ SIGCHLD });
		return true;
#endif
	case SYS_clone:
		if (a[1] || !is_fork((unsigned long)a[0] & UINT32_MAX))
			return false; /* the child comes back on a stack of its own, where nothing of ours is */
		*child = fork_by_clone(a);
		return true;
#ifdef SYS_clone3
	case SYS_clone3:
		if ((size_t)a[1] < CLONE_ARGS_SIZE_VER0 || (size_t)a[1] > CLONE3_BYTES_MAX ||
		    !xts_argument_is_readable(wanted, (size_t)a[1]) || wanted->stack || !is_fork(wanted->flags))
			return false;
		*child = fork_by_clone3(wanted, (size_t)a[1]);
		return true;
#endif
	default:
		return false;
	}
}
