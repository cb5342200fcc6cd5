/*
 * Runs functions of the supervisor in a worker's thread.
 *
 * A request (a channel to add, figures to read) is a function that the worker runs between two rounds while the caller
 * waits, so the worker's data needs no locks. A request that takes long when there are many objects (a listing,
 * draining) does a piece in each round, so that channels do not wait for all of it: its function returns true, and is
 * called again in the next round. What is read in one piece is consistent. If the answer is only for display, the
 * caller does not wait for ever. A worker that hangs is reported from what can be read without its help
 * (xts_worker_pulse()).
 */
#include <errno.h>
#include <sys/eventfd.h>
#include <time.h>

#include "loop/worker_inside.h"

#define PIECE_NS 50000u /* time for a request in one round */

void worker_requests_open(struct xts_worker *worker)
{
	pthread_condattr_t attributes;

	pthread_mutex_init(&worker->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* nobody sets this clock */
	pthread_cond_init(&worker->done, &attributes);
	pthread_condattr_destroy(&attributes);
}

void worker_requests_close(struct xts_worker *worker)
{
	pthread_cond_destroy(&worker->done);
	pthread_mutex_destroy(&worker->mutex);
}

static void take_back(struct xts_worker *worker, const struct request *r)
{
	struct request **at = &worker->requests;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
}

/* Runs a request and waits for it until a time; NULL: for ever. */
static int ask(struct xts_worker *worker, struct request *r, const struct timespec *until)
{
	int error = 0;

	pthread_mutex_lock(&worker->mutex);
	r->next = worker->requests;
	worker->requests = r;
	(void)eventfd_write(worker->state.command_fd, 1);
	while (!r->done && !error)
		error = until ? pthread_cond_timedwait(&worker->done, &worker->mutex, until) :
				pthread_cond_wait(&worker->done, &worker->mutex);
	if (!r->done)
		take_back(worker, r); /* no piece of it is running now, since that also takes the mutex */
	error = r->done ? 0 : -error;
	pthread_mutex_unlock(&worker->mutex);
	return error;
}

void worker_request(struct xts_worker *worker, bool (*run)(struct worker_state *, void *), void *argument)
{
	struct request r = { .run = run, .argument = argument };

	(void)ask(worker, &r, NULL);
}

int worker_ask(struct xts_worker *worker, bool (*run)(struct worker_state *, void *), void *argument)
{
	struct request r = { .run = run, .argument = argument };
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += XTS_ANSWER_MS / 1000;
	return ask(worker, &r, &until);
}

void worker_serve_requests(struct xts_worker *worker)
{
	struct worker_state *w = &worker->state;
	eventfd_t ignored;

	(void)eventfd_read(worker->state.command_fd, &ignored);
	pthread_mutex_lock(&worker->mutex);
	while (worker->requests) {
		struct request *r = worker->requests;

		w->now_ns = w->config.clock_ns();
		w->turn_end_ns = w->now_ns + PIECE_NS;
		if (r->run(w, r->argument)) {
			(void)eventfd_write(w->command_fd, 1); /* for the next piece, in the next round */
			break;
		}
		worker->requests = r->next;
		r->done = true;
	}
	pthread_cond_broadcast(&worker->done);
	pthread_mutex_unlock(&worker->mutex);
}

void xts_worker_pulse(struct xts_worker *worker, struct xts_worker_pulse *out)
{
	uint64_t round_ns = atomic_load_explicit(&worker->state.round_ns, memory_order_relaxed);
	uint64_t at = atomic_load_explicit(&worker->state.doing, memory_order_relaxed), now_ns = worker_monotonic_ns();

	*out = (struct xts_worker_pulse){
		.busy_ns = round_ns && round_ns < now_ns ? now_ns - round_ns : 0,
		.phase = round_ns ? (uint32_t)(at >> 32) : XTS_PHASE_ASLEEP,
		.queue_id = (uint32_t)at,
	};
}
