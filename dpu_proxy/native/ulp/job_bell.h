/*
 * Where jobs are handed back. A bell belongs to one thread, which sleeps on event_fd. That thread looks whether jobs
 * wait (ulp_bell_has_jobs) whenever it is awake, and is woken only while it sleeps. On a shared core it runs as soon as
 * it is woken, in front of the handshake thread. So that it does not do so for each job, a thread that goes on with
 * another job wakes it for several together: for TOGETHER at most, and when the first of them has waited TOGETHER_NS.
 * Until then the bell is among those that the pool has to ring before its threads sleep.
 */
#ifndef XTS_ULP_JOB_BELL_H
#define XTS_ULP_JOB_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/list.h"

struct ulp_bell {
	struct list jobs;    /* with what follows protected by the pool's lock */
	struct list pending; /* of the bells that have not been rung for the jobs they have */
	uint64_t since_ns;   /* when the first of the jobs came */
	atomic_uint waiting; /* jobs */
	atomic_bool sleeps;  /* its thread, or it may: also one that never says so */
	atomic_bool rung;
	int event_fd; /* an eventfd, which the bell does not own */
	bool made;
};
#define ULP_BELL_TOGETHER 4u
#define ULP_BELL_TOGETHER_NS 300000u

void ulp_bell_init(struct ulp_bell *bell, int event_fd);

/* --- on its thread ------------------------------------------------------------------------------------------------ */

/* Has the bell been made? A worker without one does all jobs itself. */
static inline bool ulp_bell_is_made(const struct ulp_bell *bell)
{
	return bell->made;
}
static inline bool ulp_bell_has_jobs(const struct ulp_bell *bell)
{
	return atomic_load_explicit(&bell->waiting, memory_order_relaxed);
}
/* The thread is about to sleep; false: it must not, since jobs wait. ulp_bell_wakes(): it is awake again. */
static inline bool ulp_bell_sleeps(struct ulp_bell *bell)
{
	atomic_store(&bell->rung, false);
	atomic_store(&bell->sleeps, true);
	return !atomic_load(&bell->waiting);
}
static inline void ulp_bell_wakes(struct ulp_bell *bell)
{
	atomic_store_explicit(&bell->sleeps, false, memory_order_relaxed);
}

/* --- with the pool's lock held ------------------------------------------------------------------------------------ */

/* A job is handed back at this time. Its owner is not told yet. */
void ulp_bell_add(struct ulp_bell *bell, struct list *job, uint64_t now_ns);
/* Takes it back, if it is still there. */
void ulp_bell_remove(struct ulp_bell *bell, struct list *job);
/* The first one, which leaves the bell; NULL: there is none. */
struct list *ulp_bell_take(struct ulp_bell *bell);
/* Tells the bell's thread of its jobs, if it sleeps. */
void ulp_bell_ring(struct ulp_bell *bell);
/* Now or later: puts the bell among the pending ones, if its jobs can wait for another one that is under way. */
void ulp_bell_ring_soon(struct ulp_bell *bell, struct list *pending, uint64_t now_ns);
/* All that are pending. */
void ulp_bells_ring(struct list *pending);

#endif
