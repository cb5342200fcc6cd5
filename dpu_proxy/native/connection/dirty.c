/* The connections that have something to write when the batch of frames has been decoded. */
#include "channel/channel.h"

void channel_flush_dirty(struct channel *ch)
{
	for (uint32_t i = 0; i < ch->dirty_count; i++) {
		struct connection *c = ch->dirty[i];

		if (!c)
			continue;
		c->dirty = false;
		connection_flush(c);
		connection_check(c);
	}
	ch->dirty_count = 0;
}

void channel_dirty(struct channel *ch, struct connection *c)
{
	if (c->dirty)
		return;
	if (ch->dirty_count == CHANNEL_BATCH)
		channel_flush_dirty(ch);
	c->dirty = true;
	ch->dirty[ch->dirty_count++] = c;
}

void channel_clean(struct channel *ch, struct connection *c)
{
	uint32_t i = 0;

	if (!c->dirty)
		return;
	while (ch->dirty[i] != c)
		i++;
	ch->dirty[i] = NULL;
	c->dirty = false;
}
