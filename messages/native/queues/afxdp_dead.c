/*
 * A queue over an AF_XDP socket whose process has died, at any instruction, and has left its struct in shared memory.
 *
 * Theory of operation. The rings are the kernel's, and right; what that process had of them is in its struct, which may
 * say whatever it likes. Each chunk is in one place: here it is found out in which, and what nobody has any more goes
 * back into the fill ring.
 *
 * afxdp_orphan.c does with the rings alone, for a proxy that has nothing else of a dead one. It has to look twice, 10
 * ms apart, and not at a driver that uses the memory itself; frames that the dead process had received, and those that
 * it had not published, are lost there. With the struct they are found, at once, and so are the bytes in them.
 */
#include "queues/afxdp.h"
#include "queues/afxdp_inside.h"

/* The first descriptor of the frame whose last one is before `end`, or `low`. */
static uint32_t frame_begins(struct afxdp_queue *q, uint32_t end, uint32_t low)
{
	uint32_t at = end - 1;

	while (at != low && xts_ring_descriptor(&q->rx, at - 1)->options & XDP_PKT_CONTD)
		at--;
	return at;
}

static bool all_are_lent(struct afxdp_queue *q, const bool *lent, uint32_t rx_chunks, uint32_t first, uint32_t end)
{
	for (uint32_t at = first; at != end; at++) {
		uint64_t chunk = afxdp_chunk_at(q, xts_ring_descriptor(&q->rx, at)->addr);

		if (chunk >= rx_chunks || !lent[chunk])
			return false;
	}
	return true;
}

/* The frames that the dead process had received and not given back are received once more. Their descriptors are still
 * in the ring, which has room for all chunks. Between two of them may be those of frames that were given back: channels
 * behind a relay do that each in its own time. So the ones to keep are moved together, behind the ring's end that is
 * ours. A frame is kept whole, or not at all; of a chunk the last descriptor counts. */
static void receive_again(struct afxdp_queue *q, bool *lent, uint32_t rx_chunks, uint32_t entries)
{
	uint32_t low = xts_ring_load(q->rx.producer) - entries, end = q->rx.ours, to = end;

	while (end != low) {
		uint32_t first = frame_begins(q, end, low);

		if (first == low)
			break; /* whether it begins there is not known */
		if (all_are_lent(q, lent, rx_chunks, first, end)) {
			for (uint32_t at = end; at != first;) {
				const struct xdp_desc d = *xts_ring_descriptor(&q->rx, --at);

				lent[afxdp_chunk_at(q, d.addr)] = false;
				*xts_ring_descriptor(&q->rx, --to) = d;
			}
		} else if (end == q->rx.ours && xts_ring_descriptor(&q->rx, end - 1)->options & XDP_PKT_CONTD) {
			break; /* the rest of it is in the ring, and nothing may come between */
		}
		end = first;
	}
	q->rx.ours = to;
}

/* Chunks that the dead process had received. Those that are still in the receive ring come from there. Those that it
 * was giving back are in the fill ring already, as far as that had been published. */
static void take_back_lent(struct afxdp_queue *q, const struct afxdp_queue *dead, uint32_t rx_chunks, uint32_t entries)
{
	bool lent[XTS_AFXDP_RING_ENTRIES_MAX];
	uint32_t given = q->fill.ours - dead->fill_from;

	memcpy(lent, dead->lent, sizeof lent);
	for (uint32_t at = q->rx.ours; at != xts_ring_load(q->rx.producer); at++) {
		uint64_t chunk = afxdp_chunk_at(q, xts_ring_descriptor(&q->rx, at)->addr);

		if (chunk < rx_chunks)
			lent[chunk] = false;
	}
	for (uint32_t i = 1; i <= given && i <= XTS_SEGMENTS_MAX && i <= entries; i++) {
		uint64_t chunk = afxdp_chunk_at(q, *xts_ring_address(&q->fill, q->fill.ours - i));

		if (chunk < rx_chunks)
			lent[chunk] = false;
	}
	receive_again(q, lent, rx_chunks, entries);
	for (uint32_t chunk = 0; chunk < rx_chunks; chunk++)
		if (lent[chunk])
			*xts_ring_address(&q->fill, q->fill.ours++) = afxdp_chunk_address(q, chunk);
	xts_ring_store(q->fill.producer, q->fill.ours);
}

/* How many descriptors the dead process had written, and not handed to the kernel: whole frames, in slots. They are
 * sent now, unless others have to be sent before them. */
static uint32_t unsent(const struct afxdp_queue *q, const struct afxdp_queue *dead, uint32_t entries)
{
	uint32_t count = dead->tx.ours - q->tx.ours, whole = 0;

	if (count > entries || dead->again.count)
		return 0;
	for (uint32_t i = 0; i < count; i++) {
		const struct xdp_desc *d = xts_ring_descriptor(&q->tx, q->tx.ours + i);

		if (d->addr < q->rx_bytes_end || d->addr >= q->rx_bytes_end + (uint64_t)q->tx_slots * q->slot_bytes ||
		    !d->len || d->len > q->chunk_bytes)
			return 0;
		if (!(d->options & XDP_PKT_CONTD))
			whole = i + 1;
	}
	return whole;
}

static uint64_t slot_of(const struct afxdp_queue *q, uint32_t unsent)
{
	return (xts_ring_descriptor(&q->tx, q->tx.ours + unsent)->addr - q->rx_bytes_end) / q->slot_bytes;
}

/* Slots that are on their way come back by the completion ring. Those that were not handed to the kernel are free. */
static void find_slots(struct afxdp_queue *q, const struct afxdp_queue *dead, uint32_t entries)
{
	uint32_t unpublished = dead->tx.ours - q->tx.ours, sent = unsent(q, dead, entries);

	for (uint32_t slot = 0; slot < q->tx_slots; slot++)
		q->on_their_way[slot] = dead->on_their_way[slot];
	for (uint32_t i = 0; i < dead->again.count && i < AFXDP_SLOTS_MAX; i++) {
		uint16_t slot = dead->again.frame[(dead->again.first + i) % AFXDP_SLOTS_MAX].slot;

		if (slot < q->tx_slots)
			q->on_their_way[slot] = 0;
	}
	for (uint32_t i = sent; i < unpublished && unpublished <= entries; i++) {
		uint64_t address = xts_ring_descriptor(&q->tx, q->tx.ours + i)->addr - q->rx_bytes_end;

		if (address / q->slot_bytes < q->tx_slots)
			q->on_their_way[address / q->slot_bytes] = 0;
	}
	for (uint32_t i = 0; i < sent; i++)
		q->on_their_way[slot_of(q, i)] = 0;
	for (uint32_t i = 0; i < sent; i++)
		q->on_their_way[slot_of(q, i)]++;
	q->tx.ours += sent;
	q->free_count = 0;
	for (uint32_t slot = q->tx_slots; slot--;)
		if (!q->on_their_way[slot])
			q->free[q->free_count++] = (uint16_t)slot;
}

void afxdp_go_on_dead(struct afxdp_queue *q, const struct afxdp_queue *dead, uint32_t rx_chunks, uint32_t entries)
{
	take_back_lent(q, dead, rx_chunks, entries);
	find_slots(q, dead, entries);
	q->kick_again = true; /* what it had published, the kernel may not have looked at */
}

void *afxdp_dead_slot(struct xts_queue *base, const void *dead, uint64_t place, uint32_t bytes)
{
	struct afxdp_queue *q = (struct afxdp_queue *)base;
	uint64_t at = place - (uintptr_t)((const struct afxdp_queue *)dead)->umem;

	return at >= q->rx_bytes_end && at < q->umem_bytes && bytes <= q->umem_bytes - at ? q->umem + at : NULL;
}
