/*
 * The progress thread of a stack. While the application sleeps elsewhere, it keeps mirrors true and sends what is in
 * the outbox. It gives back connections that a busy application does not accept (listener_offers.c). It also sends
 * frames that an application holds back (XTS_EPOLL_HOLD) and does not flush in time: a timer, set with the first such
 * frame and never cancelled, wakes it for that. The thread is started when first needed. Then it sleeps on the queue
 * while no application thread does, and on its bell while it is not needed or an application thread leads. Application
 * threads do not wait for it; when they leave the library they arm the queue's doorbell on its behalf (stack_leave).
 *
 * Its descriptors are made when the stack attaches. If they were made when the thread is started, which is at no time
 * that the program knows, they might take the last descriptor from a program that has closed one to accept with it.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "core/caller.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/process.h"
#include "core/stack.h"
#include "link/link.h"
#include "common/own_descriptors.h"
#include "processes/inherit.h"
#include "processes/key_renewal.h"
#include "processes/take_over.h"
#include "queues/queue.h"
#include "waiting/mirror.h"
#include "waiting/progress_thread.h"
#include "core/wait.h"

void progress_wake(struct stack *st)
{
	struct progress *p = &st->progress;

	if (!p->sleeping_on_queue || !p->self->sleeping)
		return;
	p->self->sleeping = false;
	thread_ring(st, p->self);
}

void progress_reserve(struct stack *st)
{
	struct progress *p = &st->progress;

	if (p->bell < 0 && !p->started)
		p->bell = bell_make();
	if (p->clock_fd < 0 && !p->started)
		p->clock_fd = xts_own(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
}

void progress_forget(struct stack *st)
{
	if (st->progress.bell >= 0)
		xts_own_close(st->progress.bell);
	if (st->progress.clock_fd >= 0)
		xts_own_close(st->progress.clock_fd);
	st->progress = (struct progress){ .bell = -1, .clock_fd = -1 };
}

/* The record of the progress thread, which calls this. NULL: no memory, or no bell available. */
static struct thread *begin(struct stack *st)
{
	struct progress *p = &st->progress;
	struct thread *t = thread_record();

	if (t && t->bell < 0) {
		t->bell = p->bell;
		p->bell = -1;
	}
	return t && bell_get(st, t) ? t : NULL;
}

static bool needed(struct stack *st)
{
	struct channel *c = st->channel;

	return c && !st->leader && (st->outside || channel_busy(c) || st->moving || st->commons || st->abandoned);
}

/* Looks after the connections offered to this process. *deadline_ns: when to do so again. */
static bool share(struct stack *st, uint64_t *deadline_ns)
{
	bool away;

	*deadline_ns = FOREVER;
	if (!st->shared || !st->channel)
		return false;
	share_tick(st, now_ns());
	away = share_is_away(st, now_ns(), deadline_ns) && st->channel && !st->leader;
	if (st->channel)
		key_tick(st, now_ns(), deadline_ns);
	return away;
}

/* If the timer has expired, the frames held back leave with the next flush. */
static void clock_look(struct progress *p)
{
	uint64_t times;

	if (p->clock_set && read(p->clock_fd, &times, sizeof times) > 0)
		p->clock_set = false;
}

static void one_turn(struct stack *st, struct watched_fds *watched, uint64_t deadline_ns)
{
	struct progress *p = &st->progress;
	struct channel *c = st->channel;
	bool gap;
	int r;

	xts_link_watch(&c->link, true, now_ns());
	channel_flush(st, true);
	mirrors_update(st);
	if (st->channel != c)
		return;
	p->sleeping_on_queue = true;
	gap = wait_for_gap(c, p->self, watched, deadline_ns, &r);
	p->sleeping_on_queue = false;
	if (!gap && xts_queue_arm(c->queue)) {
		channel_pump(st);
	} else if (!gap) {
		p->sleeping_on_queue = true;
		sleep_on_channel(c, p->self, watched, deadline_ns);
		p->sleeping_on_queue = false;
		/* A leader may have come meanwhile. It sleeps on the doorbell, which this thread disarmed when the
		 * timer woke it. */
		while (st->channel == c && st->leader && xts_queue_arm(c->queue))
			channel_pump(st);
	}
	mirrors_update(st);
	if (st->abandoned)
		stack_end_if_empty(st);
	channel_reap(st);
}

/* Called before this thread stands by: a program may sleep on a polling context's descriptor, and this turn has
 * disarmed the doorbell that the program's last call left armed. False: a frame has come meanwhile. */
static bool leave_armed(struct stack *st)
{
	struct channel *c = st->channel;

	if (!c || st->leader || !st->idle_contexts)
		return true;
	channel_flush(st, true);
	if (st->channel != c)
		return false;
	if (xts_queue_arm(c->queue) == 0) {
		c->armed = true;
		return true;
	}
	channel_pump(st);
	return false;
}

/* Sleeps until the thread is needed. A program that sleeps on a polling context's descriptor notices what comes on the
 * queue, and not that the channel ends: so this thread watches the attach connection, and pings where that does not tell. */
static void stand_by(struct stack *st, struct watched_fds *watched, uint64_t deadline_ns)
{
	struct pollfd *connection = &watched->fds[SLEEP_FDS + 1];
	struct progress *p = &st->progress;
	struct channel *c = st->channel;

	if (c && st->idle_contexts && !st->leader && !(c->queue->traits & XTS_QUEUE_DEATH_SHOWS)) {
		xts_link_watch(&c->link, true, now_ns());
		channel_tick(st, now_ns());
		channel_flush(st, true);
		if (st->channel == c && channel_deadline_ns(c) < deadline_ns)
			deadline_ns = channel_deadline_ns(c);
	}
	if (st->channel != c)
		return;
	connection->fd = c ? c->attachment.connection : -1;
	connection->revents = 0;
	watched->count = 2;
	p->standing_by = true;
	p->looks_again_ns = deadline_ns;
	sleep_on_bell(st, p->self, watched, deadline_ns);
	p->standing_by = false;
	watched->count = 1;
	if (c && st->channel == c && connection->revents)
		channel_connection_event(c);
	connection->fd = -1;
}

/* The bell is for the next one. */
static void end(struct progress *p)
{
	if (p->self && p->self->bell >= 0 && !p->self->shares_bell) {
		p->bell = p->self->bell;
		p->self->bell = -1;
	}
	p->self = NULL;
	p->started = false;
}

static void *progress(void *arg)
{
	struct stack *st = arg;
	struct progress *p = &st->progress;
	struct pollfd fds[SLEEP_FDS + 2] = { [SLEEP_FDS] = { .fd = p->clock_fd, .events = POLLIN },
					     [SLEEP_FDS + 1] = { .fd = -1, .events = POLLIN } };
	struct watched_fds watched = { .fds = fds, .count = 1 };
	uint64_t deadline_ns;
	bool away;

	pthread_mutex_lock(&st->lock);
	p->tid = (pid_t)syscall(SYS_gettid);
	p->self = p->paused ? NULL : begin(st);
	while (p->self && !p->paused) {
		clock_look(p);
		away = share(st, &deadline_ns);
		common_tick(st, &deadline_ns);
		again_tick(st, &deadline_ns);
		if (away || needed(st)) {
			one_turn(st, &watched, deadline_ns);
			continue;
		}
		channel_flush(st, true);
		mirrors_update(st);
		channel_reap(st);
		if (leave_armed(st))
			stand_by(st, &watched, deadline_ns);
	}
	end(p); /* there is no descriptor for a bell, so the next call tries again; or it is paused */
	pthread_mutex_unlock(&st->lock);
	return NULL;
}

/* Not in a child that shares this memory: the thread would be that process's, and keep it from ending. */
static void start(struct stack *st)
{
	struct progress *p = &st->progress;
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;

	if (p->paused || getpid() != xts_caller_pid || pthread_attr_init(&attributes))
		return;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 128 * 1024);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	p->started = pthread_create(&thread, &attributes, progress, st) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
}

void progress_need(struct stack *st)
{
	struct progress *p = &st->progress;
	uint64_t deadline_ns = FOREVER;

	if (!p->started)
		start(st);
	else if (p->standing_by && (needed(st) || again_is_due(st, p->looks_again_ns) ||
				    (st->shared && st->channel &&
				     (share_is_away(st, now_ns(), &deadline_ns) || deadline_ns < p->looks_again_ns)))) {
		p->standing_by = false;
		thread_ring(st, p->self);
	}
}

void progress_look(struct stack *st)
{
	struct progress *p = &st->progress;

	if (!p->standing_by)
		return;
	p->standing_by = false;
	thread_ring(st, p->self);
}

void progress_pause(struct stack *st)
{
	struct progress *p = &st->progress;

	p->paused++;
	if (p->self)
		thread_ring(st, p->self);
}

void progress_resume(struct stack *st)
{
	if (st->progress.paused) /* 0 in a stack that was made meanwhile */
		st->progress.paused--;
	if (needed(st) || st->shared)
		progress_need(st);
}

bool progress_will_flush(struct stack *st)
{
	static const struct itimerspec soon = { .it_value.tv_nsec = HOLD_US * 1000 };
	struct progress *p = &st->progress;

	if (p->clock_set)
		return true;
	if (!p->started)
		start(st);
	p->clock_set = p->started && p->clock_fd >= 0 && timerfd_settime(p->clock_fd, 0, &soon, NULL) == 0;
	return p->clock_set;
}
