/*
 * Records of connections that have ended, for the supervisor's connection log: who, when, how much, and why.
 *
 * Where the configuration wants them, every closed_sample-th connection of a worker has a record, made when it begins,
 * so that its addresses are known even when its peer has reset it. When it ends, the record waits for the supervisor;
 * at most CLOSED_MAX records wait, and further ones are only counted. A connection without a record, which by default
 * all are, costs one comparison.
 */
#ifndef XTS_CLOSED_RECORDS_H
#define XTS_CLOSED_RECORDS_H

#include "worker/worker.h"

#define CLOSED_MAX 4096u

struct connection;
struct worker_state;
struct closed;

struct closed_list { /* of a worker */
	struct closed *first, *last;
	uint32_t count;
	uint32_t begun; /* connections since the last one with a record */
};

/* The connection begins: by a connect, by being accepted, or by being taken over from another process. */
void closed_begin(struct connection *c, enum xts_closed_begin how, const struct xts_endpoint *peer);
/* TCP is connected. */
void closed_connected(struct connection *c);
/* The connection leaves its channel, and loses its identifiers. */
void closed_leaves(struct connection *c);
/* The connection ends. Does nothing if it has ended before. */
void closed_end(struct connection *c, bool reset);
/* Its socket will go to another process. */
void closed_handed_over(struct connection *c);
/* Takes the oldest record. False: there is none. */
bool closed_take(struct closed_list *l, struct xts_closed_stats *out);
void closed_free(struct closed_list *l);

#endif
