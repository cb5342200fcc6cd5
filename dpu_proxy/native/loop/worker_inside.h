/*
 * A worker as the files of its loop see it. worker_state.h is the part that channels and connections see, worker.h the
 * supervisor's view.
 */
#ifndef XTS_WORKER_INSIDE_H
#define XTS_WORKER_INSIDE_H

#include <pthread.h>

#include "channel/channel.h"

/* A request of the supervisor, on the stack of the thread that waits for it. Under the worker's mutex. */
struct request {
	bool (*run)(struct worker_state *w, void *argument); /* true: there is more to do, in the next round */
	void *argument;
	bool done;
	struct request *next;
};

struct xts_worker {
	struct worker_state state;
	pthread_t thread;
	struct watch command_watch; /* of state.command_fd */
	pthread_mutex_t mutex;      /* protects requests */
	pthread_cond_t done;        /* some request is done */
	struct request *requests;   /* the latest first */
	bool stopping;
	int stop_error;         /* the errno in the GOODBYE of all channels */
	uint64_t idle_since_ns; /* since when it polls without finding work; 0: it has found some */
	uint64_t woken_ns;      /* when something last woke it, or a gap last ended and there was work */
	uint64_t gap_ended_ns;  /* when a gap last ended; 0: what came of it is known */
	uint64_t gap_hits;      /* stats.hits then */
};

/* --- run_in_worker.c ---------------------------------------------------------------------------------------------- */

/* Runs a function in the worker's thread between two rounds, again in each round while it returns true, and waits for
 * it. The function stops when worker_turn_is_over(). */
void worker_request(struct xts_worker *worker, bool (*run)(struct worker_state *w, void *argument), void *argument);
/* The same, but waits for XTS_ANSWER_MS at most: 0, or -ETIMEDOUT, and the function will not run (again). */
int worker_ask(struct xts_worker *worker, bool (*run)(struct worker_state *w, void *argument), void *argument);
/* The kinds of sockets are known from now on: before the first worker, or what reads of sockets before it. */
void worker_kinds_add(void);
/* Called before the worker's thread starts, and after it has ended. */
void worker_requests_open(struct xts_worker *worker);
void worker_requests_close(struct xts_worker *worker);
/* Called by the worker's thread between two rounds. A request that needs more time goes on in the next round. */
void worker_serve_requests(struct xts_worker *worker);

/* --- worker.c, idle.c ---------------------------------------------------------------------------------------------- */

/* Handles events of sockets and requests, after waiting for them for so long; -1: for ever. True: there was work. */
bool worker_poll_events(struct xts_worker *worker, int timeout_ms);
/* A round has found nothing to do. */
void worker_idle(struct xts_worker *worker);
/* Asks all queues for a wake-up, and says how long it may sleep; false when frames are there already. */
bool worker_arm_all(struct worker_state *w, int *timeout_ms);
void worker_disarm_all(struct worker_state *w);

/* --- round.c ------------------------------------------------------------------------------------------------------ */

/* The parts of a round; true when there was, or may be, anything to do. */
bool round_receive(struct worker_state *w);
bool round_carry_out(struct worker_state *w);
bool round_send(struct worker_state *w); /* also frees channels that are dying */

/* --- supervisor_requests.c ---------------------------------------------------------------------------------------- */

/* Copies a configuration, with its own copy of the rules and its own references. 0 or -ENOMEM. */
int worker_copy_config(struct xts_worker_config *to, const struct xts_worker_config *from);
void worker_free_config(struct xts_worker_config *config);
/* From now on the worker accepts no new connections. True: the turn had no time to close all listeners. at begins as {
 * 0 }. */
bool worker_drain(struct worker_state *w, struct walk *at);

#endif
