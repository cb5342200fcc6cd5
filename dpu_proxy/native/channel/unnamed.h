/*
 * The connections of a channel whose identifier the host may not know yet: those that a request without an identifier
 * has made, until the host names them. They are found by the host's own number.
 *
 * A host may have thousands of them, since a CONNECT is answered only when TCP has connected. They are in a hash table,
 * which grows by one chain with each connection that it has no chain for: so no message waits for the others to be
 * moved. Hosts choose the numbers. The secret factor keeps them from choosing numbers that all fall into one chain.
 */
#ifndef XTS_UNNAMED_H
#define XTS_UNNAMED_H

#include <stdbool.h>
#include <stdint.h>

struct channel;
struct connection;

struct unnamed {
	struct connection **first; /* of each chain; NULL: there never was a connection */
	uint32_t chains, room;     /* so many are used, of so many */
	uint32_t level;            /* the largest power of two that is no more than chains */
	uint32_t count;
	uint64_t factor;
};

/* False: no memory. */
bool unnamed_add(struct channel *ch, struct connection *c);
/* Nothing happens if it is not there. Before its xts_socket changes, and before it leaves the channel. */
void unnamed_remove(struct channel *ch, struct connection *c);
/* The youngest one with this number; NULL: none. */
struct connection *unnamed_find(struct channel *ch, uint32_t xts_socket);
/* At the end of an epoch, when the channel has no connection. */
void unnamed_forget(struct channel *ch);

#endif
