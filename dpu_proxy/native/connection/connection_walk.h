/* A walk over all connections of a worker, of which each round does a part. */
#ifndef XTS_CONNECTION_WALK_H
#define XTS_CONNECTION_WALK_H

#include "channel/channel.h"

/* The position of a walk over several rounds. A connection that exists from the first round to the last is visited
 * once. Begins as { 0 }. */
struct walk {
	uint64_t number;   /* of the channel */
	uint32_t index;    /* connections of that channel that were visited */
	struct list *node; /* the channel, or the end of the list; valid only in this round */
};

/* Called first in each round. */
void walk_goes_on(struct walk *at, struct worker_state *w);
/* The channel, or NULL: there are no more. */
struct channel *walk_channel(struct walk *at, struct worker_state *w);
void walk_leaves_channel(struct walk *at);
/* The current connection, of any channel, or NULL: there are no more. It stays the same until at->index++. */
struct connection *walk_connection(struct walk *at, struct worker_state *w);

#endif
