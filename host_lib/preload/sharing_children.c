/*
 * A child that clone() makes with CLONE_VM, and not as a thread, runs in its parent's memory at the same time. It may
 * use sockets as a thread may: locks and sockets are in that memory. But three things are not as for a thread.
 *
 *     descriptors   without CLONE_FILES it has its own, a copy of its parent's at that moment. So it has a table of its
 *                   own, in which its numbers stand for the same sockets; each counts as a duplicate
 *     variables of  the kernel gives it those of the thread that made it, which runs as well: both would be inside a
 *     the thread    call at the same time. So it gets those of a thread made for the purpose, its guard
 *     its end       the guard sleeps until the kernel says that the child has left this memory, by its end or by exec
 *                   (CLONE_CHILD_CLEARTID), and then closes what the child had
 *
 * What libxts would make as a thread or a lock of the calling process has to be there before
 * (xts_expect_sharing_child()). What it needs descriptors of its own for, such a child cannot have: they would be in
 * its table and not in its parent's (descriptor_own()). It waits with the bell of its stack (bell.c), and a process
 * that has not attached yet does not attach there.
 *
 * A child that brings its own variables (CLONE_SETTLS), or has the kernel tell its end to others, has no guard: its end
 * is noticed when its parent next opens or closes something. The same is true of a child that was made by an
 * instruction of the program's own (as vfork() is), of which nobody knows. It is noticed when it first changes a
 * descriptor, and then gets a table: for all that is known its descriptors are its own. (With kernel sockets, too, such
 * a child may do little more than exec.)
 */
#include "sharing_children.h"

#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "preload.h"

struct sharing_child {
	struct sharing_child *next; /* entries are used again, and never freed: so no lock is needed to find one's own */
	bool used;
	struct clone_call call;
	_Atomic uint64_t *table; /* the parent's, with CLONE_FILES */
	_Atomic pid_t pid;       /* 0: it has not run yet */
	_Atomic uint32_t tid; /* the kernel sets it to 0 when the child leaves this memory; of a child with a guard */
	bool guarded;
	void *variables; /* of the guard */
	sem_t ready;     /* variables are there, or the child has been made or not */
};

static struct sharing_child *_Atomic children;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards who uses the entries */

_Atomic uint32_t descriptor_sharers;

static void lock_children(void)
{
	xts_go_in();
	pthread_mutex_lock(&lock);
}

static void unlock_children(void)
{
	pthread_mutex_unlock(&lock);
	xts_come_out();
}

_Atomic uint64_t *descriptors_of_caller(void)
{
	pid_t self = getpid();

	if (!preload_shares_memory())
		return descriptors;
	for (struct sharing_child *c = children; c; c = c->next)
		if (c->pid == self)
			return c->table;
	return NULL;
}

/* --- its end ------------------------------------------------------------------------------------------------------ */

static void forget(struct sharing_child *c)
{
	c->pid = 0;
	if (c->table != descriptors) {
		descriptors_release_all(c->table);
		munmap(c->table, DESCRIPTORS_MAX * sizeof *c->table);
	}
	sem_destroy(&c->ready);
	atomic_fetch_sub(&descriptor_sharers, 1);
	lock_children();
	c->used = false;
	unlock_children();
}

/* The child has none of its descriptors any more; its entry stays until it has left this memory. */
void sharing_ends(void)
{
	_Atomic uint64_t *table = atomic_load(&descriptor_sharers) ? descriptors_of_caller() : NULL;

	if (table && table != descriptors)
		descriptors_release_all(table);
}

static void *guard(void *argument)
{
	struct sharing_child *c = argument;
	uint32_t tid;

	c->variables = __builtin_thread_pointer();
	sem_post(&c->ready);
	while ((tid = atomic_load(&c->tid)))
		real()->syscall(SYS_futex, &c->tid, FUTEX_WAIT, tid, NULL, NULL, 0);
	forget(c);
	return NULL;
}

/* --- its beginning ------------------------------------------------------------------------------------------------ */

static int begin(void *argument)
{
	struct sharing_child *c = argument;
	int r;

	c->pid = getpid();
	r = c->call.function(c->call.argument);
	sharing_ends();
	return r;
}

/* NULL: no memory. */
static struct sharing_child *take_entry(void)
{
	struct sharing_child *c;

	lock_children();
	for (c = children; c && c->used; c = c->next)
		;
	if (!c) {
		c = calloc(1, sizeof *c);
		if (c) {
			c->next = children;
			children = c;
		}
	}
	if (c)
		c->used = true;
	unlock_children();
	return c;
}

static _Atomic uint64_t *make_table(void)
{
	void *made = mmap(NULL, DESCRIPTORS_MAX * sizeof *descriptors, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return made == MAP_FAILED ? NULL : made;
}

static struct sharing_child *make(const struct clone_call *call)
{
	const _Atomic uint64_t *from = descriptors_of_caller(); /* it may be such a child itself */
	_Atomic uint64_t *table = call->flags & CLONE_FILES ? descriptors : make_table();
	struct sharing_child *c = table ? take_entry() : NULL;

	if (!c) {
		if (table && table != descriptors)
			munmap(table, DESCRIPTORS_MAX * sizeof *table);
		return NULL;
	}
	c->call = *call;
	c->table = table;
	c->guarded = false;
	c->tid = 0;
	sem_init(&c->ready, 0, 0);
	atomic_fetch_add(&descriptor_sharers, 1);
	if (table != descriptors)
		descriptors_copy_all(from ? from : descriptors, table);
	return c;
}

/* The guard sleeps while tid is not 0. */
static bool start_guard(struct sharing_child *c)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int r;

	c->tid = 1;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 128 * 1024);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, &attributes, guard, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	while (!r && sem_wait(&c->ready) < 0)
		;
	return !r;
}

static void end(struct sharing_child *c)
{
	if (!c->guarded) {
		forget(c);
		return;
	}
	atomic_store(&c->tid, 0);
	real()->syscall(SYS_futex, &c->tid, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Those that have no guard. */
void sharing_look_for_ended(void)
{
	struct sharing_child *c, *ended;

	do {
		ended = NULL;
		lock_children();
		for (c = children; c && !ended; c = c->next)
			if (c->used && !c->guarded && c->pid && c->pid != getpid() && kill(c->pid, 0) < 0 &&
			    errno == ESRCH)
				ended = c;
		unlock_children();
		if (ended)
			forget(ended);
	} while (ended);
}

_Atomic uint64_t *sharing_table(void)
{
	const struct clone_call unknown = { .flags = 0 };
	_Atomic uint64_t *table = descriptors_of_caller();
	struct sharing_child *c;

	if (table)
		return table;
	c = make(&unknown);
	if (!c)
		return NULL;
	c->pid = getpid();
	return c->table;
}

int sharing_clone(const struct clone_call *call)
{
	const int own = CLONE_SETTLS | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
	struct sharing_child *c;
	int child, error, flags = call->flags;

	sharing_look_for_ended();
	xts_expect_sharing_child();
	c = make(call);
	if (!c) {
		errno = ENOMEM;
		return -1;
	}
	c->guarded = !(flags & own) && start_guard(c);
	if (c->guarded)
		child = real()->clone(begin, call->stack, flags | own, c, call->parent_tid, c->variables, &c->tid);
	else
		child = real()->clone(begin, call->stack, flags, c, call->parent_tid, call->tls, call->child_tid);
	error = errno;
	if (child < 0)
		end(c);
	errno = error;
	return child;
}

/* --- fork --------------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t *table_at_fork;

static void before_fork(void)
{
	table_at_fork = atomic_load(&descriptor_sharers) ? descriptors_of_caller() : descriptors;
	lock_children();
}

/* A child of such a child begins with the table of that one. Others have copies of this memory, and none shares it. */
static void in_child(void)
{
	children = NULL;
	atomic_store(&descriptor_sharers, 0);
	if (table_at_fork && table_at_fork != descriptors)
		descriptors_replace_all(table_at_fork);
	unlock_children();
}

static void orphaned(void)
{
	pthread_mutex_init(&lock, NULL);
	children = NULL;
	atomic_store(&descriptor_sharers, 0);
}

/* In the child it has to be the first, since other parts change descriptors. */
__attribute__((constructor)) static void keep_over_fork(void)
{
	static const struct xts_fork_part at_fork = {
		.before = before_fork,
		.in_parent = unlock_children,
		.in_child = in_child,
		.orphaned = orphaned,
		.is_first = true,
	};

	xts_at_fork(&at_fork);
}
