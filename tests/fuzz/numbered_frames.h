/* Frames with numbers, for fuzz targets: each has the next one, and a length by it. They are to come in that order and
 * whole; received ones are held, and recycled in any order. */
#ifndef XTS_NUMBERED_FRAMES_H
#define XTS_NUMBERED_FRAMES_H

#include <string.h>

#include "memory_queue.h"

#define HELD_MOST 64u

struct numbered {
	struct xts_queue *queue;
	struct xts_rx_frame held[HELD_MOST];
	unsigned held_max, held_count;
	uint32_t submitted, received;
};

/* Of all bytes that were lent out: so each is read. */
static uint32_t checksum;

static inline uint32_t numbered_length(uint32_t number)
{
	return XTS_SEND_BYTES + number * 37 % 700;
}

/* Submits the next one as a message of this type. on_way: how many are sent or held at the other end already. */
static inline void numbered_submit(struct numbered *n, uint32_t on_way, uint8_t type)
{
	uint32_t bytes = numbered_length(n->submitted);
	struct xts_tx_slot slot;

	if (on_way >= WINDOW || xts_queue_acquire(n->queue, &slot))
		return;
	ENSURE(bytes <= slot.capacity);
	memset(slot.data, 0, bytes);
	slot.data[XTS_ETH_BYTES] = type;
	xts_put32(slot.data + XTS_HEAD_BYTES, n->submitted++);
	xts_queue_submit(n->queue, &slot, bytes);
}

/* hostile: it may be any frame. */
static inline void numbered_receive(struct numbered *n, bool hostile)
{
	struct xts_rx_frame *f = &n->held[n->held_count];
	uint32_t bytes = 0;

	if (n->held_count == n->held_max || xts_queue_receive(n->queue, f) != 1)
		return;
	for (uint32_t i = 0; i < f->segments; i++) {
		for (size_t at = 0; at < f->segment[i].iov_len; at++)
			checksum += ((const uint8_t *)f->segment[i].iov_base)[at];
		bytes += (uint32_t)f->segment[i].iov_len;
	}
	ENSURE(bytes == f->bytes);
	if (!hostile) {
		ENSURE(f->bytes == numbered_length(n->received));
		ENSURE(xts_get32((const uint8_t *)f->segment[0].iov_base + XTS_HEAD_BYTES) == n->received);
	}
	n->received++;
	n->held_count++;
}

static inline void numbered_recycle(struct numbered *n, unsigned which)
{
	if (!n->held_count)
		return;
	which %= n->held_count;
	xts_queue_recycle(n->queue, &n->held[which]);
	n->held[which] = n->held[--n->held_count];
}

#endif
