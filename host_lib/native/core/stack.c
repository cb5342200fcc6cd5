/* Entering and leaving a stack. stack.h has the theory of operation. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/caller.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/receive_callback.h"
#include "core/process.h"
#include "core/socket.h"
#include "core/socket_states.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "processes/take_over.h"
#include "queues/queue.h"
#include "waiting/epoll.h"
#include "waiting/mirror.h"
#include "waiting/progress_thread.h"
#include "core/signals.h"
#include "core/wait.h"
#include "xts.h"

#define EXIT_FLUSH_NS (1 * NS_PER_S)
#define EXIT_MOVES_NS (10 * NS_PER_S) /* another process of the proxy is about to serve the queue */

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t now_coarse_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

void stack_init(struct stack *st)
{
	pthread_mutex_init(&st->lock, NULL);
	st->bells.spare = st->progress.bell = st->progress.clock_fd = -1;
	st->lose_random = 0x9e3779b97f4a7c15u; /* any state except 0 */
}

void stack_lock(struct stack *st)
{
	if (pthread_mutex_trylock(&st->lock) == 0)
		return;
	if (callback_is_asking(st)) {
		fputs("libxts: a receive callback has called this library, which waits for it to return\n", stderr);
		abort();
	}
	atomic_fetch_add_explicit(&st->lock_waits, 1, memory_order_relaxed);
	pthread_mutex_lock(&st->lock);
}

/* The thread has promised to come back to another stack, and might now sleep in this one: sends what is queued
 * there. */
static void end_promise(void)
{
	struct stack *st = this_thread->promised;

	this_thread->promised = NULL;
	this_thread->batching = this_thread->holding = false;
	stack_lock(st);
	stack_rest(st);
	pthread_mutex_unlock(&st->lock);
}

static struct stack *lock(struct stack *st)
{
	xts_inside.locked = 1;
	if (this_thread && this_thread->promised && this_thread->promised != st)
		end_promise();
	stack_lock(st);
	return st;
}

static void begin(void)
{
	xts_look_who_calls();
	xts_go_in();
}

struct stack *stack_enter(struct stack *st)
{
	begin();
	return lock(st);
}

struct stack *stack_enter_own(void)
{
	begin();
	return lock(process_own_stack());
}

struct stack *stack_enter_of(int number)
{
	struct stack *st;

	begin();
	st = table_stack(number);
	st = lock(st ? st : process_own_stack());
	if (st->channel)
		next_proxy.look_first(st);
	socket_check_none_held();
	xts_inside.held = table_hold(number);
	return st;
}

/* Will this thread come back before the peer's doorbell has to be rung? */
static bool keeps_quiet(const struct channel *c)
{
	if (!this_thread || c->unkicked >= 4 * KICK_FRAMES)
		return false;
	if (this_thread->promised != c->stack)
		return false;
	if (this_thread->batching)
		return true;
	return this_thread->holding && ((!c->unkicked && !c->making.of) || progress_will_flush(c->stack));
}

void stack_rest(struct stack *st)
{
	struct channel *c;

	while ((c = st->channel)) {
		channel_flush(st, !keeps_quiet(c));
		if (st->dirty)
			mirrors_update(st);
		/* A thread sleeps on the queue outside the waits of wait.c: the doorbell has to be armed when we
		 * leave. */
		if (!st->channel || st->leader || !(st->idle_contexts || st->progress.sleeping_on_queue))
			break;
		if (xts_queue_arm(c->queue) == 0) {
			c->armed = true;
			break;
		}
		channel_pump(st);
	}
	if (st->dirty)
		mirrors_update(st);
	/* These count even without a channel: they outlive it, and the thread has been standing by since it died. */
	if (st->channel && (st->outside || channel_busy(st->channel) || (st->joint && st->shared)))
		progress_need(st);
	else if (st->idle_contexts && !st->progress.started)
		progress_need(st); /* it watches over the channel while the program sleeps on a descriptor */
	else if (st->again.away && !st->progress.started)
		progress_need(st); /* it could not be started: there were too many threads */
	if (st->dead)
		channel_reap(st);
	if (__builtin_expect(st->asked_to_yield, 0))
		turn_yield_some(st);
	if (__builtin_expect(figures_behind(st), 0))
		figures_update(st);
}

void stack_end_if_empty(struct stack *st)
{
	if (!st->abandoned || st->sockets || st->contexts || st->attaching || st->name_queries)
		return;
	if (st->channel) {
		channel_say_goodbye(st);
		channel_die(st, ENETDOWN);
	}
	progress_wake(st); /* it may sleep on the channel's descriptors, which are closed when no thread does */
	channel_reap(st);
	st->abandoned = false;
	st->started = false;
	atomic_fetch_add(&st->uses, 1);
	atomic_store(&st->use, STACK_FREE);
}

static void let_go(struct stack *st)
{
	if (xts_inside.held) {
		socket_put(xts_inside.held);
		xts_inside.held = NULL;
	}
	stack_rest(st);
	if (__builtin_expect(st->abandoned, 0))
		stack_end_if_empty(st);
	pthread_mutex_unlock(&st->lock);
	xts_inside.locked = 0;
}

void stack_leave(struct stack *st)
{
	let_go(st);
	xts_come_out();
}

bool stack_leave_interrupted(struct stack *st, ssize_t *result)
{
	bool again;

	let_go(st);
	again = xts_come_out_again(true);
	if (!xts_inside.depth)
		*result = -EINTR;
	return again;
}

void stack_settle(struct stack *st)
{
	uint64_t begun = now_ns(), deadline;

	while (st->channel && st->channel->outbox_first) {
		deadline = begun + (move_is_between(&st->channel->move) ? EXIT_MOVES_NS : EXIT_FLUSH_NS);
		if (now_ns() >= deadline)
			break;
		channel_pump(st);
		channel_flush(st, true);
		if (st->channel && st->channel->outbox_first &&
		    wait_for(st, &st->frame_waiters, deadline, false) == -ENOBUFS)
			break;
	}
}

void xts_flush(void)
{
	struct thread *t = this_thread;
	struct stack *st = t && t->turn ? stack_enter(t->turn) : stack_enter_own();

	if (t) {
		t->batching = t->holding = false;
		t->promised = t->turn = NULL;
	}
	epoll_end_turn(st);
	stack_leave(st);
}
