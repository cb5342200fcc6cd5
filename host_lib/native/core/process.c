/* The process as a whole: its stacks and its threads. process.h has the rules. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/caller.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/control_page.h"
#include "core/process.h"
#include "core/settings.h"
#include "core/socket.h"
#include "core/stack.h"
#include "link/link.h"
#include "common/own_descriptors.h"
#include "common/own_memory.h"
#include "core/signals.h"
#include "core/wait.h"
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

/* --- fork: processes/fork.c ---------------------------------------------------------------------------------------- */

void process_after_fork_child(void)
{
	pthread_mutex_init(&process.lock, NULL);
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

void process_orphaned(void)
{
	pthread_mutex_init(&process.lock, NULL);
	process.threads = this_thread = NULL;
	pthread_setspecific(process.thread_key, NULL);
}

void process_begin_first(void)
{
	stack_init(&process.first);
	atomic_store(&process.first.use, STACK_USED);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void leave(struct stack *st)
{
	stack_enter(st);
	while (st->attaching)
		wait_for(st, &st->attach_waiters, FOREVER, false);
	stack_settle(st);
	st->again.leaving = true;
	if (st->channel) {
		channel_say_goodbye(st);
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

static void start_once(void)
{
	process_begin_first();
	pthread_key_create(&process.thread_key, thread_end);
	xts_at_fork(&process_at_fork);
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
