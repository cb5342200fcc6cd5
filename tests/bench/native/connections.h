/* Many connections that one epoll set waits for, each with a request and its answer. */
#ifndef BENCH_CONNECTIONS_H
#define BENCH_CONNECTIONS_H

#include "measure.h"
#include "net_api.h"

#define EVENTS_MAX 64

struct conn {
	int s;
	uint32_t got; /* bytes of the response received */
	uint64_t count, begin_ns;
	uint64_t next; /* at a rate: number of its next request among all */
	bool busy;     /* at a rate: an answer is awaited */
	uint8_t *request, *response;
};

/* So many of them, and their buffers, all touched. */
struct conn *conns_new(uint32_t count, const struct options *o);
/* Opens count connections, at most 64 at a time in the making; leaves them in the set, watched for EPOLLIN. */
void conns_open(void *set, struct conn *conns, uint32_t count, const struct options *o);
void *set_new(void);
void events_watch(void *set, int op, int s, uint32_t events, uint32_t index);
/* Ends the program when nothing happens for 5 s: the path is stuck. */
int events_wait(void *set, struct epoll_event *events);
/* False: there is no room now. The request counts from begin_ns. */
bool request_try(struct conn *c, uint64_t begin_ns);
/* Waits for room, 5 s at most: what was idle may just be moving to another proxy. */
void request_send(struct conn *c, uint64_t now);
/* True when a whole response is there, and right. */
bool response_take(struct conn *c);

#endif
