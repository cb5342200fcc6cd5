/*
 * Polling contexts: ready lists, as in the kernel's epoll. A watch joins the ready list of its context when its socket
 * has an event that the watch asked for. Collecting asks each socket on the list for its present state, reports it, and
 * puts level-triggered watches back at the end of the list. A socket that does not change costs nothing. A watch may
 * also be on another context, which is readable while it has an event itself (nested sets). Registering is in
 * epoll_ctl.c, the descriptor that a program can sleep on in epoll_fd.c, waiting in mixed_descriptors.c.
 */
#include "attaching/attach.h"
#include "core/arguments.h"
#include "core/channel.h"
#include "core/error.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "processes/inherit.h"
#include "waiting/epoll.h"
#include "waiting/other_stacks.h"
#include "core/wait.h"
#include "xts.h"
#include "xts_private.h"

void epoll_ready_remove(struct watch *w)
{
	struct epoll_ctx *ctx = w->ctx;

	if (w->away) {
		foreign_remove(w);
		return;
	}
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

/* A level-triggered watch that has been reported is looked at again the next time. */
static void put_back(struct watch *w)
{
	if (w->away)
		foreign_add(w, false);
	else
		ready_add(w);
}

void epoll_set_ready(struct watch *w)
{
	struct stack *st = w->ctx->stack;
	struct epoll_ctx *ctx = w->ctx;

	if (ctx->edged)
		atomic_fetch_add(&ctx->arrivals, 1);
	if (w->away) {
		foreign_add(w, true);
		return;
	}
	ready_add(w);
	wake(st, &ctx->waiters);
	epoll_ring_event(ctx);
	if (ctx->polled)
		wake(st, &st->poll_waiters);
	for (struct watch *outer = ctx->outer; outer; outer = outer->next) {
		if (!outer->disabled && (outer->events & EPOLLIN))
			epoll_set_ready(outer);
	}
}

void epoll_ready(struct xts_sock *s, uint32_t events)
{
	for (struct watch *w = s->watches; w; w = w->next)
		if (!w->disabled && (events & (w->events | EPOLL_ALWAYS)))
			epoll_set_ready(w);
}

static bool asks(const struct watch *w)
{
	return !w->disabled && (w->events & EPOLLIN);
}

/* Is ctx this context, or a context that watches it? */
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
	if (ctx->waiters || (ctx->polled && ctx->stack->poll_waiters))
		return true;
	for (const struct watch *outer = ctx->outer; outer; outer = outer->next)
		if (asks(outer) && is_awaited(outer->ctx))
			return true;
	return false;
}

bool epoll_watches(const struct epoll_ctx *ctx, const struct xts_sock *s)
{
	for (const struct watch *w = s->watches; w; w = w->next)
		if (asks(w) && (w->away ? w->ctx == ctx : reaches(w->ctx, ctx)))
			return true;
	return false;
}

bool epoll_awaits(const struct xts_sock *s)
{
	for (const struct watch *w = s->watches; w; w = w->next)
		if (asks(w) && !w->away && is_awaited(w->ctx))
			return true;
	return false;
}

bool epoll_awaits_elsewhere(const struct xts_sock *s)
{
	for (const struct watch *w = s->watches; w; w = w->next)
		if (asks(w) && (w->away || w->ctx->set >= 0))
			return true;
	return false;
}

uint32_t epoll_watch_events(struct watch *w)
{
	uint32_t now;

	if (w->disabled)
		return 0;
	if (w->is_context)
		now = epoll_has_event(w->inner) ? EPOLLIN | EPOLLRDNORM : 0;
	else
		now = socket_events(w->socket);
	return now & ((w->events & ~(uint32_t)EPOLL_WAYS) | EPOLL_ALWAYS);
}

bool epoll_has_event(struct epoll_ctx *ctx)
{
	struct watch *w;

	while ((w = ctx->ready_first)) {
		if (epoll_watch_events(w))
			return true;
		epoll_ready_remove(w);
	}
	return false;
}

int epoll_report(struct watch *w, struct epoll_event *event)
{
	uint32_t now = epoll_watch_events(w);

	epoll_ready_remove(w);
	if (!now)
		return 0;
	*event = (struct epoll_event){ .events = now, .data = w->data };
	if (w->events & EPOLLONESHOT)
		w->disabled = true;
	else if (!(w->events & EPOLLET))
		put_back(w);
	return 1;
}

int epoll_collect(struct epoll_ctx *ctx, struct epoll_event *events, int max)
{
	struct watch *last = ctx->ready_last, *w;
	int count = 0;

	while (count < max && (w = ctx->ready_first)) {
		bool end = w == last;

		count += epoll_report(w, &events[count]);
		if (end)
			break;
	}
	return count;
}

bool xts_epoll_is_ready(void *ectx)
{
	struct stack *st;
	bool ready;

	st = stack_enter(((struct epoll_ctx *)ectx)->stack);
	channel_pump(st);
	(void)channel_catch_up(st);
	ready = epoll_has_event(ectx);
	if (!ready)
		epoll_found_nothing(ectx);
	stack_leave(st);
	return ready || foreign_has_event(ectx);
}

void epoll_promise(struct epoll_ctx *ctx, int count)
{
	struct stack *st = ctx->stack;
	struct thread *self = thread_self(ctx->stack);

	if (!self)
		return;
	self->batching = (ctx->flags & XTS_EPOLL_BATCH) && (ctx->turn || !(ctx->flags & XTS_EPOLL_TURN));
	self->promised = ctx->stack;
	self->turn = ctx->turn ? ctx->stack : NULL;
	self->holding = (ctx->flags & XTS_EPOLL_HOLD) && count >= (int)HOLD_EVENTS_MIN && st->channel &&
			(st->channel->queue->traits & XTS_QUEUE_KICK_COSTS);
}

void epoll_arrive(struct epoll_ctx *ctx)
{
	struct stack *st = ctx->stack;
	struct thread *self = thread_self(ctx->stack);

	if (self)
		self->batching = self->holding = false;
	if (st->to_join)
		inherit_take_watched(st, ctx);
	for (struct xts_sock *s = st->shared; s; s = s->cold->sharing.shared_next)
		if (epoll_watches(ctx, s))
			kind_of(s)->interest(s, false);
	channel_flush(st, true);
	channel_pump(st);
}

int xts_epoll(void *ectx, struct epoll_event *events, int max)
{
	struct stack *st;
	struct epoll_ctx *ctx = ectx;
	int r;

	if (!ctx)
		return finish(-EBADF);
	r = argument_events(events, max);
	if (r)
		return finish(r);
	if (argument_is_nowhere(events))
		return xts_epoll_is_ready(ctx) ? finish(-EFAULT) : 0;
	st = stack_enter(ctx->stack);
	epoll_arrive(ctx);
	(void)channel_catch_up(st);
	r = epoll_collect(ctx, events, max);
	epoll_collected(ctx, r);
	epoll_promise(ctx, r);
	stack_leave(st);
	if (r < max)
		r += foreign_collect(ctx, events + r, max - r, true);
	return r;
}
