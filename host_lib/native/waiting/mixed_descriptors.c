/*
 * poll(2) and epoll_wait(2) over XTS sockets, and over XTS sockets and kernel descriptors together (for the
 * interposer).
 *
 * XTS sockets are looked at first, in user space. If none is ready, the thread waits as in any other call of libxts
 * (wait.c), and its ppoll() covers the kernel descriptors too. Each call looks at the kernel descriptors at least once,
 * so that neither kind can starve the other, and no more often than necessary: after a sleep their state is known.
 *
 * For epoll, the wait covers the descriptor of the kernel's set, and the kernel's epoll_wait() collects its events,
 * without the lock. So kernel descriptors cost O(ready), in any mode. If the array has no room for all events, the two
 * kinds take turns in coming first.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "core/arguments.h"
#include "core/caller.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/process.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "processes/inherit.h"
#include "processes/take_over.h"
#include "waiting/epoll.h"
#include "waiting/other_stacks.h"
#include "waiting/poll.h"
#include "core/wait.h"
#include "xts.h"
#include "xts_private.h"

#define FDS_ON_STACK 64
#define BELL_MISSING_NS (5 * NS_PER_MS)

/* --- poll --------------------------------------------------------------------------------------------------------- */

struct polling {
	struct stack *stack;
	struct pollfd *sockets;
	nfds_t count;
	struct xts_polled_context *contexts;
	nfds_t context_count;
};

static int scan(const struct polling *p)
{
	int ready = 0;

	for (nfds_t i = 0; i < p->count; i++) {
		struct pollfd *fd = &p->sockets[i];
		struct xts_sock *s;

		fd->revents = 0;
		if (fd->fd < 0)
			continue;
		s = table_open(p->stack, fd->fd);
		if (!s)
			fd->revents = POLLNVAL;
		else /* the EPOLL* bits are the POLL* bits */
			fd->revents = (short)(socket_events(s) &
					      ((uint32_t)(unsigned short)fd->events | POLLERR | POLLHUP));
		ready += fd->revents != 0;
	}
	for (nfds_t i = 0; i < p->context_count; i++) {
		struct xts_polled_context *c = &p->contexts[i];

		c->revents = epoll_has_event(c->ectx) ? c->events & (POLLIN | POLLRDNORM) : 0;
		ready += c->revents != 0;
	}
	return ready;
}

/* Marks the polled sockets, or removes the marks of those that still exist. */
static void mark(const struct polling *p, int by)
{
	for (nfds_t i = 0; i < p->count; i++) {
		struct xts_sock *s = p->sockets[i].fd < 0 ? NULL : table_open(p->stack, p->sockets[i].fd);

		if (s)
			s->polled = (uint16_t)(s->polled + by);
	}
	for (nfds_t i = 0; i < p->context_count; i++) {
		struct epoll_ctx *ctx = p->contexts[i].ectx;

		ctx->polled = (uint16_t)(ctx->polled + by);
	}
}

/* Takes over inherited sockets, since the thread waits for them, and lets the proxy offer connections to listeners. */
static void use(const struct polling *p)
{
	struct stack *st = p->stack;

	for (nfds_t i = 0; i < p->count && (st->untaken || st->shared); i++) {
		struct xts_sock *s = p->sockets[i].fd < 0 ? NULL : table_use_for(st, p->sockets[i].fd, PURPOSE_POLL);

		if (s && p->sockets[i].events & (POLLIN | POLLRDNORM))
			kind_of(s)->interest(s, false);
	}
	for (nfds_t i = 0; i < p->context_count && st->to_join; i++)
		inherit_take_watched(st, p->contexts[i].ectx);
}

/* Has a context got its first socket of another stack? Then the wait has to begin again (poll_several()). */
static bool has_become_foreign(const struct polling *p)
{
	for (nfds_t i = 0; i < p->context_count; i++)
		if (foreign_is_used(p->contexts[i].ectx))
			return true;
	return false;
}

/* Waits for XTS sockets. Returns how many are ready, or -errno; 0 with watched->ready, or at the deadline; -ESTALE: see
 * has_become_foreign(). */
static int poll_ours(const struct polling *p, struct watched_fds *watched, uint64_t deadline_ns)
{
	struct stack *st;
	int r;

	st = stack_enter(p->stack);
	use(p);
	channel_pump(st);
	if (!deadline_ns)
		(void)channel_catch_up(st);
	r = scan(p);
	if (!r && deadline_ns) {
		mark(p, 1);
		while (!r && !watched->ready) {
			r = wait_watching(st, &st->poll_waiters, deadline_ns, true, watched);
			if (r)
				break;
			r = scan(p);
			if (!r && has_become_foreign(p))
				r = -ESTALE;
		}
		mark(p, -1);
		if (r == -ETIMEDOUT)
			r = scan(p);
	}
	stack_leave(st);
	return r;
}

/* The state of the kernel descriptors: the wait's result if it looked at them, otherwise looked up now. How many are
 * ready, or -errno. */
static int poll_kernels(struct watched_fds *watched, bool satisfied)
{
	struct timespec none = { 0 };
	const sigset_t *mask = satisfied ? NULL : watched->mask;
	int ready = 0;

	if (!watched->looked && (watched->count || mask))
		ready = kernel_calls.ppoll(watched->fds + SLEEP_FDS, watched->count, &none, mask);
	else if (watched->ready)
		for (nfds_t i = 0; i < watched->count; i++)
			ready += watched->fds[SLEEP_FDS + i].revents != 0;
	return ready < 0 ? -errno : ready;
}

int poll_own(struct stack *st, struct pollfd *sockets, nfds_t count, struct xts_polled_context *contexts,
	     nfds_t context_count, struct pollfd *kernel, nfds_t kernel_count, uint64_t deadline_ns,
	     const sigset_t *mask)
{
	struct polling p = {
		.stack = st, .sockets = sockets, .count = count, .contexts = contexts, .context_count = context_count
	};
	struct watched_fds watched = { .count = kernel_count, .mask = mask };
	struct pollfd few[SLEEP_FDS + FDS_ON_STACK];
	int ours, kernels = 0;

	watched.fds = few;
	if (kernel_count > FDS_ON_STACK)
		watched.fds = malloc((SLEEP_FDS + kernel_count) * sizeof *watched.fds);
	if (!watched.fds)
		return -ENOMEM;
	if (kernel_count)
		memcpy(watched.fds + SLEEP_FDS, kernel, kernel_count * sizeof *kernel);
	ours = poll_ours(&p, &watched, deadline_ns);
	if (ours >= 0)
		kernels = poll_kernels(&watched, ours > 0);
	for (nfds_t i = 0; i < kernel_count; i++)
		kernel[i].revents = kernels > 0 ? watched.fds[SLEEP_FDS + i].revents : 0;
	if (watched.fds != few)
		free(watched.fds);
	if (ours < 0)
		return ours == -ENOBUFS ? -ENOMEM : ours;
	if (kernels < 0 && !ours)
		return kernels;
	return ours + (kernels > 0 ? kernels : 0);
}

/* The stack whose queue the wait sleeps on: the one of the first context or socket. */
static struct stack *main_stack(const struct pollfd *sockets, nfds_t count, const struct xts_polled_context *contexts,
				nfds_t context_count)
{
	struct stack *st = context_count ? ((struct epoll_ctx *)contexts[0].ectx)->stack : NULL;

	for (nfds_t i = 0; i < count && !st; i++)
		st = table_stack(sockets[i].fd);
	if (st)
		return st;
	xts_look_who_calls();
	return process_own_stack();
}

static nfds_t count_foreign(const struct stack *st, const struct pollfd *sockets, nfds_t count,
			    const struct xts_polled_context *contexts, nfds_t context_count)
{
	nfds_t foreign = 0;

	for (nfds_t i = 0; i < count; i++) {
		const struct stack *its = table_stack(sockets[i].fd);

		foreign += its && its != st;
	}
	for (nfds_t i = 0; i < context_count; i++)
		foreign += ((const struct epoll_ctx *)contexts[i].ectx)->stack != st ||
			   foreign_is_used(contexts[i].ectx);
	return foreign;
}

int xts_poll_contexts(struct pollfd *sockets, nfds_t count, struct xts_polled_context *contexts, nfds_t context_count,
		      struct pollfd *kernel, nfds_t kernel_count, uint64_t deadline_ns, const sigset_t *mask)
{
	struct stack *st = main_stack(sockets, count, contexts, context_count);
	int r = -ESTALE;

	xts_cancellation_point();
	if (__builtin_expect(!count_foreign(st, sockets, count, contexts, context_count), 1))
		r = poll_own(st, sockets, count, contexts, context_count, kernel, kernel_count, deadline_ns, mask);
	if (r == -ESTALE)
		r = poll_several(st,
				 &(struct several){ .sockets = sockets,
						    .count = count,
						    .contexts = contexts,
						    .context_count = context_count,
						    .kernel = kernel,
						    .kernel_count = kernel_count },
				 deadline_ns, mask);
	return finish(r);
}

int xts_poll_mixed(struct pollfd *sockets, nfds_t count, struct pollfd *kernel, nfds_t kernel_count,
		   uint64_t deadline_ns, const sigset_t *mask)
{
	return xts_poll_contexts(sockets, count, NULL, 0, kernel, kernel_count, deadline_ns, mask);
}

int xts_poll(struct pollfd *fds, unsigned long count, int timeout_ms)
{
	uint64_t deadline = 0;

	/* the kernel refuses an impossible address even for no descriptors */
	if (count > xts_argument_end / sizeof *fds || argument_is_impossible(fds, count * sizeof *fds) ||
	    argument_is_bad(fds, count * sizeof *fds))
		return finish(-EFAULT);
	if (timeout_ms)
		deadline = deadline_after(timeout_ms < 0 ? FOREVER : (uint64_t)timeout_ms * NS_PER_MS);
	return xts_poll_mixed(fds, count, NULL, 0, deadline, NULL);
}

/* --- epoll -------------------------------------------------------------------------------------------------------- */

struct collecting {
	struct epoll_ctx *ctx;
	int kernel_set;                  /* or -1 */
	const _Atomic uint32_t *members; /* how many descriptors it has; NULL: unknown */
	struct epoll_event *events;
	int max, count;
	bool looks;  /* the program's call does not wait */
	int foreign; /* the descriptor that is readable when there may be events of other stacks; -1: none */
};

static bool set_has_members(const struct collecting *c)
{
	return c->kernel_set >= 0 && (!c->members || atomic_load_explicit(c->members, memory_order_relaxed));
}

/* Adds the events that the kernel set has now. 0 or -errno. */
static int collect_kernels(struct collecting *c)
{
	int r = c->kernel_set < 0 ? 0 :
				    kernel_calls.epoll_wait(c->kernel_set, c->events + c->count, c->max - c->count, 0);

	if (r < 0)
		return c->count ? 0 : -errno;
	c->count += r;
	return 0;
}

/* Adds the events of XTS sockets. If there are none of either kind yet, waits for either. 0, -ETIMEDOUT or -errno. */
static int collect_ours(struct collecting *c, struct watched_fds *watched, uint64_t deadline_ns)
{
	struct stack *st;
	struct epoll_ctx *ctx = c->ctx;
	int r = 0;

	st = stack_enter(c->ctx->stack);
	epoll_arrive(ctx);
	if (c->looks && c->count < c->max)
		(void)channel_catch_up(st);
	c->count += epoll_collect(ctx, c->events + c->count, c->max - c->count);
	while (!c->count && deadline_ns && !r && !watched->ready && foreign_fd(ctx) == c->foreign) {
		r = wait_watching(st, &ctx->waiters, deadline_ns, true, watched);
		c->count += epoll_collect(ctx, c->events, c->max);
	}
	ctx->kernel_first = c->count == c->max && set_has_members(c);
	epoll_promise(ctx, c->count);
	stack_leave(st);
	return c->count ? 0 : r;
}

/* Waits for events of this context's own stack and of the kernel set. The wait also ends (0) when c->foreign is
 * readable, or is another descriptor. */
static int wait_own(struct collecting *c, uint64_t deadline_ns, const sigset_t *mask)
{
	struct pollfd fds[SLEEP_FDS + 2] = { [SLEEP_FDS] = { .fd = c->kernel_set, .events = POLLIN },
					     [SLEEP_FDS + 1] = { .fd = c->foreign, .events = POLLIN } };
	struct watched_fds watched = { .fds = fds,
				       .count = c->foreign >= 0 ? 2 : c->kernel_set >= 0,
				       .mask = mask,
				       .patient = c->ctx->flags & XTS_EPOLL_PATIENT };
	bool kernels_taken = false;
	int r = 0;

	if (c->ctx->kernel_first && set_has_members(c)) {
		r = collect_kernels(c);
		if (r < 0)
			return r;
		kernels_taken = c->count;
		if (c->count == c->max) {
			c->ctx->kernel_first = false;
			return 0;
		}
	}
	do {
		watched.looked = watched.ready = false;
		fds[SLEEP_FDS + 1].revents = 0;
		r = collect_ours(c, &watched, c->count ? 0 : deadline_ns);
		if (r < 0)
			break;
		/* If the wait has slept, it knows that the kernel set has no events. */
		if (c->count < c->max && !kernels_taken && (watched.ready || (!watched.looked && set_has_members(c))))
			r = collect_kernels(c);
		/* go on if another thread has taken the events */
	} while (!c->count && !r && deadline_ns && !fds[SLEEP_FDS + 1].revents && foreign_fd(c->ctx) == c->foreign);
	return r;
}

/* Without a descriptor for the bell, a wait has to look again by itself. */
static uint64_t deadline_without(const struct collecting *c, bool used, uint64_t deadline_ns)
{
	uint64_t soon_ns;

	if (!used || c->foreign >= 0 || !deadline_ns)
		return deadline_ns;
	soon_ns = now_ns() + BELL_MISSING_NS;
	return soon_ns < deadline_ns ? soon_ns : deadline_ns;
}

/* The kernel finds only with the first event that it cannot write there, and keeps that event. */
static int wait_for_nowhere(void *ectx, int kernel_set, uint64_t deadline_ns, const sigset_t *mask)
{
	struct xts_polled_context context = { .ectx = ectx, .events = POLLIN };
	struct pollfd kernel = { .fd = kernel_set, .events = POLLIN };
	int r = xts_poll_contexts(NULL, 0, &context, 1, &kernel, kernel_set >= 0, deadline_ns, mask);

	return r > 0 ? finish(-EFAULT) : r;
}

int xts_epoll_wait_mixed(void *ectx, int kernel_set, const _Atomic uint32_t *members, struct epoll_event *events,
			 int max, uint64_t deadline_ns, const sigset_t *mask)
{
	struct collecting c = {
		.ctx = ectx, .kernel_set = kernel_set, .members = members, .events = events, .max = max, .looks = !deadline_ns
	};
	int r = 0;

	if (!ectx)
		return finish(-EBADF);
	r = argument_events(events, max);
	if (r)
		return finish(r);
	if (argument_is_nowhere(events))
		return wait_for_nowhere(ectx, kernel_set, deadline_ns, mask);
	xts_cancellation_point();
	do {
		bool used = foreign_is_used(c.ctx), last = used && c.ctx->foreign_last;

		/* Events of other stacks come first, unless they filled the whole array the last time. */
		if (used && !last)
			c.count = foreign_collect(c.ctx, events, max, c.looks);
		c.ctx->foreign_last = used && c.count == max;
		c.foreign = foreign_fd(c.ctx);
		if (c.count < max)
			r = wait_own(&c, c.count || last ? 0 : deadline_without(&c, used, deadline_ns), mask);
		if (last && c.count < max)
			c.count += foreign_collect(c.ctx, events + c.count, max - c.count, c.looks);
		if (last && r == -ETIMEDOUT && deadline_ns)
			r = 0;
		if (r == -ETIMEDOUT && used && c.foreign < 0 && now_ns() < deadline_ns)
			r = 0;
	} while (!c.count && !r && deadline_ns);
	if (r == -ETIMEDOUT)
		r = 0;
	if (r < 0 && !c.count)
		return finish(r == -ENOBUFS ? -ENOMEM : r);
	return c.count;
}

int xts_epoll_wait(void *ectx, struct epoll_event *events, int max, int timeout_ms)
{
	uint64_t deadline = 0;

	if (timeout_ms)
		deadline = deadline_after(timeout_ms < 0 ? FOREVER : (uint64_t)timeout_ms * NS_PER_MS);
	return xts_epoll_wait_mixed(ectx, -1, NULL, events, max, deadline, NULL);
}

uint64_t xts_now_ns(void)
{
	return now_ns();
}
