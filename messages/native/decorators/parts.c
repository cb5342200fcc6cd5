/*
 * The decorator that sends frames in parts; parts.h says what for.
 *
 * Theory of operation
 *
 * While frames may come in parts, a slot is memory of this decorator's own, since whoever takes one does not say how
 * long his frame will be. When it is submitted it is copied: into one slot of the queue below, or into as many as it
 * has parts. Submitting cannot fail: a frame for whose parts there are no slots waits where it is, and all behind it,
 * until the queue below has sent others.
 *
 * The parts of a frame arrive one after the other, with nothing between them. Where something else comes, the sender
 * has begun again (it is another process, which says HELLO, or an agent that says GOODBYE): what had come is dropped.
 * The link notices if that was against its rules, as a frame is then missing.
 *
 * What has arrived stays where it is: the frame that is lent out is made of those pieces. Only its beginning is copied,
 * since the code above decodes messages from one piece (queue.h). A frame window is small enough here for all the
 * packets of its frames to have buffers (xts_parts_window()).
 */
#include "decorators/parts.h"
#include "common/own_memory.h"

#include <stdlib.h>
#include <string.h>

/* Of a frame, that come in one piece, as with packets of one buffer: the longest command with a value in its first
 * piece is SETSOCKOPT with a filter, 2,104 bytes. */
#define WHOLE_BYTES XTS_FRAME_BYTES_SINGLE
#define FRAMES_MAX (XTS_PARTS_PACKETS_MAX / XTS_PARTS_MAX + XTS_CONTROL_RESERVE) /* that may be out, each way */
#define STAGED_BYTES (XTS_ETH_BYTES + XTS_PARTS_MAX * XTS_FRAME_BYTES_SINGLE)
#define LENT_MAX (FRAMES_MAX + 1u) /* and the one that is coming */
/* In the number of a slot: it is ours. headed.c and arq.c have the bits above. */
#define STAGED (UINT32_C(1) << 29)
#define LENT_COOKIE (UINT64_C(1) << 62) /* marks our cookies; bundle.c has the bit above */
#define NONE UINT32_MAX

/* A frame in parts. */
struct lent {
	uint32_t count; /* parts; 0: free */
	uint32_t bytes; /* that have come, behind the Ethernet header */
	uint32_t frame_bytes;
	struct xts_rx_frame part[XTS_PARTS_MAX];
	uint8_t beginning[WHOLE_BYTES];
};

struct parts_queue {
	struct xts_queue base;
	uint32_t packet_bytes; /* 0: off */
	uint32_t peer_bytes;
	/* Transmit: the slot that came back last goes out first, while it is in the cache. */
	uint8_t (*memory)[STAGED_BYTES];
	uint16_t free[FRAMES_MAX];
	uint32_t free_count;
	/* submitted, and waiting for slots of the queue below: a ring */
	struct {
		uint32_t staged, bytes;
	} waiting[FRAMES_MAX];
	uint32_t first, waiting_count;
	/* Receive */
	uint32_t coming; /* which of those below; or NONE */
	uint64_t invalid;
	struct lent lent[LENT_MAX];
};

static struct parts_queue *parts_of(struct xts_queue *q)
{
	return (struct parts_queue *)q;
}

/* The figures are those of the inner queue, which counts packets. */
static void sync_stats(struct parts_queue *q)
{
	q->base.stats = q->base.inner->stats;
	q->base.stats.rx_invalid += q->invalid;
}

/* --- transmit ----------------------------------------------------------------------------------------------------- */

static int parts_acquire(struct xts_queue *base, struct xts_tx_slot *slot)
{
	struct parts_queue *q = parts_of(base);
	uint16_t i;

	if (!q->packet_bytes)
		return xts_queue_acquire(q->base.inner, slot);
	if (!q->free_count)
		return -EAGAIN;
	i = q->free[--q->free_count];
	slot->data = q->memory[i];
	slot->capacity = xts_parts_frame_bytes(q->packet_bytes);
	slot->index = STAGED | i;
	return 0;
}

static void give_back(struct parts_queue *q, uint32_t staged)
{
	q->free[q->free_count++] = (uint16_t)staged;
}

/* A part of a frame, as a packet. */
static void send_part(struct parts_queue *q, const struct xts_tx_slot *slot, const uint8_t *frame, struct xts_part m)
{
	memcpy(slot->data, frame, XTS_ETH_BYTES);
	xts_head_encode(slot->data, XTS_LINK_PART, 0, 0, 0);
	xts_put8(slot->data + XTS_ETH_BYTES + 1, 0);
	xts_put8(slot->data + XTS_ETH_BYTES + 2, 0);
	xts_part_encode(slot->data, &m);
	memcpy(slot->data + XTS_PART_BYTES, frame + XTS_ETH_BYTES + m.offset, m.length);
	xts_queue_submit(q->base.inner, slot, XTS_PART_BYTES + m.length);
}

/* Takes so many slots of the queue below, or none. */
static bool take_slots(struct parts_queue *q, struct xts_tx_slot *slots, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (!xts_queue_acquire(q->base.inner, &slots[i]))
			continue;
		while (i)
			xts_queue_abandon(q->base.inner, &slots[--i]);
		return false;
	}
	return true;
}

/* False: there are not as many slots now. */
static bool send(struct parts_queue *q, const uint8_t *frame, uint32_t bytes)
{
	struct xts_tx_slot slots[XTS_PARTS_MAX];
	struct xts_part m = { .frame_bytes = bytes - XTS_ETH_BYTES };
	uint32_t room = q->packet_bytes - XTS_PART_BYTES;
	bool whole = bytes <= q->packet_bytes;
	uint32_t count = whole ? 1 : (m.frame_bytes + room - 1) / room;

	if (!take_slots(q, slots, count))
		return false;
	if (whole) {
		memcpy(slots[0].data, frame, bytes);
		xts_queue_submit(q->base.inner, &slots[0], bytes);
		return true;
	}
	for (uint32_t i = 0; i < count; i++, m.offset += m.length) {
		m.length = m.frame_bytes - m.offset < room ? m.frame_bytes - m.offset : room;
		send_part(q, &slots[i], frame, m);
	}
	return true;
}

/* Sends what waits, as far as there are slots. True: nothing waits any more. */
static bool send_waiting(struct parts_queue *q)
{
	while (q->waiting_count) {
		uint32_t staged = q->waiting[q->first].staged;

		if (!send(q, q->memory[staged], q->waiting[q->first].bytes))
			return false;
		give_back(q, staged);
		q->first = (q->first + 1) % FRAMES_MAX;
		q->waiting_count--;
	}
	return true;
}

static void parts_submit(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct parts_queue *q = parts_of(base);
	uint32_t staged = slot->index & ~STAGED, last;

	if (!(slot->index & STAGED)) {
		xts_queue_submit(q->base.inner, slot, bytes);
	} else if (!q->packet_bytes || (send_waiting(q) && send(q, slot->data, bytes))) {
		give_back(q, staged); /* sent, or of an epoch that has ended */
	} else {
		last = (q->first + q->waiting_count++) % FRAMES_MAX;
		q->waiting[last].staged = staged;
		q->waiting[last].bytes = bytes;
	}
}

static void parts_abandon(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	if (slot->index & STAGED)
		give_back(parts_of(base), slot->index & ~STAGED);
	else
		xts_queue_abandon(parts_of(base)->base.inner, slot);
}

static int parts_kick(struct xts_queue *base)
{
	struct parts_queue *q = parts_of(base);
	int error;

	(void)send_waiting(q);
	error = xts_queue_kick(q->base.inner);
	sync_stats(q);
	return error || !q->waiting_count ? error : -EAGAIN;
}

static void parts_retain(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	if (!(slot->index & STAGED)) /* ours stay as they are until they are given back */
		xts_queue_retain(parts_of(base)->base.inner, slot);
}

/* A copy leaves each time. */
static int parts_submit_retained(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct parts_queue *q = parts_of(base);

	if (!(slot->index & STAGED))
		return xts_queue_submit_retained(q->base.inner, slot, bytes);
	return !q->packet_bytes || (send_waiting(q) && send(q, slot->data, bytes)) ? 0 : -EAGAIN;
}

static void parts_release(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	if (slot->index & STAGED)
		give_back(parts_of(base), slot->index & ~STAGED);
	else
		xts_queue_release(parts_of(base)->base.inner, slot);
}

/* --- receive ------------------------------------------------------------------------------------------------------ */

static void recycle_parts(struct parts_queue *q, struct lent *l)
{
	for (uint32_t i = 0; i < l->count; i++)
		xts_queue_recycle(q->base.inner, &l->part[i]);
	l->count = 0;
}

static void count_invalid(struct parts_queue *q)
{
	q->invalid++;
	sync_stats(q);
}

/* Drops what has come of a frame, if something has. */
static void drop_coming(struct parts_queue *q)
{
	if (q->coming == NONE)
		return;
	recycle_parts(q, &q->lent[q->coming]);
	q->coming = NONE;
	count_invalid(q);
}

static bool is_part(const struct xts_rx_frame *frame)
{
	struct xts_head head;

	return !xts_head_decode(&head, frame->segment[0].iov_base, frame->segment[0].iov_len) &&
	       head.type == XTS_LINK_PART;
}

/* The frame that this part goes on with, or begins; NULL: there is none. */
static struct lent *frame_of(struct parts_queue *q, const struct xts_part *m)
{
	if (!m->offset) {
		drop_coming(q);
		for (uint32_t i = 0; i < LENT_MAX; i++) {
			if (q->lent[i].count)
				continue;
			q->coming = i;
			q->lent[i].bytes = 0;
			q->lent[i].frame_bytes = m->frame_bytes;
			return &q->lent[i];
		}
	}
	return q->coming == NONE ? NULL : &q->lent[q->coming];
}

/* Adds a part to its frame. False: it is none of a frame that there may be. */
static bool add(struct parts_queue *q, const struct xts_rx_frame *packet)
{
	struct xts_part m;
	struct lent *l;

	if (!q->packet_bytes || packet->segments != 1 ||
	    xts_part_decode(&m, packet->segment[0].iov_base, packet->bytes) || !m.length ||
	    m.frame_bytes > xts_parts_frame_bytes(q->peer_bytes) - XTS_ETH_BYTES)
		return false;
	l = frame_of(q, &m);
	if (!l || m.offset != l->bytes || m.frame_bytes != l->frame_bytes || m.length > l->frame_bytes - l->bytes ||
	    l->count == XTS_PARTS_MAX)
		return false;
	l->part[l->count] = *packet;
	l->part[l->count++].segment[0].iov_len = XTS_PART_BYTES + m.length;
	l->bytes += m.length;
	return true;
}

/* What a part carries. */
static struct iovec payload_of(const struct xts_rx_frame *part)
{
	return (struct iovec){ .iov_base = (uint8_t *)part->segment[0].iov_base + XTS_PART_BYTES,
			       .iov_len = part->segment[0].iov_len - XTS_PART_BYTES };
}

/* All parts are there: lends them out as one frame. */
static void lend(struct parts_queue *q, struct xts_rx_frame *frame)
{
	struct lent *l = &q->lent[q->coming];
	size_t have = XTS_ETH_BYTES;

	frame->bytes = XTS_ETH_BYTES + l->frame_bytes;
	frame->cookie = LENT_COOKIE | q->coming;
	frame->segments = 1;
	memcpy(l->beginning, l->part[0].segment[0].iov_base, XTS_ETH_BYTES);
	for (uint32_t i = 0; i < l->count; i++) {
		struct iovec piece = payload_of(&l->part[i]);
		size_t n = piece.iov_len < WHOLE_BYTES - have ? piece.iov_len : WHOLE_BYTES - have;

		memcpy(l->beginning + have, piece.iov_base, n);
		have += n;
		piece.iov_base = (uint8_t *)piece.iov_base + n;
		piece.iov_len -= n;
		if (piece.iov_len)
			frame->segment[frame->segments++] = piece;
	}
	frame->segment[0].iov_base = l->beginning;
	frame->segment[0].iov_len = have;
	q->coming = NONE;
}

/* 1: a frame; 0: none, or what came is none yet. */
static int take(struct parts_queue *q, struct xts_rx_frame *frame)
{
	if (!is_part(frame)) {
		drop_coming(q);
		return 1;
	}
	if (!add(q, frame)) {
		count_invalid(q);
		xts_queue_recycle(q->base.inner, frame);
		return 0;
	}
	if (q->lent[q->coming].bytes < q->lent[q->coming].frame_bytes)
		return 0;
	lend(q, frame);
	return 1;
}

static int parts_receive(struct xts_queue *base, struct xts_rx_frame *frame)
{
	struct parts_queue *q = parts_of(base);

	/* As many as a frame has at most; then the caller has its turn. */
	for (uint32_t i = 0; i < XTS_PARTS_MAX; i++) {
		int got = xts_queue_receive(q->base.inner, frame);

		if (!got)
			return 0;
		sync_stats(q);
		if (got < 0 || take(q, frame))
			return got;
	}
	return 0;
}

static void parts_recycle(struct xts_queue *base, const struct xts_rx_frame *frame)
{
	struct parts_queue *q = parts_of(base);

	if (frame->cookie & LENT_COOKIE)
		recycle_parts(q, &q->lent[frame->cookie & ~LENT_COOKIE]);
	else
		xts_queue_recycle(q->base.inner, frame);
}

static int parts_arm(struct xts_queue *base)
{
	int ready = xts_queue_arm(parts_of(base)->base.inner);

	sync_stats(parts_of(base));
	return ready;
}

static void parts_disarm(struct xts_queue *base)
{
	xts_queue_disarm(parts_of(base)->base.inner);
	sync_stats(parts_of(base));
}

static void parts_close(struct xts_queue *base)
{
	struct parts_queue *q = parts_of(base);

	xts_queue_close(q->base.inner);
	xts_release(q->memory);
	xts_release(q);
}

static const struct xts_queue_ops parts_ops = {
	.kind = "parts",
	.acquire = parts_acquire,
	.submit = parts_submit,
	.abandon = parts_abandon,
	.kick = parts_kick,
	.receive = parts_receive,
	.recycle = parts_recycle,
	.arm = parts_arm,
	.disarm = parts_disarm,
	.close = parts_close,
	.retain = parts_retain,
	.submit_retained = parts_submit_retained,
	.release = parts_release,
};

/* The largest frame in parts, whatever packets the other end can receive. */
static uint32_t frame_bytes_max(const struct xts_queue *inner)
{
	uint32_t packet = inner->largest_message < XTS_FRAME_BYTES_SINGLE ? inner->largest_message :
									    XTS_FRAME_BYTES_SINGLE;

	return xts_parts_frame_bytes(packet);
}

int xts_parts_wrap(struct xts_queue **out, struct xts_queue *inner)
{
	struct parts_queue *q = calloc(1, sizeof *q);

	if (q)
		q->memory = calloc(FRAMES_MAX, sizeof *q->memory);
	if (!q || !q->memory) {
		free(q);
		return -ENOMEM;
	}
	q->base = *inner;
	q->base.ops = &parts_ops;
	q->base.packet_bytes = inner->largest_message;
	if (q->base.largest_message < frame_bytes_max(inner))
		q->base.largest_message = frame_bytes_max(inner);
	q->base.inner = inner;
	q->coming = NONE;
	while (q->free_count < FRAMES_MAX)
		give_back(q, q->free_count);
	*out = &q->base;
	return 0;
}

void xts_parts_unwrap(struct xts_queue *base)
{
	if (base)
		free(parts_of(base)->memory);
	free(base);
}

void xts_parts_use(struct xts_queue *base, uint32_t packet_bytes, uint32_t peer_bytes)
{
	struct parts_queue *q = parts_of(base);

	drop_coming(q);
	for (; q->waiting_count; q->waiting_count--) { /* their epoch has ended */
		give_back(q, q->waiting[q->first].staged);
		q->first = (q->first + 1) % FRAMES_MAX;
	}
	q->packet_bytes = packet_bytes;
	q->peer_bytes = peer_bytes;
}
