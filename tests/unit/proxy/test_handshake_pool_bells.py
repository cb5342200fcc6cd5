"""A worker that sleeps is woken once for several jobs of the handshake pool, one that is awake never, and none is left
with jobs that it does not hear of (dpu_proxy/native/ulp/handshake_pool.c)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from beds.native_program import POOL, program_of

#: All threads have one CPU, so that there is one background thread. The first job of a round keeps it until the others
#: are queued. Prints how often the bell has rung: the fewest and the most of all rounds.
PROGRAM = r"""
#include "ulp/handshake_pool.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "keys/key_client.h"

#define ROUNDS 100
#define JOBS 5

static atomic_bool held;
static unsigned done_count;

void key_in_background(void) { }
void key_end_waits(bool end) { (void)end; }

static void wait_for_others(struct ulp_job *job)
{
	(void)job;
	while (atomic_load(&held))
		sched_yield();
}

static void run(struct ulp_job *job) { (void)job; }

static void done(struct ulp_job *job)
{
	job->state = ULP_JOB_OWN;
	done_count++;
}

/* Sleeps, and serves the bell, until all jobs are done. Returns how often it was woken; 0: a job was lost. */
static unsigned serve_asleep(struct ulp_bell *bell)
{
	struct pollfd rings = { .fd = bell->event_fd, .events = POLLIN };
	unsigned rung = 0;
	eventfd_t ignored;

	for (done_count = 0; done_count < JOBS;) {
		if (ulp_bell_sleeps(bell)) {
			if (poll(&rings, 1, 10000) != 1)
				return 0;
			rung++;
			(void)eventfd_read(bell->event_fd, &ignored);
		}
		ulp_bell_wakes(bell);
		ulp_bell_serve(bell);
	}
	return rung;
}

/* Looks, and never sleeps. */
static unsigned serve_awake(struct ulp_bell *bell)
{
	eventfd_t rung;

	for (done_count = 0; done_count < JOBS; sched_yield())
		if (ulp_bell_has_jobs(bell))
			ulp_bell_serve(bell);
	return eventfd_read(bell->event_fd, &rung) ? 0 : 1;
}

/* Leaves with its jobs, of which some may be done. */
static unsigned serve_none(struct ulp_bell *bell, struct ulp_job *jobs)
{
	sched_yield();
	for (unsigned i = 0; i < JOBS; i++)
		while (!ulp_pool_returned(&jobs[i]))
			sched_yield();
	return ulp_bell_has_jobs(bell);
}

static unsigned a_round(const char *how)
{
	struct ulp_bell bell; /* it is gone after each round: nobody may have it then */
	struct ulp_job jobs[JOBS];
	int fd = eventfd(0, EFD_NONBLOCK);
	unsigned rung;

	ulp_bell_init(&bell, fd);
	if (strcmp(how, "awake") == 0)
		ulp_bell_wakes(&bell);
	atomic_store(&held, true);
	for (unsigned i = 0; i < JOBS; i++) {
		jobs[i] = (struct ulp_job){ .run = i ? run : wait_for_others, .done = done, .abandoned = done };
		list_init(&jobs[i].node);
		ulp_pool_submit(&jobs[i], &bell, 0, 1);
	}
	atomic_store(&held, false);
	if (strcmp(how, "asleep") == 0)
		rung = serve_asleep(&bell);
	else if (strcmp(how, "awake") == 0)
		rung = serve_awake(&bell);
	else
		rung = serve_none(&bell, jobs);
	memset(&bell, 0xff, sizeof bell);
	close(fd);
	return rung;
}

int main(int argc, char **argv)
{
	unsigned fewest = UINT32_MAX, most = 0;
	cpu_set_t one;

	if (argc != 2)
		return 2;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
	if (ulp_pool_hold())
		return 1;
	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned rung = a_round(argv[1]);

		fewest = rung < fewest ? rung : fewest;
		most = rung > most ? rung : most;
	}
	ulp_pool_release();
	printf("[%u, %u]\n", fewest, most);
	return 0;
}
"""
JOBS = 5


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program_of(tmp_path_factory.mktemp("bells"), PROGRAM, *POOL)


def rings(built: Path, how: str) -> tuple[int, int]:
    """The fewest and the most of a round."""
    done = subprocess.run([built, how], check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    fewest, most = json.loads(done.stdout)
    return fewest, most


def test_one_that_sleeps_is_woken_for_several(built: Path) -> None:
    fewest, most = rings(built, "asleep")
    assert 1 <= fewest < JOBS - 2
    assert most <= JOBS


def test_one_that_is_awake_is_not_woken(built: Path) -> None:
    assert rings(built, "awake") == (0, 0)


def test_one_whose_jobs_are_taken_back_is_forgotten(built: Path) -> None:
    assert rings(built, "gone") == (0, 0)
