/*
 * A worker as its own two files see it: worker.c (the thread and its rounds) and run_in_worker.c (requests of the
 * supervisor). worker_state.h is the part that channels and connections see, worker.h the supervisor's view.
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
};

/* Called before the worker's thread starts, and after it has ended. */
void worker_requests_open(struct xts_worker *worker);
void worker_requests_close(struct xts_worker *worker);
/* Called by the worker's thread between two rounds. A request that needs more time goes on in the next round. */
void worker_serve_requests(struct xts_worker *worker);

#endif
