/* The store of epoll sets: epoll_set.h has the theory of operation. */
#include "epoll_set.h"

#include "by_instruction.h"

#include <pthread.h>
#include <stdlib.h>

#define SETS_MAX 65536u
#define GENERATION 20 /* position of the generation; the bits below it are the index */
#define GENERATIONS 0xfffu

static struct epoll_set store[SETS_MAX]; /* a page of it costs nothing until it is touched; entry 0 is not used */
static _Atomic uint32_t used = 1;
static struct epoll_set *unused;
/* guards these; no function is called while it is held */
static pthread_mutex_t store_lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic uint32_t note_total;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* --- locks, fork -------------------------------------------------------------------------------------------------- */

/* libxts's fork handlers run within these. Their calls are libxts's own, and must not take these locks. */
static void before_fork(void)
{
	xts_go_in();
	pthread_mutex_lock(&lock);
	pthread_mutex_lock(&store_lock);
}

static void after_fork_parent(void)
{
	pthread_mutex_unlock(&store_lock);
	pthread_mutex_unlock(&lock);
	xts_come_out();
}

/* The waiting threads exist only in the parent. */
static void after_fork_child(void)
{
	for (uint32_t i = 1; i < used; i++) {
		if (store[i].number)
			store[i].users = 1;
	}
	instruction_after_fork();
	after_fork_parent();
}

/* The kernel's half of each set stays; the parent's sockets were in the other. */
static void orphaned(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_init(&store_lock, NULL);
	for (uint32_t i = 1; i < used; i++) {
		struct epoll_set *set = &store[i];

		set->users = set->number ? 1 : 0;
		set->ctx = NULL;
		set->bell = -1;
		set->both = 0;
		set->registrations = NULL;
		set->registration_count = set->registration_room = 0;
	}
	instruction_after_fork();
	note_total = 0;
	unused = NULL;
}

/*
 * Runs when the library is loaded, before the program can register handlers: the program's handlers may use sets
 * (libuv's do), so they have to run before ours in the parent and after ours in the child. libxts's handlers are
 * registered first of all, so that at fork() they lock last, in the order in which all other code locks.
 */
__attribute__((constructor(101))) static void watch_fork(void)
{
	static const struct xts_fork_part at_fork = {
		.before = before_fork, .in_parent = after_fork_parent, .in_child = after_fork_child, .orphaned = orphaned
	};

	preload_lend_calls(); /* before libxts makes any descriptors */
	xts_flush();
	xts_at_fork(&at_fork);
}

void sets_lock(void)
{
	xts_go_in();
	pthread_mutex_lock(&lock);
}

void sets_unlock(void)
{
	pthread_mutex_unlock(&lock);
	xts_come_out();
}

static void lock_store(void)
{
	xts_go_in();
	pthread_mutex_lock(&store_lock);
}

static void unlock_store(void)
{
	pthread_mutex_unlock(&store_lock);
	xts_come_out();
}

/* --- the store ---------------------------------------------------------------------------------------------------- */

uint32_t set_make(int fd, uint32_t members)
{
	static uint32_t generation;
	struct epoll_set *set = NULL;
	uint32_t number = 0;

	lock_store();
	if (unused) {
		set = unused;
		unused = set->next_free;
	} else if (used < SETS_MAX) {
		set = &store[used++];
	}
	if (set) {
		number = (uint32_t)(set - store) | (++generation & GENERATIONS) << GENERATION;
		set->ctx = NULL;
		set->bell = -1;
		set->members = members;
		set->both = 0;
		set->called = false;
		set->mirrored = false;
		set->fd = fd;
		set->users = 1;
		atomic_store(&set->number, number);
	}
	unlock_store();
	return number;
}

/* No thread holds it any more. */
static void set_free(struct epoll_set *set)
{
	int before = errno;

	atomic_fetch_sub(&note_total, set->registration_count);
	free(set->registrations);
	set->registrations = NULL;
	set->registration_count = set->registration_room = 0;
	if (set->ctx && !xts_inside.locked)
		xts_epoll_ctx_destroy(set->ctx);
	lock_store();
	set->next_free = unused;
	unused = set;
	unlock_store();
	errno = before;
}

struct epoll_set *set_hold(uint32_t number, uint64_t by)
{
	struct epoll_set *set = &store[number & ((1u << GENERATION) - 1)];
	uint64_t users = atomic_load(&set->users);

	do {
		if (!users)
			return NULL;
	} while (!atomic_compare_exchange_weak(&set->users, &users, users + by));
	if (atomic_load(&set->number) == number)
		return set;
	set_drop(set, by);
	return NULL;
}

void set_drop(struct epoll_set *set, uint64_t by)
{
	if (atomic_fetch_sub(&set->users, by) == by)
		set_free(set);
}

void epoll_set_release(uint32_t number)
{
	struct epoll_set *set = set_hold(number, 1);

	if (!set)
		return;
	atomic_store(&set->number, 0);
	set_drop(set, 1);
	set_drop(set, 1);
}

static void keep_number(int fd, struct descriptor d, void *argument)
{
	struct epoll_set *set = argument;

	if (d.number == set->number)
		set->fd = fd;
}

int set_descriptor(struct epoll_set *set)
{
	struct descriptor d = descriptor_get(set->fd);

	if (d.kind == DESCRIPTOR_EPOLL && d.number == set->number)
		return set->fd;
	set->fd = -1;
	descriptor_each(DESCRIPTOR_EPOLL, keep_number, set);
	return set->fd;
}

/* --- notes -------------------------------------------------------------------------------------------------------- */

bool sets_have_registrations(void)
{
	return atomic_load(&note_total);
}

struct registration *set_registration(struct epoll_set *set, int fd)
{
	for (unsigned i = 0; i < set->registration_count; i++) {
		if (set->registrations[i].fd == fd)
			return &set->registrations[i];
	}
	return NULL;
}

bool set_add_registration(struct epoll_set *set, const struct registration *note)
{
	struct registration *old = set_registration(set, note->fd), *more;

	if (old)
		set_remove_registration(set, old);
	if (set->registration_count == set->registration_room) {
		unsigned room = set->registration_room ? set->registration_room * 2 : 4;

		more = realloc(set->registrations, room * sizeof *more);
		if (!more)
			return false;
		set->registrations = more;
		set->registration_room = room;
	}
	set->registrations[set->registration_count++] = *note;
	atomic_fetch_add(&note_total, 1);
	if (note->kind != REGISTERED_UNDECIDED)
		atomic_fetch_add(&set->both, 1);
	return true;
}

void set_remove_registration(struct epoll_set *set, struct registration *note)
{
	if (note->kind != REGISTERED_UNDECIDED)
		atomic_fetch_sub(&set->both, 1);
	*note = set->registrations[--set->registration_count];
	atomic_fetch_sub(&note_total, 1);
}

void sets_each(void (*visit)(struct epoll_set *set, void *argument), void *argument)
{
	for (uint32_t i = 1; i < used; i++) {
		struct epoll_set *set = set_hold(atomic_load(&store[i].number), 1);

		if (!set)
			continue;
		visit(set, argument);
		set_drop(set, 1);
	}
}

/* --- the context -------------------------------------------------------------------------------------------------- */

/* Wakes threads that began to wait when the set had no context yet. */
static void ring_waiters(struct epoll_set *set)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = SET_BELL_DATA };
	int fd = set_descriptor(set), bell;

	if (fd < 0)
		return;
	bell = real()->eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	if (bell < 0)
		return;
	descriptor_set(bell, (struct descriptor){ .kind = DESCRIPTOR_INTERNAL });
	atomic_store(&set->bell, bell); /* set before it can wake a thread */
	if (real()->epoll_ctl(fd, EPOLL_CTL_ADD, bell, &event) < 0) {
		atomic_store(&set->bell, -1);
		descriptor_take(bell);
		real()->close(bell);
	}
}

void set_silence(struct epoll_set *set)
{
	int bell = atomic_exchange(&set->bell, -1), fd = set_descriptor(set);

	if (bell < 0)
		return;
	if (fd >= 0)
		/* needed, since a forked child may have the bell open */
		real()->epoll_ctl(fd, EPOLL_CTL_DEL, bell, NULL);
	descriptor_take(bell);
	real()->close(bell);
}

struct nesting {
	struct epoll_set *inner;
	bool failed;
};

/* A member of the set, which is an epoll set itself, has got a context. */
static void nest(struct epoll_set *set, void *argument)
{
	struct nesting *nesting = argument;

	for (unsigned i = 0; i < set->registration_count; i++) {
		struct registration *note = &set->registrations[i];

		if (note->kind != REGISTERED_SET || note->inner != nesting->inner->number)
			continue;
		if (!set_convert(set, -1) || XTS(xts_epoll_nest(set->ctx, EPOLL_CTL_ADD, nesting->inner->ctx,
								(uint32_t)note->fd, &note->event)) < 0)
			nesting->failed = true;
	}
}

bool set_convert(struct epoll_set *set, int number)
{
	struct nesting nesting = { .inner = set };
	void *ctx;

	if (set->ctx)
		return true;
	if (xts_inside.locked)
		return preload_reentered();
	ctx = xts_epoll_ctx_create_for(number, XTS_EPOLL_HOLD);
	if (!ctx)
		return false;
	atomic_store(&set->ctx, ctx);
	/* Threads that begin to wait after this see the context. */
	if (atomic_load(&set->users) >= SET_WAITER)
		ring_waiters(set);
	sets_each(nest, &nesting);
	if (!atomic_load(&set->called))
		instruction_expect();
	return !nesting.failed;
}
