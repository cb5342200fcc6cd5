/* Fork and exit, as they are for all sockets of the process: what is done before, and in parent and child after it. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/caller.h"
#include "core/channel.h"
#include "core/control_page.h"
#include "core/process.h"
#include "core/receive_callback.h"
#include "core/received_data.h"
#include "core/signals.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "core/wait.h"
#include "common/own_memory.h"
#include "processes/again.h"
#include "processes/inherit.h"
#include "processes/next_proxy.h"
#include "processes/passed_copies.h"
#include "processes/relatives.h"
#include "processes/take_over.h"
#include "waiting/epoll.h"
#include "waiting/mirror.h"
#include "waiting/progress_thread.h"
#include "xts_private.h"

/*
 * The thread itself may be in the library: in a handler that xts_sigaction() does not know, which has interrupted a
 * call and forks. Then it holds a lock, or waits for one; the data under that lock may be half changed, and the child
 * may only exec or _exit.
 */
static __thread bool forks_inside;

/* Locks all stacks, in order of creation, and then the process. A stack that was made meanwhile is at the end of the
 * list. */
static void lock_all(void)
{
	struct stack *st = process_stacks(), *last = NULL;

	while (st) {
		for (; st; st = process_next(st)) {
			pthread_mutex_lock(&st->lock);
			if (process_inherits())
				share_before_fork(st);
			if (process_inherits())
				again_before_fork(st);
			common_before_fork(st);
			sharers_before_fork(st);
			last = st;
		}
		process_lock();
		st = process_next(last);
		if (st)
			process_unlock();
	}
}

static void before_fork(void)
{
	for (struct stack *st = process_stacks(); process_inherits() && !xts_inside.locked && st; st = process_next(st)) {
		stack_enter(st);
		move_settle(st);
		for (unsigned i = 0; i < SOCKET_KINDS; i++)
			socket_kinds[i]->before_fork(st);
		stack_leave(st);
	}
	signals_before_fork();
	forks_inside = xts_inside.locked;
	if (forks_inside)
		return;
	xts_inside.locked = 1; /* signals: the thread is inside the library until after_fork */
	lock_all();
}

static void after_fork_parent(void)
{
	if (!forks_inside) {
		relatives_after_fork(false);
		process_unlock();
		for (struct stack *st = process_stacks(); st; st = process_next(st)) {
			inherit_after_fork_parent(st);
			if (process_inherits())
				again_after_fork_parent(st);
			stack_rest(st); /* sends the keys of bound sockets */
			pthread_mutex_unlock(&st->lock);
		}
		xts_inside.locked = 0;
	}
	signals_after_fork_parent();
}

/*
 * The child has a copy of everything except the queue's memory (MADV_DONTFORK), which only the parent has. Its sockets
 * get a new generation and so are forgotten: an inherited number is EBADF even after the child has made its own
 * sockets. If sockets are kept over fork, they have no channel instead, and wait to be used (inherit.c).
 */
static void forget_parent(struct stack *st)
{
	struct xts_sock *s = NULL;

	bells_forget(st);
	st->waiters = st->leader = NULL;
	st->waiting = st->asked = 0;
	st->attaching = false;
	st->catch_up_waiters = 0;
	st->attach_waiters = st->frame_waiters = st->poll_waiters = st->close_waiters = 0;
	progress_forget(st);
	channel_forget(st);
	st->shared = st->to_join = NULL;
	st->moving = st->untaken = st->commons = 0;
	st->asked_to_yield = false;
	table_forget_holders(st);
	while ((s = table_next(st, s))) {
		mirror_forget(s);
		buffer_drop(s);
		xts_release(s->pending);
		if (process_inherits() && s->open) {
			inherit_after_fork(s);
			if (share_by_key(s))
				continue;
		}
		epoll_forget_socket(s);
		if (!process_inherits() || !s->open) {
			passed_leave(s);
			s->cold->parents_id = s->open ? s->id : 0;
			socket_release(s);
		}
	}
	again_after_fork_child(st);
	epoll_forget(st);
	st->dirty = NULL;
	st->started = false;
	st->sent_bytes = st->received_bytes = 0;
}

static void after_fork_child(void)
{
	if (!forks_inside) {
		process_after_fork_child();
		relatives_after_fork(true);
		for (struct stack *st = process_stacks(); st; st = process_next(st))
			epoll_unlock(st);
		for (struct stack *st = process_stacks(); st; st = process_next(st)) {
			pthread_mutex_init(&st->lock, NULL);
			pthread_mutex_lock(&st->lock);
			forget_parent(st);
			pthread_mutex_unlock(&st->lock);
		}
		relatives_drop_unused();
		choice_after_fork();
		figures_after_fork();
		control_after_fork();
		xts_inside.locked = 0;
	}
	signals_after_fork_child();
}

/*
 * A child by a door that this process did not see (caller.h). Its parent's memory may be half changed, so nothing of it
 * is used or freed, except what can be read in any state.
 */
static void orphaned(void)
{
	struct epoll_ctx *contexts = NULL;

	process_orphaned();
	table_orphaned();
	relatives_orphaned();
	for (struct stack *st = process_stacks(); st; st = process_next(st))
		contexts = epoll_orphaned(st, process_stacks(), contexts);
	memset(process_stacks(), 0, sizeof *process_stacks());
	process_begin_first();
	process_stacks()->contexts = contexts;
	choice_after_fork();
	figures_after_fork();
	control_orphaned();
	signals_orphaned();
	xts_inside.locked = 0;
}

void xts_expect_sharing_child(void)
{
	xts_look_who_calls();
	for (struct stack *st = process_stacks(); st; st = process_next(st)) {
		stack_enter(st);
		relatives_begin();
		if (st->channel)
			progress_need(st);
		stack_leave(st);
	}
}

const struct xts_fork_part process_at_fork = {
	.before = before_fork, .in_parent = after_fork_parent, .in_child = after_fork_child, .orphaned = orphaned
};

/* --- exit --------------------------------------------------------------------------------------------------------- */

/*
 * At a normal exit, everything in the outbox leaves, then GOODBYE: the proxy closes our connections as the kernel
 * would. Other threads may still be in calls; these block until the process has ended.
 */
static void before_exit(struct stack *st)
{
	struct timespec limit;

	/* The lock is never held for long, but exit() may have been called from a handler that has interrupted a call
	 * of this library. */
	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec++;
	if (pthread_mutex_clocklock(&st->lock, CLOCK_MONOTONIC, &limit) != 0)
		return;
	xts_inside.locked = 1;
	common_at_exit(st);
	for (unsigned i = 0; i < SOCKET_KINDS; i++)
		socket_kinds[i]->at_exit(st);
	sharers_at_exit(st);
	sockets_at_exit(st);
	stack_settle(st);
	channel_say_goodbye(st);
	figures_close(st);
	pthread_mutex_unlock(&st->lock);
	xts_inside.locked = 0;
}

/* A child that shares this memory leaves it to its parent. */
void xts_before_exit(void)
{
	xts_look_who_calls();
	if (getpid() != xts_caller_pid)
		return;
	xts_go_in();
	for (struct stack *st = process_stacks(); st; st = process_next(st))
		before_exit(st);
	xts_come_out();
}

__attribute__((destructor)) static void at_exit(void)
{
	xts_before_exit();
}
