/*
 * What the agent has said once, OVER, and what cannot leave at once: the trunk is not up, is about to be left, or has
 * no slot.
 *
 * Theory of operation. Words wait here, and leave as soon as the trunk is up, a few at a time: a receiver has few
 * buffers for what takes no frame credit (PROTOCOL.md, "Connections that no process has"). The proxy knows what an
 * epoch of before is about: it expects the channels behind this relay. A word too many takes the place of the oldest
 * one, whose connections are kept until their time is over. So are all where the next proxy does not know such words.
 * They hold keys, so a place is wiped when its word has left.
 */
#include "relay/relay_inside.h"

#include <string.h>

#define BURST 8u /* as host_lib/xts_agent/over_words.py */
#define PAUSE_NS UINT64_C(5000000)

static void drop_oldest(struct relay_words *w)
{
	explicit_bzero(&w->word[w->first], sizeof w->word[w->first]);
	w->first = (w->first + 1) % RELAY_WORDS_MAX;
	w->count--;
}

void relay_say_over(struct relay *r, uint64_t epoch, const uint8_t *keys, uint32_t bytes)
{
	struct relay_words *w = &r->words;
	struct relay_word *word;

	if (bytes > XTS_RELAY_OVER_BYTES_MAX)
		return;
	if (w->count == RELAY_WORDS_MAX)
		drop_oldest(w);
	word = &w->word[(w->first + w->count++) % RELAY_WORDS_MAX];
	word->epoch = epoch;
	word->bytes = bytes;
	memcpy(word->keys, keys, bytes);
}

/* May one leave now? */
static bool may_leave(const struct relay *r)
{
	return r->words.count && r->link.state == XTS_LINK_UP && !r->move.acked;
}

static bool say(struct relay *r, const struct relay_word *word)
{
	struct xts_over m = { .epoch = word->epoch, .length = word->bytes };
	struct xts_tx_slot slot;

	if (xts_queue_acquire(r->trunk, &slot)) {
		r->slot_missing = true;
		return false;
	}
	memset(slot.data, 0, XTS_OVER_BYTES);
	relay_write_ethernet(r, slot.data);
	xts_head_encode(slot.data, XTS_LINK_OVER, 0, 0, 0);
	xts_over_encode(slot.data, &m);
	memcpy(slot.data + XTS_OVER_BYTES, word->keys, word->bytes);
	xts_queue_submit(r->trunk, &slot, XTS_OVER_BYTES + word->bytes);
	r->unkicked = true;
	return true;
}

void relay_words_turn(struct relay *r)
{
	struct relay_words *w = &r->words;

	if (!may_leave(r) || r->now_ns < w->at_ns)
		return;
	for (uint32_t i = 0; i < BURST && w->count; i++) {
		if (r->link.features & XTS_FEATURE_OVER && !say(r, &w->word[w->first]))
			return;
		drop_oldest(w);
	}
	w->at_ns = r->now_ns + PAUSE_NS;
}

uint64_t relay_words_at_ns(const struct relay *r)
{
	return may_leave(r) ? r->words.at_ns : UINT64_MAX;
}
