/*
 * The worker's thread: rounds over its channels, sleeping when there is nothing to do, and requests of the supervisor.
 *
 * A request (a channel to add, figures to read) is a function run in the worker between two rounds while the caller
 * waits: the worker's data needs no locks, and what the supervisor reads is one consistent moment.
 */
#include "worker.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "pushed.h"
#include "share.h"

#define EVENTS 256
#define LAST_ROUNDS (2 * XTS_FRAME_WINDOW_MAX)
#define SLOT_WAIT_MS 1 /* a transmit slot comes back without telling anybody */
#define TIMERS_A_ROUND 256u
#define CHEAP_EVENTS 8u /* between two looks at the clock */

struct request {
	void (*run)(struct worker_state *w, void *argument);
	void *argument;
	bool done;
	struct request *next;
};

struct xts_worker {
	struct worker_state state;
	pthread_t thread;
	struct watch command_watch;
	pthread_mutex_t mutex;    /* of the requests */
	pthread_cond_t done;
	struct request *requests;
	bool stopping;
	int stop_error;
	uint64_t idle_since_ns;   /* 0: not idle */
};

static uint64_t monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- requests -------------------------------------------------------------------------------------------------------- */

void worker_request(struct xts_worker *worker, void (*run)(struct worker_state *, void *), void *argument)
{
	struct request r = { .run = run, .argument = argument };

	pthread_mutex_lock(&worker->mutex);
	r.next = worker->requests;
	worker->requests = &r;
	(void)eventfd_write(worker->state.command_fd, 1);
	while (!r.done)
		pthread_cond_wait(&worker->done, &worker->mutex);
	pthread_mutex_unlock(&worker->mutex);
}

static void serve_requests(struct xts_worker *worker)
{
	eventfd_t ignored;

	(void)eventfd_read(worker->state.command_fd, &ignored);
	pthread_mutex_lock(&worker->mutex);
	while (worker->requests) {
		struct request *r = worker->requests;

		worker->requests = r->next;
		r->run(&worker->state, r->argument);
		r->done = true;
	}
	pthread_cond_broadcast(&worker->done);
	pthread_mutex_unlock(&worker->mutex);
}

/* --- a round --------------------------------------------------------------------------------------------------------- */

/* Its process has gone: what it sent before is still taken. */
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
		if (c->fd >= 0)
			connection_note(c, event->events);
		break;
	case WATCH_LIFE:
		life_ends(&worker->state, list_entry(watch, struct channel, life_watch));
		break;
	case WATCH_COMMAND:
		serve_requests(worker);
		share_poked(&worker->state);
		worker->state.poked = true;
		break;
	case WATCH_PARKED:
		park_event(watch, &worker->state);
		break;
	case WATCH_QUEUE:
		break;
	}
}

/* True when there was an event that is work. A doorbell is none: its frames are, and every round looks for them. */
static bool poll_events(struct xts_worker *worker, int timeout_ms)
{
	struct epoll_event events[EVENTS];
	int n = epoll_wait(worker->state.epoll_fd, events, EVENTS, timeout_ms);
	bool any = false;

	for (int i = 0; i < n; i++) {
		any |= ((struct watch *)events[i].data.ptr)->kind != WATCH_QUEUE;
		handle_event(worker, &events[i]);
	}
	return any;
}

/* --- turns ----------------------------------------------------------------------------------------------------------- */

bool worker_turn_is_over(struct worker_state *w)
{
	w->now_ns = w->config.clock_ns();
	return w->now_ns >= w->turn_end_ns;
}

/* An account goes on with its turn of this round: returns when that was. */
static uint64_t turn_begins(struct worker_state *w, const struct account *a)
{
	w->turn_end_ns = w->now_ns + (a->left_ns > 0 ? (uint64_t)a->left_ns : 0);
	return w->now_ns;
}

static void turn_ends(struct worker_state *w, struct account *a, struct xts_tenant *tenant, uint64_t begun_ns)
{
	uint64_t took_ns;

	w->now_ns = w->config.clock_ns();
	took_ns = w->now_ns - begun_ns;
	account_charge(&w->schedule, a, w->now_ns, took_ns);
	if (tenant)
		tenant_take_anyway(tenant, XTS_USE_CPU_NS, took_ns);
}

/* A channel without a turn may have nothing to do, but whether is not known: the worker stays awake until it has one. */
static bool channels_receive(struct worker_state *w)
{
	struct list *node;
	bool any = false;

	for (node = w->channels.next; node != &w->channels; node = node->next) {
		struct channel *ch = list_entry(node, struct channel, member);
		uint64_t begun_ns;

		if (!ch->account.has_turn) {
			any = true;
			continue;
		}
		begun_ns = turn_begins(w, &ch->account);
		if (!channel_receive(ch))
			continue;
		turn_ends(w, &ch->account, ch->tenant, begun_ns);
		any = true;
	}
	return any;
}

/* Carries out what was noted, at least one of it, until the turn is over. */
static void carry_out(struct worker_state *w, struct list *noted, struct account *a, struct xts_tenant *tenant)
{
	uint64_t begun_ns = turn_begins(w, a);
	uint32_t cheap = 0;
	bool over = false;

	while (!list_empty(noted) && !over) {
		struct connection *c = list_entry(list_pop(noted), struct connection, noted);
		bool dear = c->pushed;

		connection_turn(c);
		if (dear || ++cheap % CHEAP_EVENTS == 0)
			over = worker_turn_is_over(w);
	}
	turn_ends(w, a, tenant, begun_ns);
}

static bool all_carry_out(struct worker_state *w)
{
	struct list *node;
	bool any = !list_empty(&w->noted);

	if (any && w->orphan_account.has_turn)
		carry_out(w, &w->noted, &w->orphan_account, NULL);
	for (node = w->channels.next; node != &w->channels; node = node->next) {
		struct channel *ch = list_entry(node, struct channel, member);

		if (!ch->account.has_turn || list_empty(&ch->noted))
			continue;
		carry_out(w, &ch->noted, &ch->account, ch->tenant);
		any = true;
	}
	return any;
}

static bool channels_send(struct worker_state *w)
{
	struct list *node = w->channels.next;
	bool any = false;

	while (node != &w->channels) {
		struct channel *ch = list_entry(node, struct channel, member);
		uint64_t begun_ns;

		node = node->next;
		if (!ch->account.has_turn)
			continue;
		begun_ns = turn_begins(w, &ch->account);
		if (channel_send(ch)) {
			turn_ends(w, &ch->account, ch->tenant, begun_ns);
			any = true;
		}
		if (ch->dying)
			channel_free(ch, false);
	}
	return any;
}

static void free_dead(struct worker_state *w)
{
	while (w->dead) {
		struct connection *c = w->dead;

		w->dead = c->next_dead;
		free(c);
	}
	if (w->poked) {
		w->poked = false;
		park_reap(w);
	}
}

/* One round; true when anything was done. */
static bool work(struct xts_worker *worker)
{
	struct worker_state *w = &worker->state;
	bool any;

	w->now_ns = w->config.clock_ns();
	w->stats.rounds++;
	schedule_round(&w->schedule, w->now_ns);
	any = channels_receive(w);
	any |= poll_events(worker, 0);
	(void)timers_run(&w->timers, w->now_ns, TIMERS_A_ROUND);
	any |= all_carry_out(w);
	any |= channels_send(w);
	free_dead(w);
	return any;
}

/* --- sleeping -------------------------------------------------------------------------------------------------------- */

/* Until a time, rounded up; -1 for never. */
static int until_ms(const struct worker_state *w, uint64_t deadline_ns)
{
	if (deadline_ns == UINT64_MAX)
		return -1;
	return deadline_ns <= w->now_ns ? 0 : (int)((deadline_ns - w->now_ns) / 1000000u) + 1;
}

/* Asks all queues for a wake-up; false when frames are there already. */
static bool arm_all(struct worker_state *w, int *timeout_ms)
{
	uint64_t timer_ns = timers_next_ns(&w->timers);
	struct list *node;
	bool quiet = true;

	*timeout_ms = until_ms(w, w->keep_deadline_ns < timer_ns ? w->keep_deadline_ns : timer_ns);
	for (node = w->channels.next; node != &w->channels; node = node->next) {
		struct channel *ch = list_entry(node, struct channel, member);

		quiet &= !xts_queue_arm(ch->queue);
		if (ch->slot_missing || ch->kick_again)
			*timeout_ms = SLOT_WAIT_MS;
		else if (ch->quiet_frames && (*timeout_ms < 0 || *timeout_ms > CHANNEL_QUIET_MS))
			*timeout_ms = CHANNEL_QUIET_MS;
	}
	return quiet;
}

static void disarm_all(struct worker_state *w)
{
	struct list *node;

	for (node = w->channels.next; node != &w->channels; node = node->next)
		xts_queue_disarm(list_entry(node, struct channel, member)->queue);
}

/* Nothing to do: spins for a while (a wake-up costs its waker 6 to 10 us), then sleeps. */
static void idle(struct xts_worker *worker)
{
	struct worker_state *w = &worker->state;
	int timeout_ms;

	if (!worker->idle_since_ns) {
		worker->idle_since_ns = w->now_ns;
		return;
	}
	if (w->now_ns - worker->idle_since_ns < (uint64_t)w->config.spin_us * 1000) {
		w->stats.spins++;
		sched_yield(); /* the TCP peer, or veth's thread, may want this very core */
		return;
	}
	if (arm_all(w, &timeout_ms)) {
		w->stats.sleeps++;
		(void)poll_events(worker, timeout_ms);
	}
	disarm_all(w);
	worker->idle_since_ns = 0;
	w->now_ns = w->config.clock_ns();
}

static void close_everything(struct worker_state *w, int error)
{
	w->turn_end_ns = UINT64_MAX;
	while (!list_empty(&w->channels)) {
		struct channel *ch = list_entry(w->channels.next, struct channel, member);

		xts_link_goodbye(&ch->link, error);
		(void)channel_send(ch);
		channel_free(ch, true);
	}
	registry_expire(w, true);
	w->poked = true;
	while (!list_empty(&w->orphans))
		connection_free(list_entry(w->orphans.next, struct connection, member), false);
	free_dead(w);
}

/* Where a core is shared, every packet for us would interrupt who sends it, and we would serve requests one by one. SCHED_BATCH
 * waits for its turn when it wakes and finds several: redis with 50 connections and its load generator on our core went
 * from 28,000 to 36,000 requests/s, at two thirds of our time per request. A core of our own knows no difference. */
static void wait_for_turn(struct worker_state *w)
{
	struct sched_param none = { 0 };
	int error = pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);

	if (error)
		log_line(&w->log, "worker: scheduled as others, not SCHED_BATCH: %s", strerror(error));
}

static void *worker_thread(void *argument)
{
	struct xts_worker *worker = argument;
	struct worker_state *w = &worker->state;

	wait_for_turn(w);
	while (!worker->stopping) {
		if (work(worker))
			worker->idle_since_ns = 0;
		else
			idle(worker);
		if (w->now_ns >= w->keep_deadline_ns)
			registry_expire(w, false);
	}
	close_everything(w, worker->stop_error);
	spill_thread_end();
	return NULL;
}

/* --- the supervisor's side ------------------------------------------------------------------------------------------- */

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
	if (!error)
		(void)pthread_setname_np(worker->thread, "xts-worker");
	return -error;
}

static int state_init(struct worker_state *w)
{
	static const _Atomic uint32_t orphans_weigh = 1;


	list_init(&w->channels);
	list_init(&w->orphans);
	list_init(&w->noted);
	list_init(&w->kept);
	schedule_init(&w->schedule);
	w->keep_deadline_ns = UINT64_MAX;
	w->now_ns = monotonic_ns();
	return account_open(&w->schedule, &w->orphan_account, &orphans_weigh);
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
	if (state_init(w)) {
		free(worker);
		return -ENOMEM;
	}
	w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	worker->state.command_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	worker->command_watch.kind = WATCH_COMMAND;
	event.data.ptr = &worker->command_watch;
	pthread_mutex_init(&worker->mutex, NULL);
	pthread_cond_init(&worker->done, NULL);
	error = w->epoll_fd < 0 || worker->state.command_fd < 0 ? -errno : 0;
	if (!error && epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, worker->state.command_fd, &event))
		error = -errno;
	if (!error)
		error = log_open(&w->log);
	if (!error)
		error = worker_copy_config(&w->config, config);
	if (!w->config.clock_ns)
		w->config.clock_ns = monotonic_ns;
	if (!error)
		error = start_thread(worker);
	if (error) {
		account_close(&w->orphan_account);
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

static void run_stop(struct worker_state *w, void *argument)
{
	struct stop *s = argument;

	(void)w;
	s->worker->stopping = true;
	s->worker->stop_error = s->error;
}

void xts_worker_stop(struct xts_worker *worker, int error)
{
	struct stop s = { .worker = worker, .error = error };

	worker_request(worker, run_stop, &s);
	pthread_join(worker->thread, NULL);
	account_close(&worker->state.orphan_account);
	close(worker->state.epoll_fd);
	close(worker->state.command_fd);
	worker_free_config(&worker->state.config);
	log_close(&worker->state.log);
	pthread_cond_destroy(&worker->done);
	pthread_mutex_destroy(&worker->mutex);
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
