/* The worker's thread: rounds over its channels, its start and its end. */
#include "worker/worker.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "connection/socket_kind.h"
#include "connection/spill.h"
#include "connection/unowned.h"
#include "common/probe.h"
#include "processes/share.h"
#include "pushed/pushed.h"
#include "ulp/lasting.h"
#include "worker/trim_heap.h"
#include "loop/worker_inside.h"

#define EVENTS 256
#define LAST_ROUNDS (2 * XTS_FRAME_WINDOW_MAX)
#define TIMERS_A_ROUND 256u

/* --- a round ------------------------------------------------------------------------------------------------------ */

/* The channel's process is gone. What it has sent before is still received. */
static void life_ends(struct worker_state *w, struct channel *ch)
{
	(void)epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, ch->life_fd, NULL);
	ch->last_rounds = LAST_ROUNDS;
}

static void handle_event(struct xts_worker *worker, const struct epoll_event *event)
{
	struct watch *watch = event->data.ptr;
	struct connection *c;

	switch (watch->kind) {
	case WATCH_CONNECTION:
		c = (struct connection *)watch;
		if (c->tcp.fd >= 0)
			connection_note(c, event->events);
		break;
	case WATCH_LIFE:
		life_ends(&worker->state, list_entry(watch, struct channel, life_watch));
		break;
	case WATCH_COMMAND:
		worker_doing(&worker->state, XTS_PHASE_REQUEST, 0);
		worker_serve_requests(worker);
		if (!atomic_exchange(&worker->state.left, false))
			break; /* before looking: whatever is left from now on pokes again */
		share_poked(&worker->state);
		share_follow(&worker->state);
		held_poked(&worker->state);
		keys_over_poked(&worker->state);
		orphans_poked(&worker->state);
		worker->state.poked = true;
		break;
	case WATCH_PARKED:
		park_event(watch);
		break;
	case WATCH_NAME:
		names_event(watch);
		break;
	case WATCH_QUEUE:
		break;
	}
}

/* A doorbell is no work: the work is its frames, and every round checks for these. */
bool worker_poll_events(struct xts_worker *worker, int timeout_ms)
{
	struct epoll_event events[EVENTS];
	bool any = false;
	int n;

	if (timeout_ms)
		XTS_PROBE0(worker_sleep);
	n = epoll_wait(worker->state.epoll_fd, events, EVENTS, timeout_ms);
	if (timeout_ms) { /* the worker has slept */
		XTS_PROBE0(worker_wake);
		atomic_store_explicit(&worker->state.round_ns, worker->state.config.clock_ns(), memory_order_relaxed);
	}
	for (int i = 0; i < n; i++) {
		any |= ((struct watch *)events[i].data.ptr)->kind != WATCH_QUEUE;
		handle_event(worker, &events[i]);
	}
	return any;
}

static void free_dead(struct worker_state *w)
{
	struct list *node = w->dead.next;

	while (node != &w->dead) {
		struct connection *c = list_entry(node, struct connection, member);

		node = node->next;
		free(c);
	}
	list_init(&w->dead);
	if (w->poked) {
		w->poked = false;
		park_reap(w);
	}
	unowned_reap(w);
}

/* One round; true when anything was done. */
static bool work(struct xts_worker *worker)
{
	struct worker_state *w = &worker->state;
	bool any;

	w->now_ns = w->config.clock_ns();
	atomic_store_explicit(&w->round_ns, w->now_ns, memory_order_relaxed);
	round_time_begin(&w->round_time, w->now_ns, &w->stats);
	w->stats.rounds++;
	schedule_round(&w->schedule, w->now_ns);
	any = ulp_bell_has_jobs(&w->bell);
	if (any)
		ulp_bell_serve(&w->bell);
	any |= round_receive(w);
	worker_doing(w, XTS_PHASE_ELSE, 0);
	any |= worker_poll_events(worker, 0);
	(void)timers_run(&w->timers, w->now_ns, TIMERS_A_ROUND);
	any |= round_carry_out(w);
	any |= round_send(w);
	worker_doing(w, XTS_PHASE_ELSE, 0);
	free_dead(w);
	return any;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void close_everything(struct worker_state *w, int error)
{
	w->turn_end_ns = UINT64_MAX;
	while (!list_empty(&w->channels)) {
		struct channel *ch = list_entry(w->channels.next, struct channel, member);

		xts_link_goodbye(&ch->link, error);
		(void)channel_send(ch);
		channel_free(ch, true);
	}
	registry_end_all(w);
	w->poked = true;
	for (struct list *node = w->unowned.next; node != &w->unowned; node = node->next) {
		struct unowned *u = list_entry(node, struct unowned, member);

		while (!list_empty(&u->orphans))
			connection_free(list_entry(u->orphans.next, struct connection, member), false);
		if (u->dropped.last)
			returned_drop_some(u, w); /* this frees everything: there are no turns any more */
	}
	free_dead(w);
	timer_cancel(&w->trim.timer);
}

/* Makes the thread SCHED_BATCH. On a shared core, an ordinary worker would preempt the sender of every packet, and
 * would serve requests one by one. A SCHED_BATCH thread waits for its turn after a wake-up, and then finds several:
 * redis with 50 connections and its load generator on our core went from 28,000 to 36,000 requests/s, at two thirds of
 * our time per request. On a core of its own it makes no difference. */
static void wait_for_turn(struct worker_state *w)
{
	struct sched_param none = { 0 };
	int error = pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);

	if (error)
		log_line(&w->log, "worker: it keeps the ordinary scheduling policy, SCHED_BATCH failed: %s",
			 strerror(error));
}

/* Frees the buffers of datagram sockets. */
static void free_scratch(struct worker_state *w)
{
	free(w->datagram_scratch);
	w->datagram_scratch = NULL;
}

static void *worker_thread(void *argument)
{
	struct xts_worker *worker = argument;
	struct worker_state *w = &worker->state;

	(void)pthread_setname_np(pthread_self(), "xts-worker"); /* for another thread, the call would open a file */
	wait_for_turn(w);
	while (!worker->stopping) {
		if (work(worker)) {
			worker->idle_since_ns = 0;
			w->stats.hits++;
			round_time_worked(&w->round_time);
		} else {
			worker_idle(worker);
		}
		if (w->now_ns >= w->keep_deadline_ns)
			registry_expire(w);
	}
	close_everything(w, worker->stop_error);
	spill_thread_end();
	return NULL;
}

/* --- the supervisor's side ---------------------------------------------------------------------------------------- */

static int start_thread(struct xts_worker *worker)
{
	pthread_attr_t attributes;
	cpu_set_t cpus;
	int error;

	pthread_attr_init(&attributes);
	if (worker->state.config.cpu >= 0) {
		CPU_ZERO(&cpus);
		CPU_SET((unsigned)worker->state.config.cpu, &cpus);
		pthread_attr_setaffinity_np(&attributes, sizeof cpus, &cpus);
	}
	error = pthread_create(&worker->thread, &attributes, worker_thread, worker);
	pthread_attr_destroy(&attributes);
	return -error;
}

static void add_kinds(void)
{
	stream_kind_add();
	listener_kind_add();
	datagram_kind_add();
}

void worker_kinds_add(void)
{
	static pthread_once_t kinds_added = PTHREAD_ONCE_INIT;

	(void)pthread_once(&kinds_added, add_kinds);
}

/* What is kept for later, and may be used by others. */
static void give_up(void)
{
	spill_thread_end();
	lasting_trim();
}

static void state_init(struct worker_state *w)
{
	worker_kinds_add();
	trim_init(&w->trim, give_up);
	list_init(&w->channels);
	list_init(&w->unowned);
	list_init(&w->cut);
	list_init(&w->dead);
	list_init(&w->kept);
	list_init(&w->wanted);
	schedule_init(&w->schedule);
	w->keep_deadline_ns = UINT64_MAX;
	w->now_ns = worker_monotonic_ns();
}

int xts_worker_start(struct xts_worker **out, const struct xts_worker_config *config)
{
	struct xts_worker *worker = calloc(1, sizeof *worker);
	struct epoll_event event = { .events = EPOLLIN };
	struct worker_state *w;
	int error;

	if (!worker)
		return -ENOMEM;
	w = &worker->state;
	state_init(w);
	w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	worker->state.command_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ulp_bell_init(&w->bell, w->command_fd);
	ulp_bell_wakes(&w->bell);
	worker->command_watch.kind = WATCH_COMMAND;
	event.data.ptr = &worker->command_watch;
	worker_requests_open(worker);
	error = w->epoll_fd < 0 || worker->state.command_fd < 0 ? -errno : 0;
	if (!error && epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, worker->state.command_fd, &event))
		error = -errno;
	if (!error)
		error = log_open(&w->log);
	if (!error)
		error = worker_copy_config(&w->config, config);
	if (!w->config.clock_ns)
		w->config.clock_ns = worker_monotonic_ns;
	if (!error)
		error = ulp_pool_hold();
	if (!error) {
		error = start_thread(worker);
		if (error)
			ulp_pool_release();
	}
	if (error) {
		close(w->epoll_fd);
		close(worker->state.command_fd);
		worker_free_config(&w->config);
		free(worker);
		return error;
	}
	*out = worker;
	return 0;
}

struct stop {
	struct xts_worker *worker;
	int error;
};

static bool run_stop(struct worker_state *w, void *argument)
{
	struct stop *s = argument;

	(void)w;
	s->worker->stopping = true;
	s->worker->stop_error = s->error;
	return false;
}

void xts_worker_stop(struct xts_worker *worker, int error)
{
	struct stop s = { .worker = worker, .error = error };

	worker_request(worker, run_stop, &s);
	pthread_join(worker->thread, NULL);
	ulp_pool_release();
	close(worker->state.epoll_fd);
	close(worker->state.command_fd);
	worker_free_config(&worker->state.config);
	trust_free(&worker->state.trust);
	log_close(&worker->state.log);
	closed_free(&worker->state.closed);
	free_scratch(&worker->state);
	worker_requests_close(worker);
	free(worker);
}

int xts_worker_log_fd(struct xts_worker *worker)
{
	return worker->state.log.event_fd;
}

int xts_worker_log_next(struct xts_worker *worker, char *line, uint32_t bytes)
{
	return log_next(&worker->state.log, line, bytes);
}
