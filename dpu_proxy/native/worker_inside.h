/* A worker as its own files see it: worker.c, worker_requests.c. */
#ifndef XTS_WORKER_INSIDE_H
#define XTS_WORKER_INSIDE_H

#include <pthread.h>

#include "channel.h"

struct request {
	bool (*run)(struct worker_state *w, void *argument); /* true: there is more to do, in the next round */
	void *argument;
	bool done;
	struct request *next;
};

struct xts_worker {
	struct worker_state state;
	pthread_t thread;
	struct watch command_watch;
	pthread_mutex_t mutex; /* of the requests */
	pthread_cond_t done;
	struct request *requests;
	bool stopping;
	int stop_error;
	uint64_t idle_since_ns; /* 0: not idle */
};

/* Before there is a thread, and when there is none any more. */
void worker_requests_open(struct xts_worker *worker);
void worker_requests_close(struct xts_worker *worker);
/* Between two rounds. */
void worker_serve_requests(struct xts_worker *worker);

#endif
