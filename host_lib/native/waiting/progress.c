/*
 * The progress thread: keeps mirrors true and the outbox moving while the application sleeps elsewhere, and gives
 * connections back that a busy application does not accept (shared_listener.c), and sends what an application holds back (XTS_EPOLL_HOLD)
 * and does not come back for: a clock wakes it for that, set with the first frame and never taken back. It is started when
 * first needed, then sleeps on the queue while no application thread does, and on its bell while it is not needed
 * or one leads. Application threads do not wait for it; when they leave the library they arm the queue's doorbell on its
 * behalf (library_leave).
 */
#include "core/library.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static bool started, standing_by, sleeping_on_queue;
static uint64_t looks_again_ns; /* standing by: when it looks again by itself */
static struct thread *self;
static int clock_fd = -1;
static bool clock_set;

bool progress_sleeps_on_queue(void)
{
	return sleeping_on_queue;
}

void progress_wake(void)
{
	if (!sleeping_on_queue || !self->sleeping)
		return;
	self->sleeping = false;
	thread_ring(self);
}

void progress_forget(void)
{
	if (clock_fd >= 0)
		xts_own_close(clock_fd);
	clock_fd = -1;
	started = standing_by = sleeping_on_queue = clock_set = false;
	self = NULL;
}

static bool needed(void)
{
	struct channel *c = xts.channel;

	return c && !xts.leader && (xts.mirrors || channel_busy(c) || xts.moving);
}

/* Looks after what is offered to this process. *deadline_ns: when to do so again. */
static bool share(uint64_t *deadline_ns)
{
	*deadline_ns = FOREVER;
	if (!xts.shared || !xts.channel)
		return false;
	share_tick(now_ns());
	return share_is_away(now_ns(), deadline_ns) && xts.channel && !xts.leader;
}

/* Has it struck? Then what is held back leaves with the next flush. */
static void clock_look(void)
{
	uint64_t times;

	if (clock_set && read(clock_fd, &times, sizeof times) > 0)
		clock_set = false;
}

static void one_turn(struct beside *beside, uint64_t deadline_ns)
{
	struct channel *c = xts.channel;

	xts_link_watch(&c->link, true, now_ns());
	channel_flush(true);
	mirrors_update();
	if (xts.channel != c)
		return;
	if (xts_queue_arm(c->queue)) {
		channel_pump();
	} else {
		sleeping_on_queue = true;
		sleep_on_channel(c, self, beside, deadline_ns);
		sleeping_on_queue = false;
		/* A leader that has come meanwhile sleeps on a doorbell that this thread, called by the clock, has disarmed. */
		while (xts.channel == c && xts.leader && xts_queue_arm(c->queue))
			channel_pump();
	}
	mirrors_update();
	channel_reap();
}

/* Before standing by: somebody may sleep on a polling context's descriptor, and the doorbell that its last call left
 * armed was disarmed by our turn. False: something has come meanwhile. */
static bool leave_armed(void)
{
	struct channel *c = xts.channel;

	if (!c || xts.leader || !xts.idle_contexts)
		return true;
	channel_flush(true);
	if (xts.channel != c)
		return false;
	if (xts_queue_arm(c->queue) == 0) {
		c->armed = true;
		return true;
	}
	channel_pump();
	return false;
}

static void *progress(void *unused)
{
	struct pollfd fds[SLEEP_FDS + 1] = {[SLEEP_FDS] = {.fd = clock_fd, .events = POLLIN}};
	struct beside beside = {.fds = fds, .count = 1};
	uint64_t deadline_ns;
	bool away;

	(void)unused;
	pthread_mutex_lock(&xts.lock);
	self = thread_self();
	while (self) {
		clock_look();
		away = share(&deadline_ns);
		if (away || needed()) {
			one_turn(&beside, deadline_ns);
			continue;
		}
		channel_flush(true);
		mirrors_update();
		channel_reap();
		if (!leave_armed())
			continue;
		standing_by = true;
		looks_again_ns = deadline_ns;
		sleep_on_bell(self, &beside, deadline_ns);
		standing_by = false;
	}
	started = false; /* no descriptor for a bell: the next need tries again */
	pthread_mutex_unlock(&xts.lock);
	return NULL;
}

static void start(void)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;

	if (pthread_attr_init(&attributes))
		return;
	if (clock_fd < 0)
		clock_fd = xts_own(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 128 * 1024);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	started = pthread_create(&thread, &attributes, progress, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
}

void progress_need(void)
{
	uint64_t deadline_ns = FOREVER;

	if (!started)
		start();
	else if (standing_by && (needed() || (xts.shared && xts.channel &&
					      (share_is_away(now_ns(), &deadline_ns) || deadline_ns < looks_again_ns)))) {
		standing_by = false;
		thread_ring(self);
	}
}

bool progress_will_flush(void)
{
	static const struct itimerspec soon = {.it_value.tv_nsec = HOLD_US * 1000};

	if (clock_set)
		return true;
	if (!started)
		start();
	clock_set = started && clock_fd >= 0 && timerfd_settime(clock_fd, 0, &soon, NULL) == 0;
	return clock_set;
}
