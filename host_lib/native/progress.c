/*
 * The progress thread: keeps mirrors true and the outbox moving while the application sleeps elsewhere. It is started
 * when first needed, then sleeps on the queue while no application thread does, and on its bell while it is not needed
 * or one leads. Application threads do not wait for it; when they leave the library they arm the queue's doorbell on its
 * behalf (library_leave).
 */
#include "library.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static bool started, standing_by, sleeping_on_queue;
static struct thread *self;

bool progress_sleeps_on_queue(void)
{
	return sleeping_on_queue;
}

void progress_forget(void)
{
	started = standing_by = sleeping_on_queue = false;
	self = NULL;
}

static bool needed(void)
{
	struct channel *c = xts.channel;

	return c && !xts.leader && (xts.mirrors || channel_busy(c));
}

static void one_turn(void)
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
		sleep_on_channel(c, self, NULL, FOREVER);
		sleeping_on_queue = false;
	}
	mirrors_update();
	channel_reap();
}

static void *progress(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&xts.lock);
	self = thread_self();
	while (self) {
		if (needed()) {
			one_turn();
			continue;
		}
		mirrors_update();
		channel_reap();
		standing_by = true;
		sleep_on_bell(self, NULL, FOREVER);
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
	if (!started)
		start();
	else if (standing_by && needed()) {
		standing_by = false;
		thread_ring(self);
	}
}
