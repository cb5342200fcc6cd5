/*
 * poll(2) and epoll_wait(2) over XTS sockets, and over these and kernel descriptors at once (for the interposer).
 *
 * Ours are looked at first, in user space. If none is ready the thread waits as any other of libxts does (wait.c), with
 * the kernel's descriptors beside: one ppoll() covers both. Each call looks at the kernel's once at least, so that
 * neither kind can starve the other, and no more often than it must: a wait that slept knows how they are.
 *
 * For epoll, what is beside is the descriptor of the kernel's own set, and its events are collected by the kernel's own
 * epoll_wait(), without the lock: they stay O(ready), whatever their mode. Where not all events fit, both kinds take
 * turns in being first.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "core/channel.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/process.h"
#include "core/socket.h"
#include "core/stack.h"
#include "processes/inherit.h"
#include "waiting/epoll.h"
#include "waiting/wait.h"
#include "xts.h"
#include "xts_private.h"

#define FDS_ON_STACK 64

/* --- poll ------------------------------------------------------------------------------------------------------------- */

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
			fd->revents = (short)(socket_events(s) & ((uint32_t)(unsigned short)fd->events | POLLERR | POLLHUP));
		ready += fd->revents != 0;
	}
	for (nfds_t i = 0; i < p->context_count; i++) {
		struct xts_polled_context *c = &p->contexts[i];

		c->revents = epoll_has_event(c->ectx) ? c->events & (POLLIN | POLLRDNORM) : 0;
		ready += c->revents != 0;
	}
	return ready;
}

/* Marks what is polled, or takes the marks of what is still there back. */
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

/* Inherited sockets are taken over by being waited for, and listeners are offered connections. */
static void use(const struct polling *p)
{
	struct stack *st = p->stack;

	for (nfds_t i = 0; i < p->count && (st->untaken || st->shared); i++) {
		struct xts_sock *s = p->sockets[i].fd < 0 ? NULL : table_use(st, p->sockets[i].fd);

		if (s && s->state == TCP_STATE_LISTEN && p->sockets[i].events & (POLLIN | POLLRDNORM))
			listener_interest(s);
	}
	for (nfds_t i = 0; i < p->context_count && st->to_join; i++)
		inherit_take_watched(p->contexts[i].ectx);
}

/* How many of ours are ready, or -errno; or 0 with beside->ready, or at the deadline. */
static int poll_ours(struct polling *p, struct beside *beside, uint64_t deadline_ns)
{
	struct stack *st;
	int r;

	p->stack = st = stack_enter_own();
	use(p);
	channel_pump(st);
	r = scan(p);
	if (!r && deadline_ns) {
		mark(p, 1);
		while (!r && !beside->ready) {
			r = wait_beside(st, &st->poll_waiters, deadline_ns, true, beside);
			if (r)
				break;
			r = scan(p);
		}
		mark(p, -1);
		if (r == -ETIMEDOUT)
			r = scan(p);
	}
	stack_leave(st);
	return r;
}

/* How the kernel's are: as the wait saw them, else now. How many are ready, or -errno. */
static int poll_kernels(struct beside *beside, bool satisfied)
{
	struct timespec none = {0};
	const sigset_t *mask = satisfied ? NULL : beside->mask;
	int ready = 0;

	if (!beside->looked && (beside->count || mask))
		ready = kernel_calls.ppoll(beside->fds + SLEEP_FDS, beside->count, &none, mask);
	else if (beside->ready)
		for (nfds_t i = 0; i < beside->count; i++)
			ready += beside->fds[SLEEP_FDS + i].revents != 0;
	return ready < 0 ? -errno : ready;
}

int xts_poll_contexts(struct pollfd *sockets, nfds_t count, struct xts_polled_context *contexts, nfds_t context_count,
		      struct pollfd *kernel, nfds_t kernel_count, uint64_t deadline_ns, const sigset_t *mask)
{
	struct polling p = {.sockets = sockets, .count = count, .contexts = contexts, .context_count = context_count};
	struct beside beside = {.count = kernel_count, .mask = mask};
	struct pollfd few[SLEEP_FDS + FDS_ON_STACK];
	int ours, kernels = 0;

	beside.fds = few;
	if (kernel_count > FDS_ON_STACK)
		beside.fds = malloc((SLEEP_FDS + kernel_count) * sizeof *beside.fds);
	if (!beside.fds)
		return finish(-ENOMEM);
	if (kernel_count)
		memcpy(beside.fds + SLEEP_FDS, kernel, kernel_count * sizeof *kernel);
	ours = poll_ours(&p, &beside, deadline_ns);
	if (ours >= 0)
		kernels = poll_kernels(&beside, ours > 0);
	for (nfds_t i = 0; i < kernel_count; i++)
		kernel[i].revents = kernels > 0 ? beside.fds[SLEEP_FDS + i].revents : 0;
	if (beside.fds != few)
		free(beside.fds);
	if (ours < 0)
		return finish(ours == -ENOBUFS ? -ENOMEM : ours);
	if (kernels < 0 && !ours)
		return finish(kernels);
	return ours + (kernels > 0 ? kernels : 0);
}

int xts_poll_mixed(struct pollfd *sockets, nfds_t count, struct pollfd *kernel, nfds_t kernel_count, uint64_t deadline_ns,
		   const sigset_t *mask)
{
	return xts_poll_contexts(sockets, count, NULL, 0, kernel, kernel_count, deadline_ns, mask);
}

int xts_poll(struct pollfd *fds, unsigned long count, int timeout_ms)
{
	uint64_t deadline = 0;

	if (!fds && count)
		return finish(-EFAULT);
	if (timeout_ms)
		deadline = deadline_after(timeout_ms < 0 ? FOREVER : (uint64_t)timeout_ms * NS_PER_MS);
	return xts_poll_mixed(fds, count, NULL, 0, deadline, NULL);
}

/* --- epoll ------------------------------------------------------------------------------------------------------------- */

struct collecting {
	struct epoll_ctx *ctx;
	int kernel_set;                   /* or -1 */
	const _Atomic uint32_t *members;  /* of it; NULL: unknown */
	struct epoll_event *events;
	int max, count;
};

static bool set_has_members(const struct collecting *c)
{
	return c->kernel_set >= 0 && (!c->members || atomic_load_explicit(c->members, memory_order_relaxed));
}

/* Adds the kernel set's events of now. 0 or -errno. */
static int collect_kernels(struct collecting *c)
{
	int r = kernel_calls.epoll_wait(c->kernel_set, c->events + c->count, c->max - c->count, 0);

	if (r < 0)
		return c->count ? 0 : -errno;
	c->count += r;
	return 0;
}

/* Adds ours; waits for them, or for the kernel set's, if there is nothing yet. 0, -ETIMEDOUT or -errno. */
static int collect_ours(struct collecting *c, struct beside *beside, uint64_t deadline_ns)
{
	struct stack *st;
	struct epoll_ctx *ctx = c->ctx;
	int r = 0;

	st = stack_enter(c->ctx->stack);
	epoll_arrive(ctx);
	c->count += epoll_collect(ctx, c->events + c->count, c->max - c->count);
	while (!c->count && deadline_ns && !r && !beside->ready) {
		r = wait_beside(st, &ctx->waiters, deadline_ns, true, beside);
		c->count += epoll_collect(ctx, c->events, c->max);
	}
	ctx->kernel_first = c->count == c->max && set_has_members(c);
	epoll_promise(ctx, c->count);
	stack_leave(st);
	return c->count ? 0 : r;
}

int xts_epoll_wait_mixed(void *ectx, int kernel_set, const _Atomic uint32_t *members, struct epoll_event *events, int max,
			 uint64_t deadline_ns, const sigset_t *mask)
{
	struct collecting c = {.ctx = ectx, .kernel_set = kernel_set, .members = members, .events = events, .max = max};
	struct pollfd fds[SLEEP_FDS + 1] = {[SLEEP_FDS] = {.fd = kernel_set, .events = POLLIN}};
	struct beside beside = {.fds = fds, .count = kernel_set >= 0, .mask = mask,
				.patient = c.ctx && c.ctx->flags & XTS_EPOLL_PATIENT};
	bool kernels_taken = false;
	int r = 0;

	if (!ectx)
		return finish(-EBADF);
	if (max <= 0 || !events)
		return finish(max <= 0 ? -EINVAL : -EFAULT);
	if (c.ctx->kernel_first && set_has_members(&c)) {
		r = collect_kernels(&c);
		if (r < 0)
			return finish(r);
		kernels_taken = c.count;
		if (c.count == max) {
			c.ctx->kernel_first = false;
			return max;
		}
	}
	do {
		beside.looked = beside.ready = false;
		r = collect_ours(&c, &beside, c.count ? 0 : deadline_ns);
		if (r < 0)
			break;
		/* A wait that slept has seen that the kernel set has nothing. */
		if (c.count < max && !kernels_taken && (beside.ready || (!beside.looked && set_has_members(&c))))
			r = collect_kernels(&c);
	} while (!c.count && !r && deadline_ns); /* another thread has taken what was there */
	if (r == -ETIMEDOUT)
		r = 0;
	if (r < 0)
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
