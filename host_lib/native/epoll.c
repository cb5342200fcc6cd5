/*
 * Polling contexts: ready lists, as in the kernel's epoll. A watch joins the ready list of its context when its
 * socket changes in a way it has asked for; collecting asks each socket on the list how it is now, reports, and puts
 * level-triggered ones back at the end. A socket nobody touches costs nothing.
 *
 * The descriptor of a context (xts_epoll_fd) is an epoll set of its own with the queue's descriptor and an eventfd. When
 * a collection finds nothing, the context is idle: the queue's doorbell stays armed whenever a thread leaves the
 * library, so that whatever comes makes the descriptor ready. When a collection finds something, or a thread makes
 * something ready, the eventfd is rung and stays so until a collection finds nothing: after handling events a program
 * can sleep on the descriptor at once.
 */
#include "library.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ALWAYS (EPOLLERR | EPOLLHUP)
#define WAYS (EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE)

struct epoll_ctx {
	struct epoll_ctx *next;
	struct watch *ready_first, *ready_last;
	uint16_t waiters;
	unsigned flags;
	int set, bell;             /* -1 until xts_epoll_fd() */
	int queue_fd;              /* the queue's descriptor in the set, or -1 */
	bool idle, ringing;
};

struct watch {
	struct watch *next;        /* of the socket */
	struct watch *ready_next, *ready_previous;
	struct epoll_ctx *ctx;
	struct xts_sock *socket;
	uint32_t events;
	bool ready, disabled;      /* disabled: reported once (EPOLLONESHOT) */
	epoll_data_t data;
};

static void ready_remove(struct watch *w)
{
	struct epoll_ctx *ctx = w->ctx;

	if (!w->ready)
		return;
	w->ready = false;
	if (w->ready_previous)
		w->ready_previous->ready_next = w->ready_next;
	else
		ctx->ready_first = w->ready_next;
	if (w->ready_next)
		w->ready_next->ready_previous = w->ready_previous;
	else
		ctx->ready_last = w->ready_previous;
}

static void ready_add(struct watch *w)
{
	struct epoll_ctx *ctx = w->ctx;

	if (w->ready)
		return;
	w->ready = true;
	w->ready_next = NULL;
	w->ready_previous = ctx->ready_last;
	if (ctx->ready_last)
		ctx->ready_last->ready_next = w;
	else
		ctx->ready_first = w;
	ctx->ready_last = w;
}

static void set_idle(struct epoll_ctx *ctx, bool idle)
{
	if (ctx->idle == idle)
		return;
	ctx->idle = idle;
	if (idle)
		xts.idle_contexts++;
	else
		xts.idle_contexts--;
}

/* Makes the context's descriptor ready until a collection finds nothing. */
static void ring_context(struct epoll_ctx *ctx)
{
	uint64_t one = 1;

	if (ctx->bell < 0 || ctx->ringing)
		return;
	ctx->ringing = write(ctx->bell, &one, sizeof one) == (ssize_t)sizeof one;
	set_idle(ctx, false);
}

static void hush_context(struct epoll_ctx *ctx)
{
	uint64_t count;

	if (ctx->bell < 0)
		return;
	if (ctx->ringing && read(ctx->bell, &count, sizeof count) == (ssize_t)sizeof count)
		ctx->ringing = false;
	set_idle(ctx, true);
}

void epoll_ready(struct xts_sock *s, uint32_t events)
{
	for (struct watch *w = s->watches; w; w = w->next) {
		if (w->disabled || !(events & (w->events | ALWAYS)))
			continue;
		ready_add(w);
		wake(&w->ctx->waiters);
		ring_context(w->ctx);
	}
}

static void watch_free(struct watch *w)
{
	struct watch **at = &w->socket->watches;

	ready_remove(w);
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	free(w);
}

void epoll_forget_socket(struct xts_sock *s)
{
	while (s->watches)
		watch_free(s->watches);
}

bool epoll_watches(const struct epoll_ctx *ctx, const struct xts_sock *s)
{
	for (const struct watch *w = s->watches; w; w = w->next)
		if (w->ctx == ctx && !w->disabled && (w->events & EPOLLIN))
			return true;
	return false;
}

bool epoll_awaits(const struct xts_sock *s)
{
	for (const struct watch *w = s->watches; w; w = w->next)
		if (w->ctx->waiters && !w->disabled && (w->events & EPOLLIN))
			return true;
	return false;
}

bool epoll_awaits_elsewhere(const struct xts_sock *s)
{
	for (const struct watch *w = s->watches; w; w = w->next)
		if (w->ctx->set >= 0 && !w->disabled && (w->events & EPOLLIN))
			return true;
	return false;
}

/* What may come to shared listeners: asked for whenever the program comes to look. */
static void show_interest(const struct epoll_ctx *ctx)
{
	for (struct xts_sock *s = xts.shared; s; s = s->shared_next)
		if (epoll_watches(ctx, s))
			share_interest(s);
}

static int collect(struct epoll_ctx *ctx, struct epoll_event *events, int max)
{
	struct watch *last = ctx->ready_last, *w;
	int count = 0;

	while (count < max && (w = ctx->ready_first)) {
		uint32_t now = w->disabled ? 0 : socket_events(w->socket) & ((w->events & ~(uint32_t)WAYS) | ALWAYS);
		bool end = w == last;

		ready_remove(w);
		if (now) {
			events[count].events = now;
			events[count].data = w->data;
			count++;
			if (w->events & EPOLLONESHOT)
				w->disabled = true;
			else if (!(w->events & EPOLLET))
				ready_add(w);
		}
		if (end)
			break;
	}
	return count;
}

/* --- the descriptor ------------------------------------------------------------------------------------------------------- */

/* The set holds the live channel's descriptor. */
static void follow_channel(struct epoll_ctx *ctx)
{
	struct epoll_event event = {.events = EPOLLIN};
	int fd = xts.channel ? xts.channel->queue->wait_fd : -1;

	if (ctx->set < 0 || ctx->queue_fd == fd)
		return; /* a dead channel's descriptor has left the set by being closed */
	ctx->queue_fd = fd;
	if (fd >= 0 && epoll_ctl(ctx->set, EPOLL_CTL_ADD, fd, &event) < 0 && errno != EEXIST)
		ctx->queue_fd = -1;
}

static int open_descriptor(struct epoll_ctx *ctx)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (ctx->set >= 0)
		return ctx->set;
	ctx->set = epoll_create1(EPOLL_CLOEXEC);
	if (ctx->set < 0)
		return -errno;
	ctx->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ctx->bell < 0 || epoll_ctl(ctx->set, EPOLL_CTL_ADD, ctx->bell, &event) < 0) {
		int error = -errno;

		if (ctx->bell >= 0)
			close(ctx->bell);
		close(ctx->set);
		ctx->set = ctx->bell = -1;
		return error;
	}
	ctx->queue_fd = -1;
	follow_channel(ctx);
	ring_context(ctx); /* the first collection decides */
	return ctx->set;
}

static void close_descriptor(struct epoll_ctx *ctx)
{
	set_idle(ctx, false);
	if (ctx->set >= 0) {
		close(ctx->set);
		close(ctx->bell);
	}
	ctx->set = ctx->bell = ctx->queue_fd = -1;
	ctx->ringing = false;
}

/* In a forked child: the descriptors are the parent's, the sockets are gone. */
void epoll_forget(void)
{
	for (struct epoll_ctx *ctx = xts.contexts; ctx; ctx = ctx->next) {
		close_descriptor(ctx);
		ctx->waiters = 0;
	}
}

/* --- public ----------------------------------------------------------------------------------------------------------------- */

void *xts_epoll_ctx_create_flags(unsigned flags)
{
	struct epoll_ctx *ctx;

	if (flags & ~XTS_EPOLL_BATCH) {
		errno = EINVAL;
		return NULL;
	}
	ctx = calloc(1, sizeof *ctx);
	if (!ctx)
		return NULL;
	ctx->flags = flags;
	ctx->set = ctx->bell = ctx->queue_fd = -1;
	library_enter();
	ctx->next = xts.contexts;
	xts.contexts = ctx;
	library_leave();
	return ctx;
}

void *xts_epoll_ctx_create(void)
{
	return xts_epoll_ctx_create_flags(0);
}

void xts_epoll_ctx_destroy(void *ectx)
{
	struct epoll_ctx *ctx = ectx, **at = &xts.contexts;
	struct xts_sock *s = NULL;

	if (!ctx)
		return;
	library_enter();
	while ((s = table_next(s))) {
		struct watch *w = s->watches, *next;

		for (; w; w = next) {
			next = w->next;
			if (w->ctx == ctx)
				watch_free(w);
		}
	}
	while (*at && *at != ctx)
		at = &(*at)->next;
	if (*at)
		*at = ctx->next;
	close_descriptor(ctx);
	library_leave();
	free(ctx);
}

static int change(struct epoll_ctx *ctx, int op, struct xts_sock *s, const struct epoll_event *event)
{
	struct watch *w = s->watches;

	while (w && w->ctx != ctx)
		w = w->next;
	switch (op) {
	case EPOLL_CTL_DEL:
		if (!w)
			return -ENOENT;
		watch_free(w);
		return 0;
	case EPOLL_CTL_ADD:
		if (w)
			return -EEXIST;
		w = calloc(1, sizeof *w);
		if (!w)
			return -ENOMEM;
		w->ctx = ctx;
		w->socket = s;
		w->next = s->watches;
		s->watches = w;
		break;
	case EPOLL_CTL_MOD:
		if (!w)
			return -ENOENT;
		if (event->events & EPOLLEXCLUSIVE || w->events & EPOLLEXCLUSIVE)
			return -EINVAL;
		break;
	default:
		return -EINVAL;
	}
	w->events = event->events;
	w->data = event->data;
	w->disabled = false;
	if (s->shared && (w->events & EPOLLIN) && (ctx->waiters || ctx->set >= 0))
		share_interest(s); /* else when the program comes to wait */
	if (socket_events(s) & (w->events | ALWAYS)) {
		ready_add(w);
		wake(&ctx->waiters);
		ring_context(ctx);
	}
	return 0;
}

int xts_epoll_ctl(void *ectx, int op, int number, struct epoll_event *event)
{
	struct xts_sock *s;
	int r;

	if (!ectx)
		return finish(-EBADF);
	if (op != EPOLL_CTL_DEL && !event)
		return finish(-EFAULT);
	library_enter();
	s = op == EPOLL_CTL_DEL ? table_open(number) : table_use(number);
	r = s ? change(ectx, op, s, event) : -EBADF;
	library_leave();
	return finish(r);
}

static void promise(struct epoll_ctx *ctx)
{
	struct thread *self = thread_self();

	if (self)
		self->batching = ctx->flags & XTS_EPOLL_BATCH;
}

static void arrive(const struct epoll_ctx *ctx)
{
	struct thread *self = thread_self();

	if (self)
		self->batching = false;
	if (xts.to_join)
		inherit_take_watched(ctx);
	if (xts.shared)
		show_interest(ctx);
	channel_flush(true);
	channel_pump();
}

int xts_epoll(void *ectx, struct epoll_event *events, int max)
{
	struct epoll_ctx *ctx = ectx;
	int r;

	if (!ctx)
		return finish(-EBADF);
	if (max <= 0 || !events)
		return finish(max <= 0 ? -EINVAL : -EFAULT);
	library_enter();
	arrive(ctx);
	r = collect(ctx, events, max);
	follow_channel(ctx);
	if (r)
		ring_context(ctx);
	else
		hush_context(ctx);
	promise(ctx);
	library_leave();
	return r;
}

int xts_epoll_fd(void *ectx)
{
	int r;

	if (!ectx)
		return finish(-EBADF);
	library_enter();
	r = open_descriptor(ectx);
	library_leave();
	return finish(r);
}

int xts_epoll_wait(void *ectx, struct epoll_event *events, int max, int timeout_ms)
{
	struct epoll_ctx *ctx = ectx;
	uint64_t deadline;
	int r;

	if (!ctx)
		return finish(-EBADF);
	if (max <= 0 || !events)
		return finish(max <= 0 ? -EINVAL : -EFAULT);
	library_enter();
	arrive(ctx);
	r = collect(ctx, events, max);
	if (!r && timeout_ms) {
		deadline = deadline_after(timeout_ms < 0 ? FOREVER : (uint64_t)timeout_ms * NS_PER_MS);
		while (!r) {
			r = wait_for(&ctx->waiters, deadline, true);
			if (r)
				break;
			r = collect(ctx, events, max);
		}
		if (r == -ETIMEDOUT)
			r = 0;
	}
	promise(ctx);
	library_leave();
	return finish(r);
}
