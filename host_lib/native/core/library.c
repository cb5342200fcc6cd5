/* The process as a whole: its lock, its threads' bells, fork and exit. library.h has the theory of operation. */
#include "core/library.h"

#include "xts_private.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define EXIT_FLUSH_NS (1 * NS_PER_S)

struct library xts = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread struct thread *this_thread;
static __thread int cancel_state;
static pthread_key_t thread_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

void xts_on_descriptors(int (*own)(int fd), void (*disown)(int fd))
{
	xts_own_hooks.own = own;
	xts_own_hooks.disown = disown;
}

/* --- threads ---------------------------------------------------------------------------------------------------------- */

static void thread_end(void *arg)
{
	struct thread *t = arg;

	xts_go_in();
	pthread_mutex_lock(&xts.lock);
	if (t->previous)
		t->previous->next = t->next;
	else
		xts.threads = t->next;
	if (t->next)
		t->next->previous = t->previous;
	bell_give_up(t);
	pthread_mutex_unlock(&xts.lock);
	free(t);
	xts_come_out();
}

struct thread *thread_self(void)
{
	struct thread *t = this_thread;

	if (!t) {
		t = calloc(1, sizeof *t);
		if (!t)
			return NULL;
		t->bell = -1;
		t->next = xts.threads;
		if (t->next)
			t->next->previous = t;
		xts.threads = t;
		this_thread = t;
		pthread_setspecific(thread_key, t);
	}
	return bell_get(t) ? t : NULL;
}

/* --- fork ------------------------------------------------------------------------------------------------------------- */

/*
 * The thread itself may be in the library: fork() by a handler that xts_sigaction() does not know, in the midst of a call. The lock is
 * its own then, or it waits for it; what it guards may be half changed, and the child is good for exec and _exit only.
 */
static __thread bool forks_inside;

static void before_fork(void)
{
	signals_before_fork();
	forks_inside = xts_inside.locked;
	if (forks_inside)
		return;
	xts_inside.locked = 1; /* what is done until after_fork is the library's doing */
	pthread_mutex_lock(&xts.lock);
	heirs_before_fork();
	sharers_before_fork();
}

static void after_fork_parent(void)
{
	if (!forks_inside) {
		heirs_after_fork_parent();
		pthread_mutex_unlock(&xts.lock);
		xts_inside.locked = 0;
	}
	signals_after_fork_parent();
}

/*
 * The child has a copy of everything but the queue's memory (MADV_DONTFORK), which is the parent's alone. Its sockets
 * are forgotten with a new generation, so that an inherited number is EBADF even after the child has made its own; or,
 * where they are kept over fork, have no channel any more and wait to be used (inherit.c).
 */
static void forget_parent(void)
{
	struct xts_sock *s = NULL;
	int link;

	for (struct thread *t = xts.threads, *next; t; t = next) {
		next = t->next;
		t->rung = false;
		bell_give_up(t);
		if (t == this_thread)
			continue;
		free(t);
	}
	bells_forget();
	xts.threads = this_thread;
	if (this_thread) {
		this_thread->next = this_thread->previous = NULL;
		this_thread->batching = this_thread->holding = false;
	}
	xts.waiters = xts.leader = NULL;
	xts.waiting = xts.asked = 0;
	xts.attaching = false;
	xts.attach_waiters = xts.frame_waiters = xts.poll_waiters = xts.close_waiters = 0;
	progress_forget();
	channel_forget();
	link = heirs_after_fork_child();
	inherit_uplink(link);
	xts.shared = xts.to_join = NULL;
	xts.moving = xts.untaken = 0;
	while ((s = table_next(s))) {
		mirror_close(s);
		buffer_drop(s);
		free(s->pending);
		if (xts.inherits && s->open) {
			inherit_after_fork(s);
			if (s->state == TCP_STATE_LISTEN)
				continue;
		}
		epoll_forget_socket(s);
		if (!xts.inherits || !s->open)
			table_release(s);
	}
	epoll_forget();
	xts.dirty = NULL;
	xts.started = false;
	xts.sent_bytes = xts.received_bytes = 0;
}

static void after_fork_child(void)
{
	if (!forks_inside) {
		pthread_mutex_init(&xts.lock, NULL);
		pthread_mutex_lock(&xts.lock);
		forget_parent();
		pthread_mutex_unlock(&xts.lock);
		xts_inside.locked = 0;
	}
	signals_after_fork_child();
}

void library_settle(void)
{
	uint64_t deadline = now_ns() + EXIT_FLUSH_NS;

	while (xts.channel && xts.channel->outbox_first && now_ns() < deadline) {
		channel_pump();
		channel_flush(true);
		if (xts.channel && xts.channel->outbox_first && wait_for(&xts.frame_waiters, deadline, false))
			break;
	}
}

void xts_leave(void)
{
	library_enter();
	while (xts.attaching)
		wait_for(&xts.attach_waiters, FOREVER, false);
	library_settle();
	if (xts.channel) {
		xts_link_goodbye(&xts.channel->link, 0);
		channel_flush(true);
		channel_die(ENETDOWN);
	}
	xts.settings = (struct settings){0};
	xts.started = false;
	library_leave();
}

/*
 * At an orderly exit what is still in the outbox leaves, then GOODBYE: the proxy closes our connections as the kernel
 * would. Other threads may still be in calls; these wait until the process is gone.
 */
void xts_before_exit(void)
{
	struct timespec limit;

	/* Never held for long; but exit() may have been called from a handler that has interrupted a call of ours. */
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec++;
	xts_go_in();
	if (pthread_mutex_timedlock(&xts.lock, &limit) != 0) {
		xts_come_out();
		return;
	}
	xts_inside.locked = 1;
	heirs_at_exit(true);
	inherit_at_exit();
	sharers_at_exit();
	library_settle();
	if (xts.channel) {
		xts_link_goodbye(&xts.channel->link, 0);
		channel_flush(true);
	}
	pthread_mutex_unlock(&xts.lock);
	xts_inside.locked = 0;
	xts_come_out();
}

__attribute__((destructor)) static void at_exit(void)
{
	xts_before_exit();
}

static void start_once(void)
{
	pthread_key_create(&thread_key, thread_end);
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* --- around every call ------------------------------------------------------------------------------------------------ */

void library_enter(void)
{
	xts_go_in();
	/* A thread that is cancelled while it waits would leave its waiter, on its stack, in our list. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	pthread_once(&once, start_once);
	xts_inside.locked = 1;
	pthread_mutex_lock(&xts.lock);
}

/* Does this thread come back before the peer has to be rung? */
static bool keeps_quiet(const struct channel *c)
{
	if (!this_thread || c->unkicked >= 4 * KICK_FRAMES)
		return false;
	return this_thread->batching || (this_thread->holding && (!c->unkicked || progress_will_flush()));
}

void library_rest(void)
{
	struct channel *c;

	while ((c = xts.channel)) {
		channel_flush(!keeps_quiet(c));
		if (xts.dirty)
			mirrors_update();
		/* Somebody sleeps on the queue outside of our waits: its doorbell has to be armed when we go. */
		if (!xts.channel || xts.leader || !(xts.idle_contexts || progress_sleeps_on_queue()))
			break;
		if (xts_queue_arm(c->queue) == 0) {
			c->armed = true;
			break;
		}
		channel_pump();
	}
	if (xts.dirty)
		mirrors_update();
	/* Mirrors too: they outlive a channel, and the thread has stood by since it died. */
	if (xts.channel && (xts.mirrors || channel_busy(xts.channel) || (xts.joint && xts.shared)))
		progress_need();
	if (xts.dead)
		channel_reap();
}

static void let_go(void)
{
	library_rest();
	pthread_mutex_unlock(&xts.lock);
	xts_inside.locked = 0;
	pthread_setcancelstate(cancel_state, NULL);
}

void library_leave(void)
{
	let_go();
	xts_come_out();
}

bool library_leave_interrupted(ssize_t *result)
{
	bool again;

	let_go();
	again = xts_come_out_again(true);
	if (!xts_inside.depth)
		*result = -EINTR;
	return again;
}

void xts_flush(void)
{
	library_enter();
	if (this_thread)
		this_thread->batching = this_thread->holding = false;
	epoll_end_turn();
	library_leave();
}
