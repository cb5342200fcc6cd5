"""The pool of handshake threads under the thread sanitizer: jobs that are handed back, moved, dropped, given
away and helped by several threads at once (dpu_proxy/native/ulp/handshake_pool.c)."""

from __future__ import annotations

from pathlib import Path

from beds.native_program import POOL, said_under

#: Each worker has a bell and jobs of its own. A job counts in plain memory: only what the pool promises orders it.
PROGRAM = r"""
#include "ulp/handshake_pool.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "keys/key_client.h"

#define WORKERS 3
#define JOBS 16
#define ROUNDS 3000

struct work {
	struct ulp_job job;
	struct worker *worker;
	unsigned runs, seen;
	bool away;
};

struct worker {
	struct ulp_bell bell, other;
	unsigned done, dropped;
	struct work *works[JOBS];
};

static atomic_uint abandoned_count, left_count;

void key_in_background(void) { }
void key_end_waits(bool end) { (void)end; }

static void run(struct ulp_job *job)
{
	struct work *w = (struct work *)job;

	for (unsigned i = 0; i < 200; i++)
		w->runs++;
}

static void done(struct ulp_job *job)
{
	struct work *w = (struct work *)job;

	w->seen += w->runs;
	w->away = false;
	w->worker->done++;
}

static void abandoned(struct ulp_job *job)
{
	free(job);
	atomic_fetch_add(&abandoned_count, 1);
}

static struct work *work_new(struct worker *worker)
{
	struct work *w = calloc(1, sizeof *w);

	w->job = (struct ulp_job){ .run = run, .done = done, .abandoned = abandoned };
	w->worker = worker;
	list_init(&w->job.node);
	return w;
}

static void step(struct worker *worker, unsigned *dice)
{
	unsigned i = (unsigned)rand_r(dice) % JOBS, what = (unsigned)rand_r(dice) % 16;
	struct work *w = worker->works[i];

	if (!w->away) {
		w->away = true;
		ulp_pool_submit(&w->job, &worker->bell, i, 1 + i % 3);
	} else if (what == 0) {
		if (ulp_pool_drop(&w->job))
			free(w);
		else
			atomic_fetch_add(&left_count, 1);
		worker->works[i] = work_new(worker);
		worker->dropped++;
	} else if (what < 3) {
		ulp_pool_move(&w->job, what == 1 ? &worker->other : NULL);
	} else if (what < 6 && ulp_pool_returned(&w->job)) {
		done(&w->job);
	} else if (what == 6) {
		ulp_pool_help();
	} else if (what == 7) {
		w = work_new(worker);
		if (!ulp_pool_give(&w->job, i, 1))
			abort();
		atomic_fetch_add(&left_count, 1);
	}
	if (what == 8) {
		if (ulp_bell_sleeps(&worker->bell))
			poll(NULL, 0, 0);
		ulp_bell_wakes(&worker->bell);
	}
	if (ulp_bell_has_jobs(&worker->bell))
		ulp_bell_serve(&worker->bell);
	if (ulp_bell_has_jobs(&worker->other))
		ulp_bell_serve(&worker->other);
}

static void *work(void *argument)
{
	struct worker worker = { .done = 0 };
	unsigned dice = (unsigned)(uintptr_t)argument;

	ulp_bell_init(&worker.bell, eventfd(0, EFD_NONBLOCK));
	ulp_bell_init(&worker.other, eventfd(0, EFD_NONBLOCK));
	for (unsigned i = 0; i < JOBS; i++)
		worker.works[i] = work_new(&worker);
	for (unsigned i = 0; i < ROUNDS; i++) {
		step(&worker, &dice);
		if (i % 16 == 0)
			poll(NULL, 0, 1);
	}
	for (unsigned i = 0; i < JOBS; i++) {
		if (!worker.works[i]->away || ulp_pool_drop(&worker.works[i]->job))
			free(worker.works[i]);
		else
			atomic_fetch_add(&left_count, 1);
	}
	return worker.done && worker.dropped ? NULL : argument;
}

int main(void)
{
	pthread_t threads[WORKERS];
	int failed = ulp_pool_hold();

	for (uintptr_t i = 0; i < WORKERS; i++)
		pthread_create(&threads[i], NULL, work, (void *)(i + 1));
	for (unsigned i = 0; i < WORKERS; i++) {
		void *result;

		pthread_join(threads[i], &result);
		failed |= result != NULL;
	}
	ulp_pool_release();
	return failed || atomic_load(&abandoned_count) != atomic_load(&left_count);
}
"""


def test_no_data_race(tmp_path: Path) -> None:
    status, _, said = said_under("thread", tmp_path, PROGRAM, *POOL)
    assert status == 0, said[-3000:]
