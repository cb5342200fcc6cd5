/*
 * poll and ppoll. The descriptors are sorted into XTS sockets, epoll sets with a context, and kernel descriptors;
 * libxts waits for all of them at once. A listener with a kernel socket, and an epoll set, are in two of these groups:
 * the events of both halves are reported. An epoll set without a context may get one during the wait.
 */
#include "poll_both.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/arguments.h"
#include "epoll_set.h"
#include "deadline.h"
#include "undecided_wait.h"

#define FDS_ON_STACK 32
#define FEW_FDS 16
#define YIELDS_MAX 10000
#define READABLE (POLLIN | POLLRDNORM) /* readiness of an epoll set with an event */

/* Where entry i of the caller's array is in each group; -1: not in it. */
struct places {
	int socket, context, kernel;
};

struct sorted {
	struct places *places;
	struct pollfd *sockets, *kernel;
	struct xts_polled_context *contexts;
	struct epoll_set **held; /* the epoll sets of the contexts */
	int socket_count, kernel_count, context_count;
};

struct room {
	struct places places[FDS_ON_STACK];
	struct pollfd sockets[FDS_ON_STACK], kernel[FDS_ON_STACK];
	struct xts_polled_context contexts[FDS_ON_STACK];
	struct epoll_set *held[FDS_ON_STACK];
};

bool poll_is_ours(int fd)
{
	struct descriptor d = descriptor_get(fd);

	return d.kind == DESCRIPTOR_OFFLOADED || d.kind == DESCRIPTOR_EPOLL || is_undecided_datagram(d);
}

static void sort_one(struct sorted *s, struct pollfd *fd, struct places *at)
{
	struct descriptor d = descriptor_get(fd->fd);
	struct epoll_set *set;

	*at = (struct places){ -1, -1, -1 };
	if (d.kind == DESCRIPTOR_OFFLOADED) {
		at->socket = s->socket_count;
		s->sockets[s->socket_count++] = (struct pollfd){ .fd = (int)d.number, .events = fd->events };
		if (!(d.flags & DESCRIPTOR_ALSO_LOCAL) || !(d.flags & DESCRIPTOR_LISTENS))
			return;
	} else if (d.kind == DESCRIPTOR_EPOLL) {
		set = set_hold(d.number, 1);
		if (set)
			set_call(set);
		if (set && atomic_load(&set->ctx)) {
			at->context = s->context_count;
			s->held[s->context_count] = set;
			s->contexts[s->context_count++] = (struct xts_polled_context){ .ectx = set->ctx,
										       .events = fd->events };
		} else if (set) {
			set_drop(set, 1);
		}
	}
	at->kernel = s->kernel_count;
	s->kernel[s->kernel_count++] = *fd;
}

static int merge(const struct sorted *s, struct pollfd *fds, nfds_t count)
{
	int ready = 0;

	for (nfds_t i = 0; i < count; i++) {
		const struct places *at = &s->places[i];

		fds[i].revents = 0;
		if (at->socket >= 0)
			fds[i].revents |= s->sockets[at->socket].revents;
		if (at->context >= 0)
			fds[i].revents |= s->contexts[at->context].revents;
		if (at->kernel >= 0)
			fds[i].revents |= s->kernel[at->kernel].revents;
		ready += fds[i].revents != 0;
	}
	return ready;
}

/* A descriptor that was the kernel's when they were sorted is offloaded by now: the kernel's events for it mean
 * nothing. */
static bool one_was_decided(const struct sorted *s, const struct pollfd *fds, nfds_t count)
{
	for (nfds_t i = 0; i < count; i++) {
		const struct places *at = &s->places[i];

		if (at->kernel >= 0 && at->socket < 0 && descriptor_offloaded(fds[i].fd) >= 0)
			return true;
	}
	return false;
}

static int poll_once(struct sorted *s, struct pollfd *fds, nfds_t count, uint64_t deadline_ns, const sigset_t *mask)
{
	int r;

	s->socket_count = s->context_count = s->kernel_count = 0;
	for (nfds_t i = 0; i < count; i++)
		sort_one(s, &fds[i], &s->places[i]);
	r = XTS(xts_poll_contexts(s->sockets, (nfds_t)s->socket_count, s->contexts, (nfds_t)s->context_count, s->kernel,
				  (nfds_t)s->kernel_count, deadline_ns, mask));
	if (r >= 0)
		r = merge(s, fds, count);
	for (int i = 0; i < s->context_count; i++)
		set_drop(s->held[i], 1);
	return r;
}

static int poll_sorted(struct sorted *s, struct pollfd *fds, nfds_t count, uint64_t deadline_ns, const sigset_t *mask)
{
	int r;

	do
		r = poll_once(s, fds, count, deadline_ns, mask);
	while (r >= 0 && one_was_decided(s, fds, count));
	return r;
}

static int poll_all(struct pollfd *fds, nfds_t count, uint64_t deadline_ns, const sigset_t *mask)
{
	struct room few;
	struct sorted s = { .places = few.places,
			    .sockets = few.sockets,
			    .kernel = few.kernel,
			    .contexts = few.contexts,
			    .held = few.held };
	char *more = NULL;
	int r, error;

	if (count > FDS_ON_STACK) {
		more = malloc(count * (sizeof(void *) + sizeof *s.contexts + sizeof *s.places + 2 * sizeof *s.sockets));
		if (!more)
			return -1; /* ENOMEM */
		s.held = (void *)more;
		s.contexts = (void *)(s.held + count);
		s.places = (void *)(s.contexts + count);
		s.sockets = (void *)(s.places + count);
		s.kernel = s.sockets + count;
	}
	r = poll_sorted(&s, fds, count, deadline_ns, mask);
	error = errno;
	free(more);
	errno = error;
	return r;
}

/* --- sets without a context --------------------------------------------------------------------------------------- */

/* Epoll sets that only the kernel knows of until they get their first offloaded socket, which may happen during the
 * wait. */
struct plain_sets {
	struct epoll_set *held[FDS_ON_STACK]; /* with more sets than these, the change is not noticed */
	int count;
	bool others; /* there is an XTS socket, which the kernel cannot wait for */
};

/* Registers this thread as one that waits only in the kernel, and is woken when the set gets a context. */
static void hold_sets(struct plain_sets *plain, const struct pollfd *fds, nfds_t count)
{
	for (nfds_t i = 0; i < count; i++) {
		struct descriptor d = descriptor_get(fds[i].fd);
		struct epoll_set *set;

		plain->others |= d.kind == DESCRIPTOR_OFFLOADED;
		if (d.kind != DESCRIPTOR_EPOLL || !(fds[i].events & READABLE) || plain->count == FDS_ON_STACK)
			continue;
		set = set_hold(d.number, SET_WAITER + 1);
		if (!set)
			continue;
		set_call(set);
		plain->held[plain->count++] = set;
		plain->others |= atomic_load(&set->ctx) != NULL;
	}
}

/* The bell in a set makes it readable: until the bell is removed, the program sees a wrong readiness. The waiting
 * threads have been woken. */
static void drop_sets(struct plain_sets *plain)
{
	for (int i = 0; i < plain->count; i++)
		set_drop(plain->held[i], SET_WAITER);
	for (int i = 0; i < plain->count; i++) {
		if (atomic_load(&plain->held[i]->users) >= SET_WAITER) {
			sets_lock(); /* waits for a thread that is just giving a set its context, and so its bell */
			sets_unlock();
		}
		for (int tries = 0; tries < YIELDS_MAX && atomic_load(&plain->held[i]->bell) >= 0; tries++) {
			set_silence_last(plain->held[i]);
			sched_yield();
		}
		set_drop(plain->held[i], 1);
	}
}

static bool any_offloaded(const struct pollfd *fds, nfds_t count)
{
	for (nfds_t i = 0; i < count; i++) {
		if (descriptor_offloaded(fds[i].fd) >= 0)
			return true;
	}
	return false;
}

static bool any_undecided(const struct pollfd *fds, nfds_t count)
{
	for (nfds_t i = 0; i < count; i++) {
		if (is_undecided_datagram(descriptor_get(fds[i].fd)))
			return true;
	}
	return false;
}

static bool got_context(const struct plain_sets *plain)
{
	for (int i = 0; i < plain->count; i++) {
		if (atomic_load(&plain->held[i]->ctx))
			return true;
	}
	return false;
}

/* What a thread has done that sleeps in the kernel. */
struct sleep {
	struct plain_sets plain;
	bool undecided;
	const struct preload_undo *outer; /* its caller's */
};

static void end_sleep(void *argument)
{
	struct sleep *s = argument;

	drop_sets(&s->plain);
	if (s->undecided)
		undecided_sleep_ends();
	if (s->outer)
		s->outer->undo(s->outer->argument);
}

static int poll_kernel(struct pollfd *fds, nfds_t count, uint64_t deadline_ns, const sigset_t *mask, struct sleep *s)
{
	struct timespec left;

	return preload_sleep_poll(fds, count, time_until(deadline_ns, &left), mask,
				  &(struct preload_undo){ .undo = end_sleep, .argument = s });
}

int poll_both(struct pollfd *fds, nfds_t count, uint64_t deadline_ns, const sigset_t *mask,
	      const struct preload_undo *outer)
{
	struct sleep s = { .outer = outer };
	INSIDE;
	bool changed;
	int r = 0, before;

	s.undecided = any_undecided(fds, count);
	if (s.undecided)
		undecided_sleep_begins();
	hold_sets(&s.plain, fds, count);
	if (!s.plain.others)
		r = poll_kernel(fds, count, deadline_ns, mask, &s);
	before = errno;
	changed = s.plain.others || got_context(&s.plain) || any_offloaded(fds, count);
	drop_sets(&s.plain);
	errno = before;
	if (changed && r >= 0)
		r = poll_all(fds, count, deadline_ns, mask);
	if (s.undecided)
		undecided_sleep_ends();
	return r;
}

/* --- the calls ---------------------------------------------------------------------------------------------------- */

/* Does the kernel take this many? It refuses more than RLIMIT_NOFILE, before it reads any. A program whose limit is
 * lower than the number that is asked for here has so few descriptors that it need not be looked at. */
static bool is_allowed(nfds_t count)
{
	struct rlimit limit;

	return count <= FEW_FDS || getrlimit(RLIMIT_NOFILE, &limit) < 0 || count <= limit.rlim_cur;
}

/* Is any of them ours? Not if the kernel refuses the call: then its call says so. */
static bool any_ours(struct pollfd *fds, nfds_t count)
{
	if (descriptor_highest() < 0 || !is_allowed(count) || argument_is_bad(fds, count * sizeof *fds))
		return false;
	for (nfds_t i = 0; i < count; i++) {
		if (poll_is_ours(fds[i].fd))
			return true;
	}
	return false;
}

EXPORT int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	if (!any_ours(fds, count))
		return real()->poll(fds, count, timeout_ms);
	xts_cancellation_point();
	return poll_both(fds, count, deadline_of_ms(timeout_ms), NULL, NULL);
}
int __poll(struct pollfd *fds, nfds_t count, int timeout_ms) __attribute__((alias("poll"))) EXPORT;

EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	uint64_t deadline_ns;

	if (!any_ours(fds, count) || argument_is_bad(mask, mask ? sizeof *mask : 0))
		return real()->ppoll(fds, count, timeout, mask);
	xts_cancellation_point();
	return deadline_of(timeout, &deadline_ns) ? poll_both(fds, count, deadline_ns, mask, NULL) : -1;
}

/* The fortified names: the C library's versions abort the program if the array is too small. */
EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t room)
{
	if (room / sizeof *fds < count || !any_ours(fds, count))
		return real()->__poll_chk(fds, count, timeout_ms, room);
	return poll(fds, count, timeout_ms);
}

EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask,
		       size_t room)
{
	if (room / sizeof *fds < count || !any_ours(fds, count))
		return real()->__ppoll_chk(fds, count, timeout, mask, room);
	return ppoll(fds, count, timeout, mask);
}
