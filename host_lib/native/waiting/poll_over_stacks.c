/*
 * poll(2) over sockets and contexts of several stacks.
 *
 * Those of other stacks than the one whose queue the wait sleeps on are looked at first, each under the lock of its
 * stack. If nothing is ready, a polling context is made for the sockets among them (other_stacks.h), and the wait also
 * sleeps on its bell. The context lasts as long as the call. Contexts of other stacks are watched by their descriptors.
 */
#include "waiting/poll.h"

#include <stdlib.h>

#include "core/clock.h"
#include "core/socket.h"
#include "core/stack.h"
#include "waiting/epoll.h"
#include "waiting/other_stacks.h"
#include "xts.h"
#include "xts_private.h"

#define BELL_MISSING_NS (5 * NS_PER_MS)

static bool is_foreign(const struct stack *st, int number)
{
	const struct stack *its = table_stack(number);

	return its && its != st;
}

/* Fills the revents of sockets and contexts of other stacks. How many are ready. */
static int look_at_foreign(const struct stack *st, const struct several *p, bool looks)
{
	int ready = 0;

	for (nfds_t i = 0; i < p->count; i++) {
		if (!is_foreign(st, p->sockets[i].fd))
			continue;
		p->sockets[i].revents = foreign_poll(p->sockets[i].fd, p->sockets[i].events, looks);
		ready += p->sockets[i].revents != 0;
	}
	for (nfds_t i = 0; i < p->context_count; i++) {
		struct xts_polled_context *c = &p->contexts[i];

		c->revents = xts_epoll_is_ready(c->ectx) ? c->events & (POLLIN | POLLRDNORM) : 0;
		ready += c->revents != 0;
	}
	return ready;
}

/* The context for the sockets of other stacks, with each in it. NULL: no memory. */
static struct epoll_ctx *watch_foreign(struct stack *st, const struct several *p)
{
	struct epoll_ctx *ctx = epoll_create_in(st);
	bool failed = false;

	for (nfds_t i = 0; ctx && i < p->count; i++) {
		struct epoll_event event = { .events = (uint32_t)(unsigned short)p->sockets[i].events };

		if (is_foreign(st, p->sockets[i].fd) &&
		    xts_epoll_ctl_keyed(ctx, EPOLL_CTL_ADD, p->sockets[i].fd, (uint32_t)i, &event) < 0)
			failed |= errno == ENOMEM; /* else it is closed, which the next look tells */
	}
	if (failed) {
		xts_epoll_ctx_destroy(ctx);
		ctx = NULL;
	}
	return ctx;
}

static void end_watch(struct epoll_ctx *ctx, const struct several *p)
{
	/* one by one: to destroy it with its watches takes a look at all sockets */
	for (nfds_t i = 0; i < p->count; i++)
		if (p->sockets[i].fd >= 0 && foreign_is_used(ctx))
			(void)xts_epoll_ctl_keyed(ctx, EPOLL_CTL_DEL, p->sockets[i].fd, (uint32_t)i, NULL);
	xts_epoll_ctx_destroy(ctx);
}

/* Adds the kernel descriptors that end the sleep, after the caller's. How many it added, or -errno. */
static int add_descriptors(const struct several *p, const struct epoll_ctx *ctx, struct pollfd *out)
{
	int n = 0;

	if (foreign_fd(ctx) >= 0)
		out[n++] = (struct pollfd){ .fd = foreign_fd(ctx), .events = POLLIN };
	for (nfds_t i = 0; i < p->context_count; i++) {
		out[n] = (struct pollfd){ .fd = epoll_own_descriptor(p->contexts[i].ectx), .events = POLLIN };
		if (out[n++].fd < 0)
			return -errno;
	}
	return n;
}

/* Counts the descriptors with events after a poll. */
static int count_ready(const struct pollfd *fds, int count)
{
	int ready = 0;

	for (int i = 0; i < count; i++)
		ready += fds[i].revents != 0;
	return ready;
}

/* Waits for what is of stack st and of the kernel, and until one of the descriptors behind these is ready (*others). */
static int poll_here(struct stack *st, const struct several *p, struct pollfd *own, struct pollfd *kernel, int extra,
		     uint64_t deadline_ns, const sigset_t *mask, int *others)
{
	int r;

	for (nfds_t i = 0; i < p->count; i++) {
		own[i] = p->sockets[i];
		if (is_foreign(st, own[i].fd))
			own[i].fd = -1;
	}
	if (p->kernel_count)
		memcpy(kernel, p->kernel, p->kernel_count * sizeof *kernel);
	r = poll_own(st, own, p->count, NULL, 0, kernel, p->kernel_count + (nfds_t)extra, deadline_ns, mask);
	if (r < 0)
		return r;
	*others = count_ready(kernel + p->kernel_count, extra);
	for (nfds_t i = 0; i < p->count; i++)
		if (own[i].fd >= 0 || p->sockets[i].fd < 0)
			p->sockets[i].revents = own[i].revents;
	if (p->kernel_count)
		memcpy(p->kernel, kernel, p->kernel_count * sizeof *kernel);
	return r - *others;
}

/* One turn: how many are ready. *again: nothing is, and the time is not over. */
static int poll_turn(struct stack *st, const struct several *p, struct epoll_ctx **ctx, struct pollfd *own,
		     struct pollfd *kernel, uint64_t deadline_ns, const sigset_t *mask, bool *again)
{
	int foreign = look_at_foreign(st, p, !deadline_ns), extra = 0, others = 0, r;
	uint64_t until_ns = foreign ? 0 : deadline_ns;

	if (until_ns && !*ctx)
		*ctx = watch_foreign(st, p);
	if (until_ns && !*ctx)
		return -ENOMEM;
	if (until_ns) {
		if (foreign_has_event(*ctx))
			until_ns = 0; /* it has come just now */
		else if (foreign_is_used(*ctx) && foreign_fd(*ctx) < 0 && now_ns() + BELL_MISSING_NS < until_ns)
			until_ns = now_ns() + BELL_MISSING_NS;
		extra = add_descriptors(p, *ctx, kernel + p->kernel_count);
	}
	if (extra < 0)
		return extra;
	r = poll_here(st, p, own, kernel, extra, until_ns, mask, &others);
	*again = !r && !foreign && until_ns != deadline_ns;
	*again |= !r && others;
	if (r < 0)
		return foreign ? foreign : r;
	return r + foreign;
}

int poll_several(struct stack *st, const struct several *p, uint64_t deadline_ns, const sigset_t *mask)
{
	struct pollfd *own = calloc(p->count + 1, sizeof *own);
	struct pollfd *kernel = calloc(p->kernel_count + p->context_count + 2, sizeof *kernel);
	struct epoll_ctx *ctx = NULL;
	bool again = true;
	int r = own && kernel ? 0 : -ENOMEM;

	while (!r && again) {
		again = false;
		r = poll_turn(st, p, &ctx, own, kernel, deadline_ns, mask, &again);
		again = again && now_ns() < deadline_ns;
	}
	if (ctx)
		end_watch(ctx, p);
	free(own);
	free(kernel);
	return r;
}
