/* A frame that carries the messages of several connections. turns/gather.c has the theory of operation. */
#include <string.h>

#include "channel/channel.h"

void gather_submit(struct channel *ch)
{
	struct gather *g = &ch->gather;
	struct xts_gathered m = { .length = g->bytes - XTS_GATHERED_BYTES };

	if (!g->open)
		return;
	g->open = false;
	if (!m.length) {
		xts_queue_abandon(ch->queue, &g->slot);
		return;
	}
	xts_head_encode(g->slot.data, XTS_REPLY_GATHERED, 0, 0, 0);
	xts_gathered_encode(g->slot.data, &m);
	g->on = false;
	channel_submit(ch, &g->slot, g->bytes);
	g->on = true;
}

/* Is there room for a message of the whole share? Takes another frame if the present one is too full. */
bool gather_has_room(struct channel *ch)
{
	struct gather *g = &ch->gather;
	uint32_t largest = ch->link.largest_message;

	if (g->open && g->slot.capacity - g->bytes >= XTS_GATHERED_LENGTH_BYTES + g->share)
		return true;
	gather_submit(ch);
	g->on = false;
	g->open = channel_slot(ch, &g->slot);
	g->on = true;
	if (g->slot.capacity > largest)
		g->slot.capacity = largest;
	g->bytes = XTS_GATHERED_BYTES;
	return g->open;
}

bool gather_room(struct channel *ch, struct xts_tx_slot *slot)
{
	struct gather *g = &ch->gather;

	if (!gather_has_room(ch))
		return false;
	*slot = (struct xts_tx_slot){ .data = g->slot.data + g->bytes + XTS_GATHERED_LENGTH_BYTES, .capacity = g->share };
	memset(slot->data, 0, XTS_HEAD_BYTES);
	return true;
}

void gather_add(struct channel *ch, uint32_t bytes)
{
	struct gather *g = &ch->gather;

	xts_put16(g->slot.data + g->bytes, (uint16_t)bytes);
	g->bytes += XTS_GATHERED_LENGTH_BYTES + bytes;
}
