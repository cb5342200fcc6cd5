/* Many channels over one queue; mux.h has the theory of operation. */
#include "relay/mux.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 256u /* buckets of the table of channel numbers; a power of two */
#define NONE UINT16_MAX

/* A frame that waits at a channel. There can be no more of them than the trunk's window has frames. */
struct waiting {
	struct xts_rx_frame frame;
	uint16_t next;
};

struct mux_queue {
	struct xts_queue base;
	struct xts_mux *mux;    /* NULL: it has ended with the trunk */
	struct mux_queue *next; /* the next in its bucket */
	uint32_t number;
	uint32_t held; /* frames that wait, and frames that the channel has not recycled */
	uint16_t first, last;
	bool ended; /* it had more frames on their way than it may have */
};

struct xts_mux {
	struct xts_queue *trunk;
	struct xts_link *link;
	struct xts_mux_stats stats;
	uint32_t acquired; /* slots held by channels: each of them will take a frame credit */
	bool kick_due;
	uint16_t free; /* list of free places */
	struct waiting places[XTS_FRAME_WINDOW_MAX];
	struct mux_queue *bucket[BUCKETS];
};

static struct mux_queue *mux_of(struct xts_queue *q)
{
	return (struct mux_queue *)q;
}

static struct mux_queue **bucket_of(struct xts_mux *m, uint32_t number)
{
	return &m->bucket[number % BUCKETS];
}

/* --- transmit ----------------------------------------------------------------------------------------------------- */

static int mux_acquire(struct xts_queue *base, struct xts_tx_slot *slot)
{
	struct xts_mux *m = mux_of(base)->mux;

	if (!m || xts_link_credits(m->link) <= m->acquired || xts_queue_acquire(m->trunk, slot)) {
		base->stats.tx_no_slot++;
		return -EAGAIN;
	}
	m->acquired++;
	slot->data += XTS_CARRIED_BYTES;
	slot->capacity = base->largest_message;
	return 0;
}

/* The trunk's slot that contains a channel's slot. */
static struct xts_tx_slot whole(const struct xts_tx_slot *slot)
{
	struct xts_tx_slot out = *slot;

	out.data -= XTS_CARRIED_BYTES;
	out.capacity += XTS_CARRIED_BYTES;
	return out;
}

static void mux_submit(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct mux_queue *q = mux_of(base);
	struct xts_carried m = { .length = bytes };
	struct xts_tx_slot out = whole(slot);

	memset(out.data, 0, XTS_CARRIED_BYTES);
	xts_head_encode(out.data, XTS_RELAY_CARRIED, 0, 0, q->number);
	xts_carried_encode(out.data, &m);
	xts_link_seal(q->mux->link, out.data);
	xts_queue_submit(q->mux->trunk, &out, XTS_CARRIED_BYTES + bytes);
	q->mux->acquired--;
	q->mux->kick_due = true;
	q->mux->stats.sent++;
	base->stats.tx_frames++;
	base->stats.tx_bytes += bytes;
}

static void mux_abandon(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	struct xts_mux *m = mux_of(base)->mux;
	struct xts_tx_slot out = whole(slot);

	xts_queue_abandon(m->trunk, &out);
	m->acquired--;
}

/* The trunk's owner kicks for all channels together. */
static int mux_kick(struct xts_queue *base)
{
	struct mux_queue *q = mux_of(base);

	if (!q->mux || q->ended)
		return -ENXIO;
	q->mux->kick_due = true;
	return 0;
}

/* --- receive ------------------------------------------------------------------------------------------------------ */

static int mux_receive(struct xts_queue *base, struct xts_rx_frame *frame)
{
	struct mux_queue *q = mux_of(base);
	struct waiting *w;

	if (!q->mux)
		return -EPIPE;
	if (q->first == NONE)
		return q->ended ? -EPIPE : 0;
	w = &q->mux->places[q->first];
	*frame = w->frame;
	q->first = w->next;
	w->next = q->mux->free;
	q->mux->free = (uint16_t)(w - q->mux->places);
	base->stats.rx_frames++;
	base->stats.rx_bytes += frame->bytes;
	return 1;
}

static void give_back(struct mux_queue *q, const struct xts_rx_frame *frame)
{
	struct xts_rx_frame outer = *frame;

	outer.bytes += XTS_CARRIED_BYTES;
	outer.segment[0].iov_base = (uint8_t *)outer.segment[0].iov_base - XTS_CARRIED_BYTES;
	outer.segment[0].iov_len += XTS_CARRIED_BYTES;
	xts_queue_recycle(q->mux->trunk, &outer);
	xts_link_recycled(q->mux->link);
	q->held--;
}

static void mux_recycle(struct xts_queue *base, const struct xts_rx_frame *frame)
{
	if (mux_of(base)->mux)
		give_back(mux_of(base), frame);
}

static int mux_arm(struct xts_queue *base)
{
	struct mux_queue *q = mux_of(base);

	return q->first != NONE || q->ended || !q->mux;
}

static void mux_disarm(struct xts_queue *base)
{
	(void)base;
}

bool xts_mux_waiting(const struct xts_queue *channel)
{
	const struct mux_queue *q = (const struct mux_queue *)channel;

	return q->first != NONE || q->ended || !q->mux;
}

/* Takes back its frames and removes it from the trunk. */
static void leave(struct mux_queue *q)
{
	struct mux_queue **at = bucket_of(q->mux, q->number);
	struct xts_rx_frame frame;

	while (q->first != NONE) {
		(void)mux_receive(&q->base, &frame);
		give_back(q, &frame);
	}
	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	q->mux = NULL;
}

static void mux_close(struct xts_queue *base)
{
	if (mux_of(base)->mux)
		leave(mux_of(base));
	free(mux_of(base));
}

static const struct xts_queue_ops mux_ops = {
	.kind = "relay",
	.acquire = mux_acquire,
	.submit = mux_submit,
	.abandon = mux_abandon,
	.kick = mux_kick,
	.receive = mux_receive,
	.recycle = mux_recycle,
	.arm = mux_arm,
	.disarm = mux_disarm,
	.close = mux_close,
};

/* --- the trunk's owner -------------------------------------------------------------------------------------------- */

static struct mux_queue *find(struct xts_mux *m, uint32_t number)
{
	struct mux_queue *q = *bucket_of(m, number);

	while (q && q->number != number)
		q = q->next;
	return q;
}

/* May a channel have a frame of this type? Not one that carries other frames: a relay must not be behind a relay. */
static bool type_may_be_carried(uint8_t type)
{
	return type != XTS_RELAY_CARRIED && type != XTS_LINK_BUNDLE;
}

uint8_t xts_mux_type(const struct xts_rx_frame *frame)
{
	const uint8_t *data = frame->segment[0].iov_base;

	return frame->segment[0].iov_len < XTS_CARRIED_BYTES + XTS_HEAD_BYTES ? 0 :
										data[XTS_CARRIED_BYTES + XTS_ETH_BYTES];
}

int xts_mux_inner(struct xts_rx_frame *out, const struct xts_rx_frame *frame)
{
	struct xts_carried carried;
	uint8_t type = xts_mux_type(frame);

	/* Padding after a frame is not part of it. */
	if (!type || !type_may_be_carried(type) ||
	    xts_carried_decode(&carried, frame->segment[0].iov_base, frame->bytes) || carried.length < XTS_HEAD_BYTES ||
	    (frame->segments > 1 && carried.length != frame->bytes - XTS_CARRIED_BYTES))
		return -EBADMSG;
	*out = *frame;
	out->bytes = carried.length;
	out->segment[0].iov_base = (uint8_t *)frame->segment[0].iov_base + XTS_CARRIED_BYTES;
	out->segment[0].iov_len = frame->segments > 1 ? frame->segment[0].iov_len - XTS_CARRIED_BYTES : carried.length;
	return 0;
}

static void append(struct xts_mux *m, struct mux_queue *q, const struct xts_rx_frame *inner)
{
	struct waiting *w = &m->places[m->free];
	uint16_t place = m->free;

	m->free = w->next;
	w->frame = *inner;
	w->next = NONE;
	if (q->first == NONE)
		q->first = place;
	else
		m->places[q->last].next = place;
	q->last = place;
	q->held++;
}

enum xts_mux_verdict xts_mux_take(struct xts_mux *m, const struct xts_head *head, const struct xts_rx_frame *frame)
{
	struct xts_rx_frame inner;
	struct mux_queue *q;

	/* There cannot be more frames than places, since the trunk's link would have ended. */
	if (m->free == NONE || xts_mux_inner(&inner, frame)) {
		m->stats.malformed++;
		return XTS_MUX_DROPPED;
	}
	q = find(m, head->id);
	if (!q)
		return XTS_MUX_UNKNOWN;
	if (!q->ended && q->held >= (uint32_t)q->base.frame_window + XTS_CONTROL_RESERVE) {
		q->ended = true;
		m->stats.floods++;
	}
	if (q->ended) {
		m->stats.ended++;
		return XTS_MUX_DROPPED;
	}
	append(m, q, &inner);
	m->stats.received++;
	return XTS_MUX_TAKEN;
}

int xts_mux_add(struct xts_queue **out, struct xts_mux *m, uint32_t number, uint16_t frame_window)
{
	uint32_t largest = m->link->largest_message - XTS_CARRIED_BYTES;
	struct mux_queue *q;

	if (find(m, number))
		return -EEXIST;
	if (largest < XTS_FRAME_BYTES_SINGLE)
		return -EMSGSIZE;
	q = calloc(1, sizeof *q);
	if (!q)
		return -ENOMEM;
	q->base.ops = &mux_ops;
	q->base.largest_message = largest;
	q->base.frame_window = frame_window;
	q->base.wait_fd = -1;
	q->base.traits = XTS_QUEUE_FRAGMENTS;
	memcpy(q->base.local_mac, m->trunk->local_mac, sizeof q->base.local_mac);
	memcpy(q->base.peer_mac, m->trunk->peer_mac, sizeof q->base.peer_mac);
	q->mux = m;
	q->number = number;
	q->first = NONE;
	q->next = *bucket_of(m, number);
	*bucket_of(m, number) = q;
	*out = &q->base;
	return 0;
}

int xts_mux_answer(struct xts_mux *m, uint32_t number, const void *frame, uint32_t bytes)
{
	struct mux_queue q = { .base.largest_message = m->link->largest_message - XTS_CARRIED_BYTES,
			       .mux = m,
			       .number = number };
	struct xts_tx_slot slot;
	int error = mux_acquire(&q.base, &slot);

	if (error)
		return error;
	memcpy(slot.data, frame, bytes);
	mux_submit(&q.base, &slot, bytes);
	return 0;
}

bool xts_mux_kick_due(struct xts_mux *m)
{
	bool due = m->kick_due;

	m->kick_due = false;
	return due;
}

void xts_mux_stats(const struct xts_mux *m, struct xts_mux_stats *out)
{
	*out = m->stats;
}

int xts_mux_open(struct xts_mux **out, struct xts_queue *trunk, struct xts_link *link)
{
	struct xts_mux *m = calloc(1, sizeof *m);

	if (!m)
		return -ENOMEM;
	m->trunk = trunk;
	m->link = link;
	for (uint16_t i = 0; i < XTS_FRAME_WINDOW_MAX; i++)
		m->places[i].next = i + 1u < XTS_FRAME_WINDOW_MAX ? (uint16_t)(i + 1u) : NONE;
	*out = m;
	return 0;
}

void xts_mux_close(struct xts_mux *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < BUCKETS; i++)
		while (m->bucket[i])
			leave(m->bucket[i]);
	free(m);
}
