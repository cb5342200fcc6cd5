/*
 * The table of descriptors. Words are read without a lock; table_lock orders changes of several words at once (dup
 * against the decision of a socket). The descriptors that share an XTS socket, a note or an epoll set are counted by
 * its number, without the first: so the usual case, a single descriptor, touches and costs no memory.
 */
#include "preload.h"

#include <pthread.h>
#include <sys/resource.h>

#include "undecided_options.h"
#include "process_page.h"
#include "sharing_children.h"

#define SHARED_MAX (1u << 20) /* the low 20 bits of an XTS number are its index; the other numbers are below 2^20 */

static _Atomic uint64_t words[DESCRIPTORS_MAX];
_Atomic uint64_t *descriptors = words;

#define NUMBER_HIGH 1024

/* By kind: the number of descriptors other than the first. */
static _Atomic uint32_t more[DESCRIPTOR_INTERNAL + 1][SHARED_MAX];
static _Atomic int highest = -1; /* the highest descriptor that was ever set */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

/* The table that the caller may change. */
static _Atomic uint64_t *changeable(void)
{
	if (__builtin_expect(preload_shares_memory(), 0))
		return sharing_table();
	if (__builtin_expect(atomic_load_explicit(&descriptor_sharers, memory_order_relaxed) != 0, 0))
		sharing_look_for_ended();
	return descriptors;
}

static uint64_t pack(struct descriptor d)
{
	return (uint64_t)d.kind | (uint64_t)d.flags << 8 | (uint64_t)d.reason << 16 | (uint64_t)d.number << 32;
}

static struct descriptor unpack(uint64_t word)
{
	return (struct descriptor){ .kind = (uint8_t)word,
				    .flags = (uint8_t)(word >> 8),
				    .reason = (uint16_t)(word >> 16),
				    .number = (uint32_t)(word >> 32) };
}

/* Does it stand for something that several descriptors can share? */
static bool is_shared_kind(struct descriptor d)
{
	return d.kind == DESCRIPTOR_OFFLOADED || d.kind == DESCRIPTOR_EPOLL ||
	       (d.kind == DESCRIPTOR_UNDECIDED && d.number);
}

static _Atomic uint32_t *more_of(struct descriptor d)
{
	return &more[d.kind][d.number % SHARED_MAX];
}

static void lock_table(void)
{
	xts_go_in();
	pthread_mutex_lock(&table_lock);
}

static void unlock_table(void)
{
	pthread_mutex_unlock(&table_lock);
	xts_come_out();
}

void descriptor_set(int fd, struct descriptor d)
{
	int before = atomic_load_explicit(&highest, memory_order_relaxed);
	_Atomic uint64_t *table = changeable();

	if ((unsigned)fd >= DESCRIPTORS_MAX || !table)
		return;
	while (fd > before && !atomic_compare_exchange_weak(&highest, &before, fd))
		;
	atomic_store_explicit(&table[fd], pack(d), memory_order_release);
	if (table == words)
		report_descriptor(fd, d);
}

struct descriptor descriptor_take(int fd)
{
	_Atomic uint64_t *table = changeable();
	struct descriptor d = { 0 };

	if ((unsigned)fd >= DESCRIPTORS_MAX || !table)
		return d;
	d = unpack(atomic_exchange_explicit(&table[fd], 0, memory_order_acq_rel));
	if (table == words)
		report_descriptor(fd, (struct descriptor){ 0 });
	return d;
}

void descriptor_share(struct descriptor d)
{
	if (is_shared_kind(d))
		atomic_fetch_add(more_of(d), 1);
}

void descriptor_release(struct descriptor d)
{
	uint32_t others;

	if (!is_shared_kind(d))
		return;
	others = atomic_load(more_of(d));
	while (others && !atomic_compare_exchange_weak(more_of(d), &others, others - 1))
		;
	if (others)
		return;
	if (d.kind == DESCRIPTOR_OFFLOADED)
		(void)XTS(xts_close((int)d.number));
	else if (d.kind == DESCRIPTOR_UNDECIDED)
		note_drop(d.number);
	else
		epoll_set_release(d.number);
}

bool descriptor_is_last(struct descriptor d)
{
	return !is_shared_kind(d) || !atomic_load(more_of(d));
}

int descriptor_highest(void)
{
	return atomic_load_explicit(&highest, memory_order_relaxed);
}

bool descriptor_become(int fd, struct descriptor was, struct descriptor d)
{
	uint32_t others = 0;
	bool same;

	if (!changeable())
		return false;
	lock_table();
	same = pack(descriptor_get(fd)) == pack(was);
	if (same && is_shared_kind(was))
		others = atomic_exchange(more_of(was), 0);
	if (same && is_shared_kind(d))
		atomic_store(more_of(d), others);
	for (int i = 0; same && others && i <= highest; i++) {
		if (i != fd && pack(descriptor_get(i)) == pack(was))
			descriptor_set(i, d);
	}
	if (same)
		descriptor_set(fd, d);
	unlock_table();
	if (same && was.kind == DESCRIPTOR_UNDECIDED && was.number)
		note_drop(was.number);
	return same;
}

void descriptor_copy(int fd, int copy)
{
	struct descriptor d;

	if (!changeable())
		return;
	lock_table();
	d = descriptor_get(fd);
	if (d.kind == DESCRIPTOR_UNDECIDED && !d.number) {
		/* From now on it needs a note with a number, which both descriptors share. */
		d.number = note_make();
		if (!d.number)
			d = (struct descriptor){ .kind = DESCRIPTOR_STAYED, .reason = XTS_REASON_LIMIT };
		descriptor_set(fd, d);
	}
	if (d.kind == DESCRIPTOR_INTERNAL)
		d = (struct descriptor){ 0 };
	descriptor_share(d);
	if (d.kind != DESCRIPTOR_KERNEL) {
		descriptor_set(copy, d);
		report_duplicate(fd, copy);
	}
	unlock_table();
}

void descriptor_each(enum descriptor_kind kind, void (*visit)(int fd, struct descriptor d, void *argument),
		     void *argument)
{
	for (int fd = 0; fd <= highest; fd++) {
		struct descriptor d = descriptor_get(fd);

		if (d.kind == kind)
			visit(fd, d, argument);
	}
}

int descriptor_half_of(int number)
{
	for (int fd = 0; fd <= highest; fd++) {
		struct descriptor d = descriptor_get(fd);

		if (d.kind == DESCRIPTOR_OFFLOADED && d.number == (uint32_t)number && d.flags & DESCRIPTOR_ALSO_LOCAL)
			return fd;
	}
	return -1;
}

void descriptor_gone(int number, unsigned reason)
{
	for (int fd = 0; fd <= highest; fd++) {
		uint64_t word = atomic_load_explicit(&words[fd], memory_order_acquire);
		struct descriptor d = unpack(word);

		if (d.kind != DESCRIPTOR_OFFLOADED || d.number != (uint32_t)number)
			continue;
		d.reason = (uint16_t)reason;
		if (!atomic_compare_exchange_strong(&words[fd], &word, pack(d)))
			continue; /* closed meanwhile */
		report_descriptor(fd, d);
		preload_log("descriptor %d: not this process's (%s)", fd, xts_reason_name(reason));
	}
	atomic_fetch_add_explicit(&preload.stayed[reason], 1, memory_order_relaxed);
	report_counters();
}

/* As high as the limit allows: programs expect low numbers for their own, and select() needs numbers below
 * FD_SETSIZE. */
int descriptor_own(int fd)
{
	struct rlimit limit;
	int high = NUMBER_HIGH, moved, before = errno;

	if (atomic_load(&descriptor_sharers) && descriptors_of_caller() != words) {
		real()->close(fd); /* its parent would not have it */
		errno = EMFILE;
		return -1;
	}
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 2 * NUMBER_HIGH)
		high = (int)limit.rlim_cur / 2;
	moved = real()->fcntl(fd, F_DUPFD_CLOEXEC, high);
	if (moved >= 0) {
		real()->close(fd);
		fd = moved;
	}
	descriptor_set(fd, (struct descriptor){ .kind = DESCRIPTOR_INTERNAL });
	errno = before;
	return fd;
}

void descriptor_disown(int fd)
{
	if (descriptor_get(fd).kind == DESCRIPTOR_INTERNAL)
		(void)descriptor_take(fd);
}

/* The number of each stays that of its parent's socket, which libxts does not know here (ENOTCONN). */
static void is_parents(int fd, struct descriptor d, void *unused)
{
	(void)unused;
	d.reason = XTS_REASON_ELSEWHERE;
	atomic_store_explicit(&words[fd], pack(d), memory_order_release);
}

static void orphaned(void)
{
	pthread_mutex_init(&table_lock, NULL);
	descriptor_each(DESCRIPTOR_OFFLOADED, is_parents, NULL);
}

/* --- the tables of children that share this memory ---------------------------------------------------------------- */

void descriptors_copy_all(const _Atomic uint64_t *from, _Atomic uint64_t *table)
{
	lock_table();
	for (int fd = 0; fd <= highest; fd++) {
		struct descriptor d = unpack(atomic_load(&from[fd]));

		if (d.kind == DESCRIPTOR_KERNEL)
			continue;
		if (d.kind == DESCRIPTOR_UNDECIDED && !d.number)
			d = (struct descriptor){ .kind = DESCRIPTOR_STAYED, .reason = XTS_REASON_RAW };
		descriptor_share(d);
		atomic_store(&table[fd], pack(d));
	}
	unlock_table();
}

void descriptors_release_all(_Atomic uint64_t *table)
{
	for (int fd = 0; fd <= highest; fd++)
		descriptor_release(unpack(atomic_exchange(&table[fd], 0)));
}

void descriptors_replace_all(const _Atomic uint64_t *table)
{
	for (int fd = 0; fd <= highest; fd++)
		atomic_store(&words[fd], atomic_load(&table[fd]));
}

/* If a thread forks while another one changes the table, the child must not find it locked forever. */
__attribute__((constructor)) static void keep_over_fork(void)
{
	static const struct xts_fork_part at_fork = {
		.before = lock_table, .in_parent = unlock_table, .in_child = unlock_table, .orphaned = orphaned
	};

	xts_at_fork(&at_fork);
}
