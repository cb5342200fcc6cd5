/* The process as a whole: its stacks, its threads, fork and exit. process.h has the rules. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/received_data.h"
#include "core/caller.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/control_page.h"
#include "core/datagram_socket.h"
#include "core/process.h"
#include "core/receive_callback.h"
#include "core/settings.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "link.h"
#include "own_descriptors.h"
#include "own_memory.h"
#include "processes/inherit.h"
#include "processes/passed_copies.h"
#include "processes/relatives.h"
#include "processes/take_over.h"
#include "waiting/epoll.h"
#include "waiting/mirror.h"
#include "waiting/progress_thread.h"
#include "waiting/signals.h"
#include "waiting/wait.h"
#include "xts_private.h"

__thread struct thread *this_thread;

static struct {
	pthread_mutex_t lock;
	pthread_once_t once;
	pthread_key_t thread_key;
	struct stack first; /* first in the list of all stacks */
	struct settings configured;
	struct thread *threads;
	atomic_bool inherits;
} process = { .lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT };

void process_lock(void)
{
	pthread_mutex_lock(&process.lock);
}

void process_unlock(void)
{
	pthread_mutex_unlock(&process.lock);
}

struct stack *process_stacks(void)
{
	return &process.first;
}

struct stack *process_next(const struct stack *st)
{
	return atomic_load_explicit(&st->next, memory_order_acquire);
}

struct stack *process_add_stack(void)
{
	struct stack *last = &process.first, *st = calloc(1, sizeof *st);

	while (process_next(last))
		last = process_next(last);
	if (!st || last->place + 1 == STACKS_MAX) {
		free(st);
		return NULL;
	}
	stack_init(st);
	st->place = last->place + 1;
	atomic_store_explicit(&last->next, st, memory_order_release);
	return st;
}

bool process_inherits(void)
{
	return atomic_load_explicit(&process.inherits, memory_order_relaxed);
}

void xts_inherit_over_fork(void)
{
	atomic_store_explicit(&process.inherits, true, memory_order_relaxed);
}

void xts_on_descriptors(int (*own)(int fd), void (*disown)(int fd))
{
	xts_own_hooks.own = own;
	xts_own_hooks.disown = disown;
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

void process_settings(struct settings *out)
{
	process_lock();
	*out = process.configured;
	process_unlock();
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

static void thread_end(void *arg)
{
	struct thread *t = arg;

	choice_thread_ends(t);
	xts_go_in();
	process_lock();
	if (t->previous)
		t->previous->next = t->next;
	else
		process.threads = t->next;
	if (t->next)
		t->next->previous = t->previous;
	process_unlock();
	bell_give_up(t);
	free(t);
	this_thread = NULL;
	xts_come_out();
}

struct thread *thread_record(void)
{
	struct thread *t = this_thread;

	if (t)
		return t;
	t = calloc(1, sizeof *t);
	if (!t)
		return NULL;
	t->bell = -1;
	t->id = pthread_self();
	process_lock();
	t->next = process.threads;
	if (t->next)
		t->next->previous = t;
	process.threads = t;
	process_unlock();
	this_thread = t;
	pthread_setspecific(process.thread_key, t);
	return t;
}

bool thread_note_cancel(pthread_t id)
{
	bool noted = false;

	xts_go_in();
	process_lock();
	for (struct thread *t = process.threads; t; t = t->next) {
		if (!pthread_equal(t->id, id))
			continue;
		atomic_store(&t->cancelled, true);
		noted = true;
	}
	process_unlock();
	xts_come_out();
	return noted;
}

struct thread *thread_self(struct stack *st)
{
	struct thread *t = thread_record();

	return t && bell_get(st, t) ? t : NULL;
}

/* --- fork --------------------------------------------------------------------------------------------------------- */

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
		datagrams_before_fork(st);
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

static void forget_threads(void)
{
	for (struct thread *t = process.threads, *next; t; t = next) {
		next = t->next;
		t->rung = false;
		bell_give_up(t);
		if (t != this_thread)
			xts_release(t);
	}
	process.threads = this_thread;
	if (this_thread) {
		this_thread->next = this_thread->previous = NULL;
		this_thread->batching = this_thread->holding = false;
		this_thread->promised = NULL;
	}
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
			datagram_free(s);
			callback_free(s);
			s->cold->parents_id = s->open ? s->id : 0;
			table_release(s);
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
		pthread_mutex_init(&process.lock, NULL);
		relatives_after_fork(true);
		forget_threads();
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

	pthread_mutex_init(&process.lock, NULL);
	process.threads = this_thread = NULL;
	pthread_setspecific(process.thread_key, NULL);
	table_orphaned();
	relatives_orphaned();
	for (struct stack *st = process_stacks(); st; st = process_next(st))
		contexts = epoll_orphaned(st, &process.first, contexts);
	memset(&process.first, 0, sizeof process.first);
	stack_init(&process.first);
	process.first.contexts = contexts;
	atomic_store(&process.first.use, STACK_USED);
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

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void say_goodbye(struct stack *st)
{
	if (!st->channel)
		return;
	xts_link_goodbye(&st->channel->link, 0);
	channel_flush(st, true);
}

static void leave(struct stack *st)
{
	stack_enter(st);
	while (st->attaching)
		wait_for(st, &st->attach_waiters, FOREVER, false);
	stack_settle(st);
	st->again.leaving = true;
	if (st->channel) {
		say_goodbye(st);
		channel_die(st, ENETDOWN);
	}
	st->started = false;
	stack_leave(st);
}

void xts_leave(void)
{
	xts_look_who_calls();
	for (struct stack *st = process_stacks(); st; st = process_next(st))
		leave(st);
	process_lock();
	process.configured = (struct settings){ 0 };
	process_unlock();
	control_settings_changed();
}

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
	datagrams_leave(st);
	sharers_at_exit(st);
	stack_settle(st);
	say_goodbye(st);
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

static void start_once(void)
{
	static const struct xts_fork_part at_fork = {
		.before = before_fork, .in_parent = after_fork_parent, .in_child = after_fork_child, .orphaned = orphaned
	};

	stack_init(&process.first);
	atomic_store(&process.first.use, STACK_USED);
	pthread_key_create(&process.thread_key, thread_end);
	xts_at_fork(&at_fork);
	caller_begin();
}

void process_start(void)
{
	pthread_once(&process.once, start_once);
}

/* A stack takes its settings when it attaches: after that they cannot be changed. */
int process_configure(const struct settings *settings)
{
	struct stack *st = stack_enter_own();
	bool attached = st->channel || st->attaching;

	if (!attached) {
		process_lock();
		process.configured = *settings;
		process_unlock();
		st->started = false;
	}
	stack_leave(st);
	if (!attached)
		control_settings_changed();
	return attached ? -EBUSY : 0;
}
