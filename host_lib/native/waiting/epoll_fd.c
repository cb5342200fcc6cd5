/*
 * The descriptor of a polling context (xts_epoll_fd): an epoll set of its own with the queue's descriptor and an
 * eventfd. When a collection finds nothing, the context is idle: every thread that leaves the library arms the queue's
 * doorbell, so that any frame makes the descriptor ready. When a collection finds something, or a thread makes
 * something ready, the eventfd is rung, and stays readable until a collection finds nothing: after handling events a
 * program can sleep on the descriptor at once. A context whose edges another one waits for (nested_contexts.c) is
 * always idle in this sense, and each event rings: so it is an edge, also of a descriptor that is ready. With
 * XTS_EPOLL_TURN neither the doorbell nor the eventfd is touched between a collection that found something and
 * xts_flush(), which then decides by what is on the ready list.
 */
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/channel.h"
#include "core/error.h"
#include "core/stack.h"
#include "common/own_descriptors.h"
#include "waiting/epoll.h"
#include "waiting/other_stacks.h"
#include "xts.h"

static void set_idle(struct epoll_ctx *ctx, bool idle)
{
	struct stack *st = ctx->stack;

	if (ctx->idle == idle)
		return;
	ctx->idle = idle;
	if (idle)
		st->idle_contexts++;
	else
		st->idle_contexts--;
}

static void ring(struct epoll_ctx *ctx)
{
	uint64_t one = 1;

	if (write(ctx->bell, &one, sizeof one) == (ssize_t)sizeof one)
		ctx->ringing = true;
	if (!ctx->edged)
		set_idle(ctx, false);
}

/* Makes the context's descriptor ready until a collection finds nothing. */
void epoll_ring(struct epoll_ctx *ctx)
{
	if (ctx->bell >= 0 && !ctx->ringing && !ctx->turn)
		ring(ctx);
}

void epoll_want_edges(struct epoll_ctx *ctx)
{
	struct stack *st = stack_enter(ctx->stack);

	ctx->edged = true;
	if (ctx->bell >= 0)
		set_idle(ctx, true);
	stack_leave(st);
}

void epoll_ring_event(struct epoll_ctx *ctx)
{
	if (ctx->bell >= 0 && (!ctx->ringing || ctx->edged) && !ctx->turn)
		ring(ctx);
}

static void silence(struct epoll_ctx *ctx)
{
	uint64_t count;

	if (ctx->bell < 0)
		return;
	if (ctx->ringing && read(ctx->bell, &count, sizeof count) == (ssize_t)sizeof count)
		ctx->ringing = false;
	set_idle(ctx, true);
}

/* Puts the descriptor of the channel that is alive into the set. */
static void follow_channel(struct epoll_ctx *ctx)
{
	struct stack *st = ctx->stack;
	struct epoll_event event = { .events = EPOLLIN };
	int fd = st->channel ? st->channel->queue->wait_fd : -1;

	if (ctx->set < 0 || ctx->queue_fd == fd)
		return; /* the descriptor of a channel that died left the set when it was closed */
	ctx->queue_fd = fd;
	if (fd >= 0 && epoll_ctl(ctx->set, EPOLL_CTL_ADD, fd, &event) < 0 && errno != EEXIST)
		ctx->queue_fd = -1;
}

void epoll_collected(struct epoll_ctx *ctx, int found)
{
	follow_channel(ctx);
	ctx->turn = found && ctx->flags & XTS_EPOLL_TURN;
	if (ctx->turn)
		set_idle(ctx, false);
	else if (found)
		epoll_ring(ctx);
	else
		silence(ctx);
}

void epoll_found_nothing(struct epoll_ctx *ctx)
{
	follow_channel(ctx);
	if (!ctx->turn)
		silence(ctx);
}

/* The turn is over: from now on the descriptor shows again what is ready. */
void epoll_end_turn(struct stack *st)
{
	for (struct epoll_ctx *ctx = st->contexts; ctx; ctx = ctx->next) {
		if (!ctx->turn)
			continue;
		ctx->turn = false;
		if (ctx->ready_first)
			epoll_ring(ctx);
		else
			silence(ctx);
	}
}

/* A program may be asleep on the descriptor already. The new channel's descriptor may have the number of the old
 * one's. */
void epoll_channel_opened(struct stack *st)
{
	for (struct epoll_ctx *ctx = st->contexts; ctx; ctx = ctx->next) {
		ctx->queue_fd = -1;
		follow_channel(ctx);
	}
}

static int open_descriptor(struct epoll_ctx *ctx)
{
	struct epoll_event event = { .events = EPOLLIN };
	int r;

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
	r = foreign_join_set(ctx);
	if (r)
		return r;
	ctx->queue_fd = -1;
	follow_channel(ctx);
	epoll_ring(ctx); /* ready until the first collection */
	return ctx->set;
}

void epoll_close_fd(struct epoll_ctx *ctx)
{
	set_idle(ctx, false);
	if (ctx->set >= 0) {
		/* If this context is registered in another one, that one may hold a duplicate of the descriptor. */
		if (ctx->queue_fd >= 0)
			epoll_ctl(ctx->set, EPOLL_CTL_DEL, ctx->queue_fd, NULL);
		xts_own_close(ctx->set);
		xts_own_close(ctx->bell);
	}
	ctx->set = ctx->bell = ctx->queue_fd = -1;
	ctx->ringing = false;
}

void epoll_unlock(struct stack *st)
{
	for (struct epoll_ctx *ctx = st->contexts; ctx; ctx = ctx->next)
		foreign_unlock(ctx);
}

/* In a forked child: the descriptors are the parent's, the sockets are gone. */
void epoll_forget(struct stack *st)
{
	for (struct epoll_ctx *ctx = st->contexts; ctx; ctx = ctx->next) {
		epoll_close_fd(ctx);
		foreign_after_fork(ctx);
		ctx->waiters = ctx->polled = 0;
		ctx->turn = false;
	}
}

struct epoll_ctx *epoll_orphaned(struct stack *from, struct stack *to, struct epoll_ctx *others)
{
	struct epoll_ctx *ctx = from->contexts, *next;

	for (; ctx; ctx = next) {
		next = ctx->next;
		*ctx = (struct epoll_ctx){
			.stack = to, .next = others, .flags = ctx->flags, .set = -1, .bell = -1, .queue_fd = -1
		};
		others = ctx;
	}
	return others;
}

int epoll_own_descriptor(void *ectx)
{
	struct stack *st;
	int r;

	if (!ectx)
		return finish(-EBADF);
	st = stack_enter(((struct epoll_ctx *)ectx)->stack);
	r = open_descriptor(ectx);
	stack_leave(st);
	return finish(r);
}

int xts_epoll_fd(void *ectx)
{
	int fd = epoll_own_descriptor(ectx);

	xts_lend(fd);
	return fd;
}
