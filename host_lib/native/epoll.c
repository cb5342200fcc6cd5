/*
 * Polling contexts: ready lists, as in the kernel's epoll. A watch joins the ready list of its context when its
 * socket changes in a way it has asked for; collecting asks each socket on the list how it is now, reports, and puts
 * level-triggered ones back at the end. A socket nobody touches costs nothing. A watch may also be on another context, which
 * is readable while it has an event itself: sets in sets. Watches of one socket in one context differ by a key, the
 * interposer's descriptor: the kernel registers a file once for each descriptor.
 *
 * The descriptor of a context (xts_epoll_fd) is an epoll set of its own with the queue's descriptor and an eventfd. When
 * a collection finds nothing, the context is idle: the queue's doorbell stays armed whenever a thread leaves the
 * library, so that whatever comes makes the descriptor ready. When a collection finds something, or a thread makes
 * something ready, the eventfd is rung and stays so until a collection finds nothing: after handling events a program
 * can sleep on the descriptor at once. With XTS_EPOLL_TURN neither doorbell nor eventfd is touched between a collection
 * that found something and xts_flush(), which decides by what is on the ready list then.
 */
#include "epoll.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ALWAYS (EPOLLERR | EPOLLHUP)
#define WAYS (EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE)
/* All that may come with EPOLLEXCLUSIVE. */
#define WITH_EXCLUSIVE (EPOLLIN | EPOLLOUT | ALWAYS | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE)

struct watch {
	struct watch *next;        /* of the socket or the inner context */
	struct watch *ready_next, *ready_previous;
	struct watch *listeners_next;
	struct epoll_ctx *ctx;
	struct xts_sock *socket;   /* watched, or */
	struct epoll_ctx *inner;
	uint32_t key;
	uint32_t events;
	bool ready, disabled;      /* disabled: reported once (EPOLLONESHOT) */
	bool listening;            /* in ctx->listeners */
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

	if (ctx->bell < 0 || ctx->ringing || ctx->turn)
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

static void set_ready(struct watch *w)
{
	struct epoll_ctx *ctx = w->ctx;

	ready_add(w);
	wake(&ctx->waiters);
	ring_context(ctx);
	if (ctx->polled)
		wake(&xts.poll_waiters);
	for (struct watch *outer = ctx->outer; outer; outer = outer->next) {
		if (!outer->disabled && (outer->events & EPOLLIN))
			set_ready(outer);
	}
}

static void note_listener(struct watch *w)
{
	if (w->listening)
		return;
	w->listening = true;
	w->listeners_next = w->ctx->listeners;
	w->ctx->listeners = w;
}

/* The turn is over: what is ready, or becomes so, shows at the descriptor again. */
void epoll_end_turn(void)
{
	for (struct epoll_ctx *ctx = xts.contexts; ctx; ctx = ctx->next) {
		if (!ctx->turn)
			continue;
		ctx->turn = false;
		if (ctx->ready_first)
			ring_context(ctx);
		else
			hush_context(ctx);
	}
}

void epoll_ready(struct xts_sock *s, uint32_t events)
{
	for (struct watch *w = s->watches; w; w = w->next) {
		if (s->state == TCP_STATE_LISTEN)
			note_listener(w);
		if (!w->disabled && (events & (w->events | ALWAYS)))
			set_ready(w);
	}
}

static struct watch **watches_of(struct xts_sock *s, struct epoll_ctx *inner)
{
	return s ? &s->watches : &inner->outer;
}

static void watch_free(struct watch *w)
{
	struct watch **at = watches_of(w->socket, w->inner);

	ready_remove(w);
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	if (w->listening) {
		for (at = &w->ctx->listeners; *at != w; at = &(*at)->listeners_next)
			;
		*at = w->listeners_next;
	}
	free(w);
}

void epoll_forget_socket(struct xts_sock *s)
{
	while (s->watches)
		watch_free(s->watches);
}

static bool asks(const struct watch *w)
{
	return !w->disabled && (w->events & EPOLLIN);
}

/* Is ctx this context, or one that watches it? */
static bool reaches(const struct epoll_ctx *from, const struct epoll_ctx *ctx)
{
	if (from == ctx)
		return true;
	for (const struct watch *outer = from->outer; outer; outer = outer->next)
		if (asks(outer) && reaches(outer->ctx, ctx))
			return true;
	return false;
}

static bool is_awaited(const struct epoll_ctx *ctx)
{
	if (ctx->waiters || (ctx->polled && xts.poll_waiters))
		return true;
	for (const struct watch *outer = ctx->outer; outer; outer = outer->next)
		if (asks(outer) && is_awaited(outer->ctx))
			return true;
	return false;
}

bool epoll_watches(const struct epoll_ctx *ctx, const struct xts_sock *s)
{
	for (const struct watch *w = s->watches; w; w = w->next)
		if (asks(w) && reaches(w->ctx, ctx))
			return true;
	return false;
}

bool epoll_awaits(const struct xts_sock *s)
{
	for (const struct watch *w = s->watches; w; w = w->next)
		if (asks(w) && is_awaited(w->ctx))
			return true;
	return false;
}

bool epoll_awaits_elsewhere(const struct xts_sock *s)
{
	for (const struct watch *w = s->watches; w; w = w->next)
		if (asks(w) && w->ctx->set >= 0)
			return true;
	return false;
}

static uint32_t watch_events(struct watch *w)
{
	uint32_t now;

	if (w->disabled)
		return 0;
	if (w->socket)
		now = socket_events(w->socket);
	else
		now = epoll_has_event(w->inner) ? EPOLLIN | EPOLLRDNORM : 0;
	return now & ((w->events & ~(uint32_t)WAYS) | ALWAYS);
}

bool epoll_has_event(struct epoll_ctx *ctx)
{
	struct watch *w;

	while ((w = ctx->ready_first)) {
		if (watch_events(w))
			return true;
		ready_remove(w);
	}
	return false;
}

int epoll_collect(struct epoll_ctx *ctx, struct epoll_event *events, int max)
{
	struct watch *last = ctx->ready_last, *w;
	int count = 0;

	while (count < max && (w = ctx->ready_first)) {
		uint32_t now = watch_events(w);
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

/* Somebody may be asleep on a descriptor already. The number of the dead channel's may have been given to this one's. */
void epoll_channel_opened(void)
{
	for (struct epoll_ctx *ctx = xts.contexts; ctx; ctx = ctx->next) {
		ctx->queue_fd = -1;
		follow_channel(ctx);
	}
}

static int open_descriptor(struct epoll_ctx *ctx)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (ctx->set >= 0)
		return ctx->set;
	ctx->set = xts_own(epoll_create1(EPOLL_CLOEXEC));
	if (ctx->set < 0)
		return -errno;
	ctx->bell = xts_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (ctx->bell < 0 || epoll_ctl(ctx->set, EPOLL_CTL_ADD, ctx->bell, &event) < 0) {
		int error = -errno;

		if (ctx->bell >= 0)
			xts_own_close(ctx->bell);
		xts_own_close(ctx->set);
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
		xts_own_close(ctx->set);
		xts_own_close(ctx->bell);
	}
	ctx->set = ctx->bell = ctx->queue_fd = -1;
	ctx->ringing = false;
}

/* In a forked child: the descriptors are the parent's, the sockets are gone. */
void epoll_forget(void)
{
	for (struct epoll_ctx *ctx = xts.contexts; ctx; ctx = ctx->next) {
		close_descriptor(ctx);
		ctx->waiters = ctx->polled = 0;
		ctx->turn = false;
	}
}

/* --- public ----------------------------------------------------------------------------------------------------------------- */

void *xts_epoll_ctx_create_flags(unsigned flags)
{
	struct epoll_ctx *ctx;

	if (flags & ~(XTS_EPOLL_BATCH | XTS_EPOLL_TURN)) {
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

static void free_watches(struct watch *w, const struct epoll_ctx *ctx)
{
	struct watch *next;

	for (; w; w = next) {
		next = w->next;
		if (w->ctx == ctx)
			watch_free(w);
	}
}

void xts_epoll_ctx_destroy(void *ectx)
{
	struct epoll_ctx *ctx = ectx, **at = &xts.contexts;
	struct xts_sock *s = NULL;

	if (!ctx)
		return;
	library_enter();
	while ((s = table_next(s)))
		free_watches(s->watches, ctx);
	for (struct epoll_ctx *inner = xts.contexts; inner; inner = inner->next)
		free_watches(inner->outer, ctx);
	while (ctx->outer)
		watch_free(ctx->outer);
	while (*at && *at != ctx)
		at = &(*at)->next;
	if (*at)
		*at = ctx->next;
	close_descriptor(ctx);
	library_leave();
	free(ctx);
}

static struct watch *watch_make(struct epoll_ctx *ctx, struct xts_sock *s, struct epoll_ctx *inner, uint32_t key)
{
	struct watch *w = calloc(1, sizeof *w), **list = watches_of(s, inner);

	if (!w)
		return NULL;
	w->ctx = ctx;
	w->socket = s;
	w->inner = inner;
	w->key = key;
	w->next = *list;
	*list = w;
	return w;
}

static int change(struct epoll_ctx *ctx, int op, struct xts_sock *s, struct epoll_ctx *inner, uint32_t key,
		  const struct epoll_event *event)
{
	struct watch *w = *watches_of(s, inner);

	while (w && (w->ctx != ctx || w->key != key))
		w = w->next;
	switch (op) {
	case EPOLL_CTL_DEL:
		if (!w)
			return -ENOENT;
		watch_free(w);
		return 0;
	case EPOLL_CTL_ADD:
		if (event->events & EPOLLEXCLUSIVE && (inner || event->events & ~(uint32_t)WITH_EXCLUSIVE))
			return -EINVAL;
		if (w)
			return -EEXIST;
		w = watch_make(ctx, s, inner, key);
		if (!w)
			return -ENOMEM;
		break;
	case EPOLL_CTL_MOD:
		if (event->events & EPOLLEXCLUSIVE)
			return -EINVAL;
		if (!w)
			return -ENOENT;
		if (w->events & EPOLLEXCLUSIVE)
			return -EINVAL;
		break;
	default:
		return -EINVAL;
	}
	w->events = event->events;
	w->data = event->data;
	w->disabled = false;
	if (s && s->state == TCP_STATE_LISTEN) {
		note_listener(w);
		if (ctx->waiters || ctx->set >= 0)
			listener_interest(s); /* else when the program comes to wait */
	}
	if (watch_events(w))
		set_ready(w);
	return 0;
}

int xts_epoll_ctl_keyed(void *ectx, int op, int number, uint32_t key, struct epoll_event *event)
{
	struct xts_sock *s;
	int r;

	if (!ectx)
		return finish(-EBADF);
	if (op != EPOLL_CTL_DEL && !event)
		return finish(-EFAULT);
	library_enter();
	s = op == EPOLL_CTL_DEL ? table_open(number) : table_use(number);
	r = s ? change(ectx, op, s, NULL, key, event) : -EBADF;
	library_leave();
	return finish(r);
}

int xts_epoll_ctl(void *ectx, int op, int number, struct epoll_event *event)
{
	return xts_epoll_ctl_keyed(ectx, op, number, 0, event);
}

int xts_epoll_nest(void *ectx, int op, void *inner, uint32_t key, struct epoll_event *event)
{
	int r;

	library_enter();
	r = change(ectx, op, NULL, inner, key, event);
	library_leave();
	return finish(r);
}

bool xts_epoll_is_ready(void *ectx)
{
	bool ready;

	library_enter();
	channel_pump();
	ready = epoll_has_event(ectx);
	library_leave();
	return ready;
}

void epoll_promise(struct epoll_ctx *ctx)
{
	struct thread *self = thread_self();

	if (self)
		self->batching = (ctx->flags & XTS_EPOLL_BATCH) && (ctx->turn || !(ctx->flags & XTS_EPOLL_TURN));
}

void epoll_arrive(struct epoll_ctx *ctx)
{
	struct thread *self = thread_self();

	if (self)
		self->batching = false;
	if (xts.to_join)
		inherit_take_watched(ctx);
	for (struct watch *w = ctx->listeners; w; w = w->listeners_next) {
		if (!w->disabled && (w->events & EPOLLIN) && w->socket->state == TCP_STATE_LISTEN)
			listener_interest(w->socket);
	}
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
	epoll_arrive(ctx);
	r = epoll_collect(ctx, events, max);
	follow_channel(ctx);
	ctx->turn = r && ctx->flags & XTS_EPOLL_TURN;
	if (ctx->turn)
		set_idle(ctx, false);
	else if (r)
		ring_context(ctx);
	else
		hush_context(ctx);
	epoll_promise(ctx);
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
