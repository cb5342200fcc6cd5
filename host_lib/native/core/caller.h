/*
 * Who is calling: the process to which all this belongs, or a child of it?
 *
 * Theory of operation
 *
 * A child process finds its parent's sockets in its memory, and must not take them for its own. fork() runs handlers
 * that see to it. Other ways to make a process (doors) run none: the system calls clone and clone3, _Fork(), and
 * instructions in the program itself that nobody can intercept. So each call looks who is calling, which costs a load
 * of a word and a branch that is never taken: the word is in a page that the kernel gives to every child that has a
 * copy of this memory as zeros (MADV_WIPEONFORK), however that child came to be. A child of a child, too: the kernel
 * keeps the advice.
 *
 * What has to be done at a fork is in parts, one for each module with a lock or with state of this process
 * (xts_at_fork()). There are three ways:
 *
 *     fork()              the C library's handlers run the parts: before, then in_parent and in_child
 *     a door that we see  the interposer runs the same parts around it: the child has its parent's sockets as after
 *                         fork()
 *     any other door      the parent knew nothing of the child, and one of its threads may have been in the middle of
 *                         a change. The child finds that out with its first call, which runs the part `orphaned`: it
 *                         makes a new start. Its parent's sockets are not its own (ENOTCONN for a program whose sockets
 *                         are kept over fork, else EBADF). Descriptors are left open, because it is not known whether
 *                         the child shares them with its parent.
 *
 * In the child of a door that is not fork(), a part must neither allocate nor free: own_memory.h says why.
 *
 * A child that shares its parent's memory sees its parent's page. Only the door tells it from a thread: see
 * host_lib/preload/doors.c.
 */
#ifndef XTS_CALLER_H
#define XTS_CALLER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#pragma GCC visibility push(default)

enum { XTS_CALLER_UNKNOWN, XTS_CALLER_KNOWN, XTS_CALLER_ARRIVING };

extern const _Atomic uint32_t *_Atomic xts_caller;
extern _Atomic pid_t xts_caller_pid; /* the process to which all this belongs; 0: not begun */
void xts_caller_arrives(void);

/* To be called at every entry, before anything that belongs to the process is used. */
static inline void xts_look_who_calls(void)
{
	const _Atomic uint32_t *caller = atomic_load_explicit(&xts_caller, memory_order_relaxed);

	if (__builtin_expect(atomic_load_explicit(caller, memory_order_relaxed) != XTS_CALLER_KNOWN, 0))
		xts_caller_arrives();
}

/* NULL: nothing to do. They run as the C library's handlers do: `before` in reverse order. */
struct xts_fork_part {
	void (*before)(void), (*in_parent)(void), (*in_child)(void);
	void (*orphaned)(void);
	bool is_first; /* in the child, and in the parent; `before` then comes last */
};
/* part: static. Before the process has threads. */
void xts_at_fork(const struct xts_fork_part *part);
/* The interposer's initialization: from here on the parts run after the handlers of the program's allocator. */
void xts_watch_fork_late(void);
/* The parts around a door that is not fork(). */
void xts_fork_begins(void);
void xts_fork_has_ended(bool is_child);

#pragma GCC visibility pop

void caller_begin(void); /* the page is made, and fork() watched; by process_start() */

#endif
