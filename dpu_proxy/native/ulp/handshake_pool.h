/*
 * Threads for what computes for longer than a worker may: the steps of handshakes (tls_handshake.c). A job belongs to
 * who made it, and to the pool from ulp_pool_submit() until its bell hands it back; whatever it works on is left alone
 * meanwhile.
 *
 * A worker's round is some 100 us, and one signature by an RSA key of 2048 bits takes 700 to 1500, a whole step of a
 * handshake 150 to 500 more. OpenSSL's asynchronous jobs (ASYNC_start_job) could take the signature alone elsewhere:
 * the rest, which is most of it with elliptic curves, would stay. Slices (HAProxy: one heavy task a round) are as
 * long as one step.
 *
 * Threads. As many as the process has CPUs, at most eight, SCHED_IDLE, and so are those of the process with the keys
 * that work for them: where a core is shared the worker runs as soon as it wakes, which it does not with a nice value
 * (a worker is SCHED_BATCH, and those interrupt idle ones only). With ordinary threads that sign with RSA on the
 * worker's core the median of others' requests was 6.7 times what it is without. A core that is never idle starves such
 * threads, and nobody without privilege can make them ordinary ones again. So there is one more, which always is: when
 * nothing has been done for HELP_MS although there is work, it works for RESERVE_MS, and sleeps again. That is a fifth
 * of a core that others keep busy; until all is done would be for ever in a flood.
 *
 * Where RLIMIT_NICE (the unit's LimitNICE, or sandbox.py) allows a thread to leave SCHED_IDLE, it is there while it
 * runs a job only, and SCHED_BATCH at rest: a process ends when its last thread has run once more. With idle threads
 * and two busy processes on the core, a killed one was there for up to 1.6 s, before its hosts learned of it; 14 ms
 * this way.
 *
 * Fairness. Each account (a tenant) has a queue. Next is the one that has had the least time for its weight, so a
 * flood of one tenant's costs another the wait for one job. A queue is bounded: beyond it the oldest job is handed
 * back undone, for its peer is the most likely to have given up.
 */
#ifndef XTS_ULP_HANDSHAKE_POOL_H
#define XTS_ULP_HANDSHAKE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "list.h"

/* Where jobs are handed back: one thread's, which sleeps on event_fd. */
struct ulp_bell {
	struct list jobs; /* under the pool's lock */
	int event_fd;     /* an eventfd, not the bell's own */
	atomic_bool rung;
	bool made;
};

enum ulp_job_state { ULP_JOB_OWN, ULP_JOB_QUEUED, ULP_JOB_RUNNING, ULP_JOB_DONE };

struct ulp_job {
	void (*run)(struct ulp_job *job);       /* on a thread of the pool */
	void (*done)(struct ulp_job *job);      /* on the bell's thread, and it is the owner's again */
	void (*abandoned)(struct ulp_job *job); /* its owner has gone: frees it. On any thread */
	uint64_t spent_ns;                      /* by run() */
	bool undone;                            /* handed back without a run: too many are waiting */
	/* The pool's: */
	enum ulp_job_state state;
	bool orphan;
	struct ulp_bell *bell;
	struct list node;
	uint32_t account, weight;
};

/* What a push waits for. Its owner sets done(), and calls abandoned() of what it has back; the job frees itself there. */
struct ulp_preparation {
	struct ulp_job job; /* first */
	void *owner;
};

/* The first starts the threads, the last ends them. 0 or -errno. */
int ulp_pool_hold(void);
void ulp_pool_release(void);

void ulp_bell_init(struct ulp_bell *bell, int event_fd);
/* Has it been made? A worker without one does everything by itself. */
static inline bool ulp_bell_is_made(const struct ulp_bell *bell)
{
	return bell->made;
}
/* On its thread: hands back what is there. */
void ulp_bell_serve(struct ulp_bell *bell);
static inline bool ulp_bell_rung(const struct ulp_bell *bell)
{
	return atomic_load_explicit(&bell->rung, memory_order_relaxed);
}

void ulp_pool_submit(struct ulp_job *job, struct ulp_bell *bell, uint32_t account, uint32_t weight);
/* Where else it is handed back; NULL: nowhere, but that its state says so. */
void ulp_pool_move(struct ulp_job *job, struct ulp_bell *bell);
/* Is it the owner's? (Without a bell: it may have been handed back.) */
bool ulp_pool_returned(struct ulp_job *job);
/* Its owner goes. True: the job is free now; false: abandoned() will be called. */
bool ulp_pool_drop(struct ulp_job *job);
/* Has any thread of it something to do, or waits for xts-keys? */
bool ulp_pool_is_working(void);
/* The job has waited for HELP_MS: looks whether the reserve has to help. */
void ulp_pool_help(void);
#define ULP_POOL_HELP_MS 20u
#define ULP_POOL_RESERVE_MS 5u

#endif
