/*
 * Frames that the kernel lost are sent again.
 *
 * Theory of operation
 *
 * In copy mode the kernel sends frame after frame until one cannot leave. When the interface has no carrier (the other
 * end of the cable is down), or its queue is full, that one is lost: sendto() says EBUSY, and leaves all behind it in
 * the ring. The lost frame is still in its slot. So it can be sent again, before any other, and a link that is down for
 * a moment costs time and no frame, as for TCP.
 *
 * Which one was it? The kernel gives a lost frame's chunks back before sendto() returns, and has not touched those
 * behind it. So it is the last frame of the ring that has come back. The consumer index does not tell: kernels before
 * 6.17 publish it late.
 *
 * The frames behind it may not stay in the ring, for poll() on the socket sends from it, too, and tells nobody what it
 * loses. They are kept here, their descriptors become invalid, and the kernel is made to pass over them, one with each
 * call. From then on the first frame is tried alone, and when it has left the others go back into the ring.
 *
 * What this cannot know: what was lost behind the interface, or by a poll() that found a frame in the ring after
 * EAGAIN. The link sees the gap and ends.
 */
#include "queues/afxdp_inside.h"

#include <errno.h>

static uint32_t slot_of(const struct afxdp_queue *q, uint64_t address)
{
	return (uint32_t)((address - q->rx_bytes_end) / q->slot_bytes);
}

/* The frame whose first descriptor is at an index of the tx ring: its slot and size, and where the next one begins. */
static uint32_t frame_at(const struct afxdp_queue *q, uint32_t at, uint32_t *bytes, uint32_t *next)
{
	uint32_t slot = slot_of(q, xts_ring_descriptor(&q->tx, at)->addr);
	const struct xdp_desc *d;

	*bytes = 0;
	do {
		d = xts_ring_descriptor(&q->tx, at++);
		*bytes += d->len;
	} while (d->options & XDP_PKT_CONTD && at != q->tx.ours);
	*next = at;
	return slot;
}

/* A slot has come back, and is needed again. */
static void not_free(struct afxdp_queue *q, uint32_t slot)
{
	for (uint32_t i = q->free_count; i-- > 0;)
		if (q->free[i] == slot) {
			q->free[i] = q->free[--q->free_count];
			break;
		}
	q->on_their_way[slot] = 1;
}

void afxdp_again_behind(struct afxdp_queue *q, uint32_t slot, uint32_t bytes)
{
	struct afxdp_again *a = &q->again;
	uint32_t at = (a->first + a->count++) % AFXDP_SLOTS_MAX;

	a->frame[at].slot = (uint16_t)slot;
	a->frame[at].bytes = bytes;
	q->on_their_way[slot] = 1;
}

/* The index of the lost frame; that behind the last one if there is none, which no kernel should do. */
static uint32_t lost_frame(struct afxdp_queue *q)
{
	uint32_t lost = q->tx.ours, bytes, next;

	afxdp_reclaim(q);
	for (uint32_t at = q->tx_taken; at != q->tx.ours; at = next) {
		uint32_t slot = frame_at(q, at, &bytes, &next);

		if (slot < q->tx_slots && !q->on_their_way[slot])
			lost = at;
	}
	return lost;
}

/* The kernel stops at a descriptor that is not valid, and goes on behind it with the next call. */
static void pass_over(struct afxdp_queue *q, uint32_t from)
{
	for (uint32_t at = from; at != q->tx.ours; at++) {
		struct xdp_desc *d = xts_ring_descriptor(&q->tx, at);

		d->addr = UINT64_MAX;
		d->len = d->options = 0;
	}
	for (uint32_t at = from; at != q->tx.ours; at++)
		(void)afxdp_send(q);
}

void afxdp_again_take_back(struct afxdp_queue *q)
{
	uint32_t lost = lost_frame(q), bytes, next, slot;

	if (lost == q->tx.ours) {
		q->base.stats.tx_lost++;
		return;
	}
	slot = frame_at(q, lost, &bytes, &next);
	not_free(q, slot);
	afxdp_again_behind(q, slot, bytes);
	lost = next;
	for (uint32_t at = next; at != q->tx.ours; at = next) {
		slot = frame_at(q, at, &bytes, &next);
		afxdp_again_behind(q, slot, bytes);
	}
	pass_over(q, lost);
	q->tx_taken = q->tx.ours;
	q->base.stats.tx_resent++;
}

int afxdp_again_first(struct afxdp_queue *q)
{
	struct afxdp_again *a = &q->again;
	uint32_t slot = a->frame[a->first].slot;
	int error;

	if (!a->tried)
		afxdp_describe(q, slot, a->frame[a->first].bytes);
	a->tried = true;
	error = afxdp_send(q);
	if (error == -EBUSY) {
		afxdp_reclaim(q);
		not_free(q, slot);
		a->tried = false;
	}
	if (error) {
		q->base.stats.kicks_again++;
		return error == -EBUSY || error == -ENOBUFS || error == -EINTR ? -EAGAIN : error;
	}
	a->tried = q->kick_again = false;
	q->tx_taken = q->tx_kicked = q->tx.ours;
	for (a->count--, a->first++; a->count; a->count--, a->first++) {
		uint32_t at = a->first % AFXDP_SLOTS_MAX;

		afxdp_describe(q, a->frame[at].slot, a->frame[at].bytes);
	}
	a->first = 0;
	return 0;
}
