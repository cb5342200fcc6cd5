/* A thread with its own epoll set and connections, and the pauses of its slow readers. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "net_api.h"
#include "stress.h"

#define WAIT_MS 10 /* the longest a pause, a hand-over or a command may have to wait */

_Atomic bool stopping, pausing;

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void adopt_handed_over(struct worker *w)
{
	int handed[sizeof(w->inbox) / sizeof(w->inbox[0])];
	uint32_t n;

	pthread_mutex_lock(&w->inbox_lock);
	n = w->inbox_used;
	memcpy(handed, w->inbox, n * sizeof(handed[0]));
	w->inbox_used = 0;
	pthread_mutex_unlock(&w->inbox_lock);
	for (uint32_t i = 0; i < n; i++)
		conn_adopt(w, handed[i]);
}

/* Wakes slow readers whose pause is over, and finds stuck connections. Returns how long to wait at most, in ms. */
static int look_after(struct worker *w)
{
	uint64_t now = now_ns(), next = now + WAIT_MS * 1000000ull;
	uint64_t stall_ns = w->options->stall_ms * 1000000ull;

	for (struct conn *c = w->conns, *following; c; c = following) {
		following = c->next;
		if (now > c->progress_ns + stall_ns)
			fail(c, 3, "no progress for %u ms; %u connections open in this thread", w->options->stall_ms,
			     w->open);
		if (!c->paused_until_ns)
			continue;
		if (c->paused_until_ns > now) {
			next = c->paused_until_ns < next ? c->paused_until_ns : next;
			continue;
		}
		c->paused_until_ns = 0;
		conn_step(c, EPOLLIN); /* frees at most c itself; a new connection goes to the list's head */
	}
	return next <= now ? 0 : (int)((next - now + 999999) / 1000000);
}

/* A quiet point: no calls on connections, but the library may do its own work. */
static void stay_paused(struct worker *w)
{
	struct epoll_event events[64];
	struct timespec rest = { .tv_nsec = 2000000 };
	uint64_t begin = now_ns();

	atomic_store(&w->paused, true);
	while (atomic_load(&pausing)) {
		net_api.set_wait(w->set, events, 64, 0);
		nanosleep(&rest, NULL);
	}
	for (struct conn *c = w->conns; c; c = c->next)
		c->progress_ns += now_ns() - begin;
	atomic_store(&w->paused, false);
}

void *worker_run(void *worker)
{
	struct epoll_event events[64];
	struct worker *w = worker;

	for (uint32_t slot = w->slot_first; slot < w->slot_end; slot++)
		conn_open(w, slot);
	for (;;) {
		int timeout_ms, n;

		if (atomic_load(&pausing))
			stay_paused(w);
		adopt_handed_over(w);
		timeout_ms = look_after(w);
		n = net_api.set_wait(w->set, events, 64, timeout_ms);
		if (n < 0 && errno != EINTR)
			fail(NULL, 1, "epoll_wait: %s", strerror(errno));
		for (int i = 0; i < n; i++)
			conn_step(events[i].data.ptr, events[i].events);
		atomic_store(&w->now_open, w->open);
	}
	return NULL;
}
