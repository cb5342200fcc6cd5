/* The look at who is calling, and what is done at a fork. caller.h has the theory of operation. */
#include "core/caller.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/process.h"
#include "common/own_memory.h"

#define PARTS_MAX 16

static const _Atomic uint32_t unknown, known = XTS_CALLER_KNOWN;
const _Atomic uint32_t *_Atomic xts_caller = &unknown;
_Atomic pid_t xts_caller_pid;
static _Atomic uint32_t *page; /* NULL: this kernel has no such pages, so only the doors that are seen are noticed */

static const struct xts_fork_part *parts[PARTS_MAX];
static unsigned part_count;

/* From `before` to the end of the parts, in the thread for which they run: handlers of other libraries, which may come
 * between, and the parts themselves may call this one. */
static __thread bool between __attribute__((tls_model("initial-exec")));
void xts_at_fork(const struct xts_fork_part *part)
{
	if (part_count == PARTS_MAX)
		abort(); /* one more module: PARTS_MAX is too small */
	for (unsigned i = part_count++; i > 0 && part->is_first; i--)
		parts[i] = parts[i - 1];
	parts[part->is_first ? 0 : part_count - 1] = part;
}

static void is_known(void)
{
	if (page)
		atomic_store(page, XTS_CALLER_KNOWN);
}

void xts_fork_begins(void)
{
	xts_look_who_calls();
	for (unsigned i = part_count; i-- > 0;)
		if (parts[i]->before)
			parts[i]->before();
	between = true;
}

static void run_parts(bool is_child)
{
	if (is_child)
		atomic_store(&xts_caller_pid, getpid());
	for (unsigned i = 0; i < part_count; i++) {
		void (*run)(void) = is_child ? parts[i]->in_child : parts[i]->in_parent;

		if (run)
			run();
	}
	if (is_child)
		is_known();
	between = false;
}

void xts_fork_has_ended(bool is_child)
{
	xts_memory_is_parents |= is_child;
	run_parts(is_child);
}

static void in_parent(void)
{
	run_parts(false);
}

static void in_child(void)
{
	run_parts(true);
}

/* --- the handlers of fork() --------------------------------------------------------------------------------------- */

/*
 * The parts allocate and free. An allocator that is not the C library's (jemalloc) takes its locks by a handler of its
 * own, so ours have to run before it and, in parent and child, after it: they have to be registered later. Registered
 * earlier, they let a child of redis wait for ever for a lock that it has itself.
 *
 * An allocator registers its handlers when it is asked for memory first, and may call us before that: jemalloc reads
 * its configuration first, by calls that the interposer has, and here is not the place to ask it for memory. So the
 * interposer registers ours once more when it is initialized, and then the early ones do nothing.
 */
static bool watched_late;

static void early_begins(void)
{
	if (!watched_late)
		xts_fork_begins();
}

static void early_in_parent(void)
{
	if (!watched_late)
		in_parent();
}

static void early_in_child(void)
{
	if (!watched_late)
		in_child();
}

void xts_watch_fork_late(void)
{
	void *volatile memory = malloc(1); /* volatile: else the compiler sees that it is for nothing */

	xts_look_who_calls();
	free(memory);
	watched_late = pthread_atfork(xts_fork_begins, in_parent, in_child) == 0;
}

/* --- doors -------------------------------------------------------------------------------------------------------- */

/* A child by a door that nobody has seen: a new start. */
static void orphaned(void)
{
	xts_memory_is_parents = true;
	atomic_store(&xts_caller_pid, getpid());
	for (unsigned i = 0; i < part_count; i++)
		if (parts[i]->orphaned)
			parts[i]->orphaned();
}

void xts_caller_arrives(void)
{
	uint32_t none = XTS_CALLER_UNKNOWN;

	if (between)
		return;
	if (xts_caller == &unknown) {
		between = true; /* an allocator may have mmap(), and get its memory by syscall(), which is ours (tcmalloc) */
		process_start();
		between = false;
		return;
	}
	if (!atomic_compare_exchange_strong(page, &none, XTS_CALLER_ARRIVING)) {
		/* Another thread of the child is at it. */
		while (atomic_load(page) != XTS_CALLER_KNOWN)
			sched_yield();
		return;
	}
	between = true;
	orphaned();
	is_known();
	between = false;
}

void caller_begin(void)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	atomic_store(&xts_caller_pid, getpid());
	pthread_atfork(early_begins, early_in_parent, early_in_child);
	if (made != MAP_FAILED && madvise(made, bytes, MADV_WIPEONFORK) == 0) {
		page = made;
		is_known();
		xts_caller = page;
		return;
	}
	if (made != MAP_FAILED)
		munmap(made, bytes);
	xts_caller = &known;
}
