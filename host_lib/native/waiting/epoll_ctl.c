/* Polling contexts and what is registered with them: epoll_create(2) and epoll_ctl(2). */
#include <stdlib.h>

#include "core/arguments.h"
#include "core/error.h"
#include "core/process.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "common/own_memory.h"
#include "processes/take_over.h"
#include "waiting/epoll.h"
#include "waiting/other_stacks.h"
#include "waiting/progress_thread.h"
#include "core/wait.h"
#include "xts.h"
#include "xts_private.h"

/* All flags that are allowed with EPOLLEXCLUSIVE. */
#define WITH_EXCLUSIVE (EPOLLIN | EPOLLOUT | EPOLL_ALWAYS | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE)

static struct watch **watches_of(struct xts_sock *s, struct epoll_ctx *inner)
{
	return s ? &s->watches : &inner->outer;
}

static void watch_free(struct watch *w)
{
	struct watch **at = w->is_context ? &w->inner->outer : &w->socket->watches;

	epoll_ready_remove(w);
	if (w->away) {
		w->socket->stack->outside--;
		foreign_count(w->ctx, -1);
	} else {
		w->ctx->watches--;
	}
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	xts_release(w);
}

void epoll_forget_socket(struct xts_sock *s)
{
	while (s->watches) {
		if (s->watches->away)
			foreign_ring(s->watches->ctx); /* poll(2) tells that it is closed */
		watch_free(s->watches);
	}
}

static struct epoll_ctx *allocate(unsigned flags)
{
	struct epoll_ctx *ctx = calloc(1, sizeof *ctx);

	if (ctx) {
		ctx->flags = flags;
		ctx->set = ctx->bell = ctx->queue_fd = -1;
	}
	return ctx;
}

/* Puts a new context into this stack, which has been entered, and leaves it. */
static void *add_to(struct stack *st, struct epoll_ctx *ctx)
{
	ctx->stack = st;
	ctx->next = st->contexts;
	st->contexts = ctx;
	foreign_reserve(ctx);
	stack_leave(st);
	return ctx;
}

struct epoll_ctx *epoll_create_in(struct stack *st)
{
	struct epoll_ctx *ctx = allocate(0);

	return ctx ? add_to(stack_enter(st), ctx) : NULL;
}

void *xts_epoll_ctx_create_flags(unsigned flags)
{
	struct epoll_ctx *ctx;

	if (flags & ~(XTS_EPOLL_BATCH | XTS_EPOLL_TURN | XTS_EPOLL_PATIENT | XTS_EPOLL_HOLD)) {
		errno = EINVAL;
		last_error_failed(EINVAL, -1);
		return NULL;
	}
	ctx = allocate(flags);
	return ctx ? add_to(stack_enter_own(), ctx) : NULL;
}

void *xts_epoll_ctx_create_for(int number, unsigned flags)
{
	struct epoll_ctx *ctx = allocate(flags);

	return ctx ? add_to(stack_enter_of(number), ctx) : NULL;
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

void epoll_end_watches(struct stack *st, const struct epoll_ctx *ctx)
{
	struct xts_sock *s = NULL;

	while ((s = table_next(st, s)))
		free_watches(s->watches, ctx);
}

void xts_epoll_ctx_destroy(void *ectx)
{
	struct epoll_ctx *ctx = ectx, **at;
	struct stack *st;
	struct thread *self;

	if (!ctx)
		return;
	foreign_end(ctx);
	st = stack_enter(ctx->stack);
	self = thread_self(st);
	if (ctx->watches)
		epoll_end_watches(st, ctx);
	for (struct epoll_ctx *inner = st->contexts; inner; inner = inner->next)
		free_watches(inner->outer, ctx);
	while (ctx->outer)
		watch_free(ctx->outer);
	at = &st->contexts;
	while (*at && *at != ctx)
		at = &(*at)->next;
	if (*at)
		*at = ctx->next;
	epoll_close_fd(ctx);
	if (self)
		/* the thread may not return to this context, as it had promised */
		self->batching = self->holding = false;
	ctx->ended = true;
	ctx->held++;
	stack_leave(st);
	epoll_release(ctx);
}

void epoll_hold(struct epoll_ctx *ctx)
{
	ctx->held++;
}

void epoll_release(struct epoll_ctx *ctx)
{
	struct stack *st = stack_enter(ctx->stack);
	bool last = --ctx->held == 0 && ctx->ended;

	if (last)
		foreign_free(ctx);
	stack_leave(st);
	if (last)
		xts_release(ctx);
}

static struct watch *watch_make(struct epoll_ctx *ctx, struct xts_sock *s, struct epoll_ctx *inner, uint32_t key)
{
	struct watch *w = calloc(1, sizeof *w), **list = watches_of(s, inner);

	if (!w)
		return NULL;
	w->ctx = ctx;
	w->is_context = !s;
	w->away = s && s->stack != ctx->stack;
	if (w->away) {
		w->number = s->id;
		s->stack->outside++;
		foreign_count(ctx, 1);
		progress_need(s->stack);
	} else {
		ctx->watches++;
	}
	if (s)
		w->socket = s;
	else
		w->inner = inner;
	w->key = key;
	w->next = *list;
	*list = w;
	return w;
}

struct watch *epoll_watch_of(const struct epoll_ctx *ctx, const struct xts_sock *s, uint32_t key)
{
	struct watch *w = s->watches;

	while (w && (w->ctx != ctx || w->key != key))
		w = w->next;
	return w;
}

static struct watch *watch_find(const struct epoll_ctx *ctx, struct xts_sock *s, struct epoll_ctx *inner, uint32_t key)
{
	struct watch *w = *watches_of(s, inner);

	while (w && (w->ctx != ctx || w->key != key))
		w = w->next;
	return w;
}

static int change(struct epoll_ctx *ctx, int op, struct xts_sock *s, struct epoll_ctx *inner, uint32_t key,
		  const struct epoll_event *event)
{
	struct watch *w = watch_find(ctx, s, inner, key);

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
	/* otherwise the interest begins when the program waits */
	if (s && (w->away || ctx->waiters || ctx->set >= 0))
		kind_of(s)->interest(s, false);
	if (epoll_watch_events(w))
		epoll_set_ready(w);
	return 0;
}

int xts_epoll_ctl_keyed(void *ectx, int op, int number, uint32_t key, struct epoll_event *event)
{
	struct stack *st;
	struct xts_sock *s;
	int r;

	if (!ectx)
		return finish(-EBADF);
	if (op != EPOLL_CTL_DEL && argument_is_bad(event, sizeof *event))
		return finish(-EFAULT);
	st = table_stack(number);
	if (op == EPOLL_CTL_ADD && st && st != ((struct epoll_ctx *)ectx)->stack) {
		r = foreign_prepare(ectx, st);
		if (r)
			return finish(r);
	}
	st = stack_enter_of(number);
	s = op == EPOLL_CTL_DEL ? table_open(st, number) : table_use_for(st, number, PURPOSE_POLL);
	r = s ? change(ectx, op, s, NULL, key, event) : -EBADF;
	stack_leave(st);
	return finish(r);
}

int xts_epoll_ctl(void *ectx, int op, int number, struct epoll_event *event)
{
	return xts_epoll_ctl_keyed(ectx, op, number, 0, event);
}

int xts_epoll_registered(void *ectx, int number, uint32_t key, struct epoll_event *event)
{
	struct stack *st;
	struct watch *w = NULL;
	struct xts_sock *s;

	st = stack_enter_of(number);
	s = table_open(st, number);
	if (s)
		w = epoll_watch_of(ectx, s, key);
	if (w) {
		event->events = w->disabled ? w->events & (uint32_t)EPOLL_WAYS : w->events;
		event->data = w->data;
	}
	stack_leave(st);
	return finish(w ? 0 : -ENOENT);
}

int xts_epoll_nest(void *ectx, int op, void *inner, uint32_t key, struct epoll_event *event)
{
	struct epoll_ctx *ctx = ectx;
	struct stack *st = stack_enter(ctx->stack);
	bool elsewhere = ((struct epoll_ctx *)inner)->stack != st || nested_is_member(ctx, inner, key);
	int r = 0;

	/* The inner context may have, or get, sockets of other stacks, whose events do not reach the outer one in
	 * change()'s way. */
	if (op == EPOLL_CTL_ADD && process_next(process_stacks()))
		elsewhere = true;
	if (!elsewhere)
		r = change(ctx, op, NULL, inner, key, event);
	stack_leave(st);
	return finish(elsewhere ? nested_ctl(ctx, op, inner, key, event) : r);
}
