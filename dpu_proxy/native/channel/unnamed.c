/* Connections by the host's own number, until the host names them: a hash table that grows chain by chain (linear
 * hashing). unnamed.h has the theory of operation. */
#include <stdlib.h>
#include <string.h>

#include "channel/channel.h"
#include "channel/unnamed.h"
#include "common/keyed_hash.h"

#define CHAINS_FIRST 16u

static uint32_t hash(const struct unnamed *u, uint32_t xts_socket)
{
	return (uint32_t)keyed_hash(xts_socket, u->factor);
}

/* Chains from `level` on are the halves that were split off from the first ones. */
static struct connection **chain(const struct unnamed *u, uint32_t xts_socket)
{
	uint32_t h = hash(u, xts_socket), place = h & (2 * u->level - 1);

	return &u->first[place < u->chains ? place : place - u->level];
}

static bool make(struct unnamed *u)
{
	u->first = calloc(CHAINS_FIRST, sizeof(void *));
	if (!u->first)
		return false;
	u->chains = u->room = u->level = CHAINS_FIRST;
	u->factor = keyed_hash_factor();
	return true;
}

static bool has_room(struct unnamed *u)
{
	struct connection **first;

	if (u->chains < u->room)
		return true;
	first = realloc(u->first, 2 * u->room * sizeof(void *));
	if (!first)
		return false;
	u->first = first;
	u->room *= 2;
	return true;
}

/* One more chain, with what belongs there of the chain that had it so far. Without memory the chains get longer. */
static void grow(struct unnamed *u)
{
	struct connection **from, **to, *c, *next;

	if (!has_room(u))
		return;
	from = &u->first[u->chains - u->level];
	c = *from;
	*from = NULL;
	to = &u->first[u->chains];
	*to = NULL;
	u->chains++;
	for (; c; c = next) {
		struct connection **end = chain(u, c->xts_socket);

		next = c->unnamed_next;
		while (*end)
			end = &(*end)->unnamed_next;
		*end = c;
		c->unnamed_next = NULL;
	}
	if (u->chains == 2 * u->level)
		u->level = u->chains;
}

bool unnamed_add(struct channel *ch, struct connection *c)
{
	struct unnamed *u = &ch->unnamed;
	struct connection **at;

	if (!u->first && !make(u))
		return false;
	if (u->count >= u->chains)
		grow(u);
	at = chain(u, c->xts_socket);
	c->unnamed_next = *at;
	*at = c;
	c->is_unnamed = true;
	u->count++;
	return true;
}

void unnamed_remove(struct channel *ch, struct connection *c)
{
	struct unnamed *u = &ch->unnamed;
	struct connection **at;

	if (!c->is_unnamed)
		return;
	at = chain(u, c->xts_socket);
	while (*at != c)
		at = &(*at)->unnamed_next;
	*at = c->unnamed_next;
	c->unnamed_next = NULL;
	c->is_unnamed = false;
	u->count--;
}

struct connection *unnamed_find(struct channel *ch, uint32_t xts_socket)
{
	const struct unnamed *u = &ch->unnamed;
	struct connection *c = u->first ? *chain(u, xts_socket) : NULL;

	while (c && c->xts_socket != xts_socket)
		c = c->unnamed_next;
	return c;
}

void unnamed_forget(struct channel *ch)
{
	free(ch->unnamed.first);
	memset(&ch->unnamed, 0, sizeof ch->unnamed);
}
