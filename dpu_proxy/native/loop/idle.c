/*
 * A worker that has nothing to do: it polls for a while, then sleeps.
 *
 * How long it polls, spin_us says; polls_always: as long as it has sockets. While it sleeps, a frame of any queue wakes
 * it, or an event of a socket. Between two wake-ups there may have to be some time (wakeup_gap_us).
 */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "channel/channel.h"
#include "loop/worker_inside.h"
#include "worker/trim_heap.h"

#define SLOT_WAIT_MS 1 /* no event reports that a transmit slot has come back */

/* Milliseconds until a deadline, rounded up; -1: never. */
static int until_ms(const struct worker_state *w, uint64_t deadline_ns)
{
	if (deadline_ns == UINT64_MAX)
		return -1;
	return deadline_ns <= w->now_ns ? 0 : (int)((deadline_ns - w->now_ns) / 1000000u) + 1;
}

bool worker_arm_all(struct worker_state *w, int *timeout_ms)
{
	uint64_t timer_ns = timers_next_ns(&w->timers);
	struct list *node;
	bool quiet = true;

	*timeout_ms = until_ms(w, w->keep_deadline_ns < timer_ns ? w->keep_deadline_ns : timer_ns);
	for (node = w->channels.next; node != &w->channels; node = node->next) {
		struct channel *ch = list_entry(node, struct channel, member);

		if (ch->continuation.is_idle) { /* messages in its queue have to wait, too */
			if (*timeout_ms < 0 || *timeout_ms > (int)ULP_POOL_HELP_MS)
				*timeout_ms = ULP_POOL_HELP_MS;
			continue;
		}
		quiet &= !xts_queue_arm(ch->queue);
		if (ch->slot_missing || ch->kick_again)
			*timeout_ms = SLOT_WAIT_MS;
		else if (ch->quiet_frames && (*timeout_ms < 0 || *timeout_ms > CHANNEL_QUIET_MS))
			*timeout_ms = CHANNEL_QUIET_MS;
	}
	return quiet;
}

void worker_disarm_all(struct worker_state *w)
{
	struct list *node;

	for (node = w->channels.next; node != &w->channels; node = node->next)
		xts_queue_disarm(list_entry(node, struct channel, member)->queue);
}

/* Gives up the core for a moment: the TCP peer, or veth's thread, may need it, but the handshake threads should not get
 * it. A thread that yields to a handshake thread waits until that one's job is done, or for the next tick, although it
 * is SCHED_IDLE; only a wake-up preempts it. In a flood of unfinished handshakes the median latency of another tenant's
 * requests is 75 us, instead of 160 us with sched_yield(). */
static void give_way(struct worker_state *w)
{
	if (ulp_pool_is_working())
		return;
	w->stats.yields++;
	sched_yield();
}

/* Does it go on polling, instead of sleeping? For a while, since a wake-up costs its waker 6 to 10 us; or as long as it
 * has sockets, if it is to poll always. Not while a step of a handshake waits for a CPU: its thread is SCHED_IDLE and
 * would get none from a worker that spins. */
static bool polls_on(struct xts_worker *worker)
{
	struct worker_state *w = &worker->state;

	if (ulp_pool_needs_cpus())
		return false;
	if (w->now_ns - worker->idle_since_ns < (uint64_t)w->config.spin_us * 1000)
		return true;
	if (!w->config.polls_always || !(w->stats.connections || w->stats.listeners || w->stats.datagram_sockets))
		return false;
	trim_if_due(&w->trim, w->now_ns);
	return true;
}

/*
 * Something has woken it less than wakeup_gap_us ago: sleeps for the rest of that time, whatever comes, and is not
 * asked for wake-ups, which saves their cost at the other side, too. What has come meanwhile is then handled together.
 * Who asks the worker something waits, too: 10 ms at most, as the configuration says. Its sandbox allows a worker no
 * call that sleeps for microseconds, except that of a condition.
 */
static bool gap_waits(struct xts_worker *worker)
{
	struct worker_state *w = &worker->state;
	uint64_t ends_ns;
	pthread_mutex_t nobodys = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t never;
	pthread_condattr_t attributes;
	struct timespec until;

	if (!w->config.wakeup_gap_us)
		return false;
	if (worker->gap_ended_ns && w->stats.hits != worker->gap_hits)
		worker->woken_ns = worker->gap_ended_ns;
	worker->gap_ended_ns = 0;
	ends_ns = worker->woken_ns + (uint64_t)w->config.wakeup_gap_us * 1000;
	if (w->now_ns >= ends_ns)
		return false;
	if (timers_next_ns(&w->timers) < ends_ns)
		ends_ns = timers_next_ns(&w->timers);
	if (ends_ns <= w->now_ns)
		return false;
	ends_ns = worker_monotonic_ns() + (ends_ns - w->now_ns);
	until.tv_sec = (time_t)(ends_ns / 1000000000u);
	until.tv_nsec = (long)(ends_ns % 1000000000u);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&never, &attributes);
	w->stats.gaps++;
	atomic_store_explicit(&w->round_ns, 0, memory_order_relaxed);
	pthread_mutex_lock(&nobodys);
	while (pthread_cond_timedwait(&never, &nobodys, &until) == 0)
		;
	pthread_mutex_unlock(&nobodys);
	pthread_cond_destroy(&never);
	pthread_condattr_destroy(&attributes);
	w->now_ns = w->config.clock_ns();
	atomic_store_explicit(&w->round_ns, w->now_ns, memory_order_relaxed);
	w->woken_ns = worker->gap_ended_ns = w->now_ns;
	worker->gap_hits = w->stats.hits;
	worker->idle_since_ns = 0;
	return true;
}

void worker_idle(struct xts_worker *worker)
{
	struct worker_state *w = &worker->state;
	bool slept;
	int timeout_ms;

	w->round_time.polls_from_ns = w->now_ns;
	if (!worker->idle_since_ns) {
		worker->idle_since_ns = w->now_ns;
		return;
	}
	if (polls_on(worker)) {
		w->stats.spins++;
		give_way(w);
		return;
	}
	w->round_time.polls_from_ns = 0;
	trim_if_due(&w->trim, w->now_ns);
	if (gap_waits(worker))
		return;
	slept = worker_arm_all(w, &timeout_ms) && ulp_bell_sleeps(&w->bell);
	if (slept) {
		w->stats.sleeps++;
		atomic_store_explicit(&w->round_ns, 0, memory_order_relaxed);
		(void)worker_poll_events(worker, timeout_ms);
	}
	ulp_bell_wakes(&w->bell);
	worker_disarm_all(w);
	worker->idle_since_ns = 0;
	w->now_ns = w->config.clock_ns();
	w->woken_ns = w->now_ns;
	if (slept)
		worker->woken_ns = w->now_ns;
}
