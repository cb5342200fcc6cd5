"""Whoever waits for a thread of the handshake pool without leaving its CPU, as for a lock of glibc's, waits for some
milliseconds, and not for as long as an idle thread may starve (dpu_proxy/native/ulp/handshake_pool.c)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from beds.native_program import POOL, program_of

#: All threads have one CPU. The first one is a worker that spins until a job has let it go on. Prints the longest time
#: that this has taken, in ms.
PROGRAM = r"""
#include "ulp/handshake_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>

#include "keys/key_client.h"

#define ROUNDS 10
#define JOB_NS 4000000u /* of CPU */

static atomic_bool held;

void key_in_background(void) { }
void key_end_waits(bool end) { (void)end; }

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void run(struct ulp_job *job)
{
	uint64_t until = now_ns(CLOCK_THREAD_CPUTIME_ID) + JOB_NS;

	(void)job;
	while (now_ns(CLOCK_THREAD_CPUTIME_ID) < until)
		;
	atomic_store(&held, false);
}

static void done(struct ulp_job *job) { (void)job; }

int main(void)
{
	struct ulp_job job = { .run = run, .done = done, .abandoned = done };
	struct ulp_bell bell;
	uint64_t longest = 0;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
	if (ulp_pool_hold())
		return 1;
	ulp_bell_init(&bell, eventfd(0, EFD_NONBLOCK));
	list_init(&job.node);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t began = now_ns(CLOCK_MONOTONIC), took;

		atomic_store(&held, true);
		ulp_pool_submit(&job, &bell, 0, 1);
		while (atomic_load(&held))
			;
		took = now_ns(CLOCK_MONOTONIC) - began;
		longest = took > longest ? took : longest;
		while (!ulp_pool_returned(&job))
			sched_yield();
	}
	ulp_pool_release();
	printf("%llu\n", (unsigned long long)(longest / 1000000));
	return 0;
}
"""
#: A job has 4 ms of work. A thread that stays SCHED_IDLE gets 3 of 1,027 parts of the CPU: 1.4 s.
LONGEST_MS = 700


@pytest.mark.skipif(os.geteuid() != 0, reason="threads may not leave SCHED_IDLE without privilege")
def test_a_worker_that_spins_gets_on(tmp_path: Path) -> None:
    built = program_of(tmp_path, PROGRAM, *POOL)
    done = subprocess.run([built], check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) < LONGEST_MS
