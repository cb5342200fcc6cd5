/* The identifiers by which a channel's host names its connections: an index into the channel's table and a generation,
 * so that a freed identifier is not mistaken for its successor. */
#include <stdlib.h>

#include "channel/channel.h"

static bool ids_grow(struct channel *ch)
{
	uint32_t count = ch->id_count ? ch->id_count * 2 : 64;
	struct id_slot *ids;

	if (count > ID_INDEX_MASK)
		return false;
	ids = realloc(ch->ids, count * sizeof *ids);
	if (!ids)
		return false;
	ch->ids = ids;
	ch->id_count = count;
	return true;
}

uint32_t identifier_take(struct channel *ch, struct connection *c)
{
	uint32_t index = ch->id_free;

	if (index) {
		ch->id_free = ch->ids[index].next_free;
	} else {
		index = ch->id_used + 1;
		if (index >= ch->id_count && !ids_grow(ch))
			return 0;
		/* Here and not when the table grows: of a large one, what is never used has no pages. */
		ch->ids[index] = (struct id_slot){ .generation = ch->id_generation };
		ch->id_used = index;
	}
	ch->ids[index].connection = c;
	return (uint32_t)ch->ids[index].generation << ID_INDEX_BITS | index;
}

void identifier_release(struct channel *ch, uint32_t id)
{
	uint32_t index = id & ID_INDEX_MASK;
	struct id_slot *slot = &ch->ids[index];

	if (slot->connection)
		unnamed_remove(ch, slot->connection);
	slot->connection = NULL;
	slot->generation = (uint16_t)((slot->generation + 1) % ID_GENERATIONS);
	slot->next_free = ch->id_free;
	ch->id_free = index;
}

void identifiers_forget(struct channel *ch)
{
	free(ch->ids);
	ch->ids = NULL;
	ch->id_count = ch->id_used = ch->id_free = 0;
	unnamed_forget(ch);
}

struct connection *connection_find(struct channel *ch, uint32_t proxy_id)
{
	uint32_t index = proxy_id & ID_INDEX_MASK;
	struct connection *c;

	if (!index || index > ch->id_used || ch->ids[index].generation != proxy_id >> ID_INDEX_BITS)
		return NULL;
	c = ch->ids[index].connection;
	if (c && c->listener && !c->announced)
		/* its handshake is not done, so the host does not know its identifier yet and has guessed it */
		return NULL;
	if (c)
		unnamed_remove(ch, c); /* the host knows the identifier */
	return c;
}
