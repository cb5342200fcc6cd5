/*
 * Threads for computations that take longer than a worker may: the steps of handshakes (tls_handshake.c). A job belongs
 * to its owner, except between ulp_pool_submit() and the moment its bell hands it back, when it belongs to the pool.
 * The owner must not touch what the job works on meanwhile.
 *
 * A round of a worker takes some 100 us. One signature with an RSA key of 2048 bits takes 700 to 1500 us, and the rest
 * of a handshake step 150 to 500 us more. OpenSSL's asynchronous jobs (ASYNC_start_job) could move only the signature
 * elsewhere: the rest, which is most of the work with elliptic curves, would stay in the worker. Doing one heavy task
 * per round, as HAProxy does, would still make a round as long as one step.
 *
 * Threads. There are as many as the process has CPUs, at most eight, and they are SCHED_IDLE; so are the threads of the
 * key process that sign for them. On a shared core the worker therefore runs as soon as it wakes. A nice value would
 * not achieve that: a worker is SCHED_BATCH, and such a thread preempts only SCHED_IDLE ones. When ordinary threads
 * signed with RSA on the worker's core, the median latency of other requests was 6.7 times that without them. But a
 * core that is never idle starves SCHED_IDLE threads, and without privilege they cannot be made ordinary again. So
 * there is one more thread, the reserve, which is always ordinary: when no job has been done for HELP_MS although some
 * are queued, it works for RESERVE_MS and sleeps again. That is a fifth of a core that others keep busy. If it worked
 * until all jobs were done, it would never stop in a flood.
 *
 * Where RLIMIT_NICE (the unit's LimitNICE, or sandbox.py) allows a thread to leave SCHED_IDLE, a background thread is
 * SCHED_IDLE only while it runs a job, and SCHED_BATCH while it waits. The reason: a killed process ends only after
 * each of its threads has run once more. With SCHED_IDLE threads and two busy processes on the core, a killed proxy
 * took up to 1.6 s to end, and its hosts did not learn of it before; this way it takes 14 ms.
 *
 * A lock of OpenSSL that all threads share (for ex_data: SSL_new(), SSL_free(), every X509) may be with a background
 * thread that gets no CPU. And who waits for it, a worker too, may not even leave the CPU: glibc's rwlocks spin while
 * the other one is about to unlock. Workers stood still for up to 2.5 s so, and handshakes fell from 1,150 to 20 to 500
 * a second. So the reserve looks every HELP_MS, while there are jobs: if none was done, all that run one are ordinary
 * threads until it is done. Where they may not leave SCHED_IDLE, this does not help.
 *
 * Fairness. Each account (a tenant) has a queue. The account that has used the least time, relative to its weight, is
 * served next, so a flood of one tenant makes another tenant wait for one job at most, and one of more than TOGETHER_NS
 * or a few short ones until a sleeping worker hears of the result. A queue is bounded: when it is full, the oldest job
 * is handed back undone, because its peer is the most likely to have given up.
 */
#ifndef XTS_ULP_HANDSHAKE_POOL_H
#define XTS_ULP_HANDSHAKE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ulp/job_bell.h"
#include "worker/list.h"

enum ulp_job_state { ULP_JOB_OWN, ULP_JOB_QUEUED, ULP_JOB_RUNNING, ULP_JOB_DONE };

struct ulp_job {
	void (*run)(struct ulp_job *job);       /* on a thread of the pool */
	void (*done)(struct ulp_job *job);      /* on the bell's thread; the job belongs to its owner again */
	void (*abandoned)(struct ulp_job *job); /* its owner is gone: frees the job. On any thread */
	uint64_t spent_ns;                      /* time that run() took */
	bool undone;                            /* handed back without having run: too many were waiting */
	/* Used by the pool only: */
	enum ulp_job_state state;
	bool orphan;
	struct ulp_bell *bell;
	struct list node;
	uint32_t account, weight;
};

/* A job that has to be done before a push. Its owner sets done(). When the job has been handed back, the owner calls
 * abandoned(), in which the job frees itself. */
struct ulp_preparation {
	struct ulp_job job; /* first */
	void *owner;
};

/* The first call starts the threads; the last release ends them. 0 or -errno. */
int ulp_pool_hold(void);
void ulp_pool_release(void);

/* Called on the bell's thread: hands the finished jobs back. */
void ulp_bell_serve(struct ulp_bell *bell);

void ulp_pool_submit(struct ulp_job *job, struct ulp_bell *bell, uint32_t account, uint32_t weight);
/* The job has no owner any more: run() and abandoned() are called, before the last ulp_pool_release() returns. For what
 * takes a few us, such as to free something: it is done before all other jobs. False: there are no threads, and the job
 * is the caller's. */
bool ulp_pool_give(struct ulp_job *job, uint32_t account, uint32_t weight);
/* Changes the bell that the job is handed back to; NULL: none, only its state says that it is done. */
void ulp_pool_move(struct ulp_job *job, struct ulp_bell *bell);
/* Does the job belong to its owner again? (It may have been handed back without a bell.) */
bool ulp_pool_returned(struct ulp_job *job);
/* The owner goes away. True: the owner has the job and may free it now; false: abandoned() will be called. */
bool ulp_pool_drop(struct ulp_job *job);
/* Does any thread of the pool have something to do, or wait for xts-keys? */
bool ulp_pool_is_working(void);
/* Are there more jobs than the workers leave CPUs? Then a worker that spins keeps a job from running. */
bool ulp_pool_needs_cpus(void);
/* A job has waited for HELP_MS: wakes the reserve thread if it has to help. */
void ulp_pool_help(void);
#define ULP_POOL_HELP_MS 20u
#define ULP_POOL_RESERVE_MS 5u

#endif
