/*
 * select and pselect, carried out as poll over the descriptors that are in any of the sets. Sets are bits in longs, for
 * as many descriptors as the program says, which may be more than the 1024 of an fd_set.
 */
#include "poll_both.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/arguments.h"
#include "deadline.h"
#include "preload.h"

#define LONG_BITS (CHAR_BIT * sizeof(long))
#define FDS_ON_STACK 64
#define TABLE_MIN 256 /* the kernel's table doubles from here */

/* As select() of the kernel interprets the events of poll(). */
#define READABLE (POLLIN | POLLRDNORM | POLLRDBAND | POLLHUP | POLLERR)
#define WRITABLE (POLLOUT | POLLWRNORM | POLLWRBAND | POLLERR)
#define EXCEPTIONAL POLLPRI

struct sets {
	int count;            /* the number of descriptors, which begin at 0 */
	unsigned long *in[3]; /* readable, writable, exceptional; NULL: none */
};

static const short events_of[3] = { READABLE, WRITABLE, EXCEPTIONAL };

static size_t words_of(const struct sets *s)
{
	return ((unsigned)s->count + LONG_BITS - 1) / LONG_BITS;
}

static unsigned long word_of(const struct sets *s, unsigned i)
{
	unsigned long word = 0;
	unsigned left = (unsigned)s->count - i * (unsigned)LONG_BITS;

	for (int k = 0; k < 3; k++)
		word |= s->in[k] ? s->in[k][i] : 0;
	return left < LONG_BITS ? word & ((1UL << left) - 1) : word;
}

/* Calls visit for each descriptor in a set until it returns true. */
static bool each(const struct sets *s, bool (*visit)(int fd, void *argument), void *argument)
{
	for (unsigned i = 0; i * LONG_BITS < (unsigned)s->count; i++) {
		for (unsigned long word = word_of(s, i); word; word &= word - 1) {
			if (visit((int)(i * LONG_BITS) + __builtin_ctzl(word), argument))
				return true;
		}
	}
	return false;
}

static bool is_ours(int fd, void *unused)
{
	(void)unused;
	return poll_is_ours(fd);
}

static bool is_in(const unsigned long *set, int fd)
{
	return set && set[(unsigned)fd / LONG_BITS] & (1UL << (unsigned)fd % LONG_BITS);
}

struct listing {
	const struct sets *sets;
	struct pollfd *fds;
	unsigned count;
};

static bool count_one(int fd, void *argument)
{
	struct listing *l = argument;

	(void)fd;
	l->count++;
	return false;
}

static bool list_one(int fd, void *argument)
{
	struct listing *l = argument;
	struct pollfd *p = &l->fds[l->count++];

	*p = (struct pollfd){ .fd = fd };
	for (int k = 0; k < 3; k++) {
		if (is_in(l->sets->in[k], fd))
			p->events = (short)(p->events | events_of[k]);
	}
	return false;
}

/* Leaves the bits of ready descriptors in the sets. Returns how many bits, or -1 with EBADF. */
static int report(const struct sets *s, const struct pollfd *fds, unsigned count)
{
	size_t words = words_of(s);
	int ready = 0;

	for (unsigned i = 0; i < count; i++) {
		if (fds[i].revents & POLLNVAL) {
			errno = EBADF;
			return -1;
		}
	}
	for (int k = 0; k < 3; k++) {
		if (s->in[k])
			memset(s->in[k], 0, words * sizeof(long));
	}
	for (unsigned i = 0; i < count; i++) {
		for (int k = 0; k < 3; k++) {
			/* HUP and ERR are always reported, so they count only for a set that the descriptor was in. */
			if (!s->in[k] || !(fds[i].revents & events_of[k]) ||
			    !(fds[i].events & events_of[k] & ~(POLLHUP | POLLERR)))
				continue;
			s->in[k][(unsigned)fds[i].fd / LONG_BITS] |= 1UL << (unsigned)fds[i].fd % LONG_BITS;
			ready++;
		}
	}
	return ready;
}

static int select_both(const struct sets *s, uint64_t deadline_ns, const sigset_t *mask)
{
	struct listing l = { .sets = s };
	struct pollfd few[FDS_ON_STACK];
	INSIDE;
	int r, error;

	each(s, count_one, &l);
	l.fds = l.count > FDS_ON_STACK ? malloc(l.count * sizeof *l.fds) : few;
	if (!l.fds)
		return -1; /* ENOMEM */
	l.count = 0;
	each(s, list_one, &l);
	r = poll_both(l.fds, l.count, deadline_ns, mask,
		      l.fds == few ? NULL : &(struct preload_undo){ .undo = free, .argument = l.fds });
	if (r >= 0)
		r = report(s, l.fds, l.count);
	error = errno;
	if (l.fds != few)
		free(l.fds);
	errno = error;
	return r;
}

/* How many descriptors the kernel's table would have room for without those of this library, which are high. The kernel
 * looks at no more of them, and neither must this library: the sets of a program that says more may be shorter. */
static int table_size(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int highest = 0, size = TABLE_MIN;
	const struct dirent *entry;

	if (!folder)
		return FD_SETSIZE;
	while ((entry = readdir(folder))) {
		int fd = (int)strtol(entry->d_name, NULL, 10);

		if (fd > highest && descriptor_get(fd).kind != DESCRIPTOR_INTERNAL)
			highest = fd;
	}
	closedir(folder);
	while (size <= highest)
		size *= 2;
	return size;
}

/* False: the kernel refuses the call, and its own call says how. */
static bool sets_of(struct sets *out, int count, fd_set *readable, fd_set *writable, fd_set *exceptional)
{
	INSIDE;

	*out = (struct sets){ .count = count, .in = { (void *)readable, (void *)writable, (void *)exceptional } };
	if (descriptor_highest() < 0)
		return false; /* none is ours */
	if (count > FD_SETSIZE) {
		int size = table_size();

		out->count = count < size ? count : size;
	}
	for (int k = 0; k < 3 && count >= 0; k++)
		if (out->in[k] && argument_is_bad(out->in[k], words_of(out) * sizeof(long)))
			return false;
	return count >= 0;
}

/* Writes the remaining time into the timeout, as Linux does. */
static void tell_left(struct timeval *timeout, uint64_t deadline_ns)
{
	uint64_t now = xts_now_ns(), left = deadline_ns > now ? (deadline_ns - now) / 1000 : 0;

	if (deadline_ns == XTS_FOREVER)
		return;
	timeout->tv_sec = (time_t)(left / 1000000);
	timeout->tv_usec = (suseconds_t)(left % 1000000);
}

EXPORT int select(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, struct timeval *timeout)
{
	struct timespec limit = { 0 };
	uint64_t deadline_ns;
	struct sets s;
	int r, error;

	if (!sets_of(&s, count, readable, writable, exceptional) ||
	    argument_is_bad(timeout, timeout ? sizeof *timeout : 0) || !each(&s, is_ours, NULL))
		return real()->select(count, readable, writable, exceptional, timeout);
	if (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0)) {
		errno = EINVAL;
		return -1;
	}
	if (timeout) { /* microseconds may be more than a second */
		limit.tv_sec = timeout->tv_sec + timeout->tv_usec / 1000000;
		limit.tv_nsec = timeout->tv_usec % 1000000 * 1000;
	}
	if (!deadline_of(timeout ? &limit : NULL, &deadline_ns))
		return -1;
	xts_cancellation_point();
	r = select_both(&s, deadline_ns, NULL);
	error = errno;
	if (timeout)
		tell_left(timeout, deadline_ns);
	errno = error;
	return r;
}
int __select(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, struct timeval *timeout)
	__attribute__((alias("select"))) EXPORT;

EXPORT int pselect(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, const struct timespec *timeout,
		   const sigset_t *mask)
{
	uint64_t deadline_ns;
	struct sets s;

	if (!sets_of(&s, count, readable, writable, exceptional) || argument_is_bad(mask, mask ? sizeof *mask : 0) ||
	    !each(&s, is_ours, NULL))
		return real()->pselect(count, readable, writable, exceptional, timeout, mask);
	xts_cancellation_point();
	return deadline_of(timeout, &deadline_ns) ? select_both(&s, deadline_ns, mask) : -1;
}
