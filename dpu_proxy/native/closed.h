/*
 * Records of connections that have ended, for the supervisor's connection log: who, when, how much, and why.
 *
 * Where the configuration wants them, every closed_sample-th connection of a worker has a record, made when it begins,
 * so that its addresses are known even when its peer has reset it. When it ends the record waits for the supervisor, at
 * most CLOSED_MAX of them; what is beyond that is counted. The others, and all by default, cost a comparison.
 */
#ifndef XTS_CLOSED_H
#define XTS_CLOSED_H

#include "worker.h"

#define CLOSED_MAX 4096u

struct connection;
struct worker_state;
struct closed;

struct closed_list { /* of a worker */
	struct closed *first, *last;
	uint32_t count;
	uint32_t begun; /* connections since the last that has a record */
};

/* It begins: a connect, an accepted connection, or one that was another process's. */
void closed_begin(struct connection *c, enum xts_closed_begin how, const struct xts_endpoint *peer);
/* TCP is connected. */
void closed_connected(struct connection *c);
/* It leaves its channel, and loses its numbers. */
void closed_leaves(struct connection *c);
/* It ends. Nothing happens if it has ended before. */
void closed_end(struct connection *c, bool reset);
/* Its socket is about to go to another process. */
void closed_handed_over(struct connection *c);
void closed_free(struct closed_list *l);

#endif
