/*
 * A queue over an AF_XDP socket whose process has ended at any instruction. The socket lives on, by a descriptor of
 * another process.
 *
 * Theory of operation. The rings are memory of the kernel's, and say where most chunks are: in the fill ring, in the
 * receive ring, in the transmit ring. Where the kernel copies, it has no others for receiving, except while it copies a
 * frame; so who looks twice, some milliseconds apart, sees each chunk that is not that process's. What is seen nowhere
 * was lent to it, and goes back into the fill ring. A driver that uses the memory itself (zero copy) has chunks that
 * nobody can see: such a queue has to be opened again.
 *
 * What was published for sending is sent. A chunk comes back for each descriptor that the kernel has taken, so when as
 * many have come back as went, nothing is on its way.
 *
 * That process may have been broken into, so nothing in the rings is believed.
 */
#include "queues/afxdp.h"
#include "queues/afxdp_inside.h"

#include <sched.h>
#include <time.h>

#define LOOK_AGAIN_NS 10000000

/* Marks the chunks that are in the fill ring and in the receive ring. */
static int mark(const struct afxdp_queue *q, bool *seen, uint32_t rx_chunks, uint32_t entries)
{
	uint32_t filled_from = xts_ring_load(q->fill.consumer), received = xts_ring_load(q->rx.producer);

	if (q->fill.ours - filled_from > entries || received - q->rx.ours > entries)
		return -EBADMSG;
	for (uint32_t at = filled_from; at != q->fill.ours; at++) {
		uint64_t chunk = afxdp_chunk_at(q, *xts_ring_address(&q->fill, at));

		if (chunk < rx_chunks)
			seen[chunk] = true;
	}
	for (uint32_t at = q->rx.ours; at != received; at++) {
		uint64_t chunk = afxdp_chunk_at(q, xts_ring_descriptor(&q->rx, at)->addr);

		if (chunk < rx_chunks)
			seen[chunk] = true;
	}
	return 0;
}

/* As worker processes may: without a system call that waits. */
static void let_time_pass(void)
{
	struct timespec began, now;

	clock_gettime(CLOCK_MONOTONIC, &began);
	do {
		sched_yield();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - began.tv_sec) * 1000000000 + now.tv_nsec - began.tv_nsec < LOOK_AGAIN_NS);
}

/* Chunks that nobody has any more go back into the fill ring. */
static int give_back_lent(struct afxdp_queue *q, uint32_t rx_chunks, uint32_t entries)
{
	bool seen[XTS_AFXDP_RING_ENTRIES_MAX] = { false };
	uint32_t fill = q->fill.ours;
	int error = mark(q, seen, rx_chunks, entries);

	let_time_pass();
	if (!error)
		error = mark(q, seen, rx_chunks, entries);
	if (error)
		return error;
	for (uint32_t chunk = 0; chunk < rx_chunks; chunk++) {
		if (seen[chunk])
			continue;
		if (fill - xts_ring_load(q->fill.consumer) >= entries)
			return -EBADMSG; /* some are in the ring twice */
		*xts_ring_address(&q->fill, fill++) = afxdp_chunk_address(q, chunk);
	}
	q->fill.ours = fill;
	xts_ring_store(q->fill.producer, q->fill.ours);
	return 0;
}

/* Has everything been sent? */
static bool all_is_sent(struct afxdp_queue *q)
{
	if (xts_ring_load(q->tx.consumer) != q->tx.ours)
		(void)afxdp_send(q);
	return xts_ring_load(q->tx.consumer) == q->tx.ours && xts_ring_load(q->completion.producer) == q->tx.ours;
}

int afxdp_take_orphan(struct afxdp_queue *q, uint32_t rx_chunks, uint32_t entries)
{
	if (q->zero_copy)
		return -EOPNOTSUPP;
	if (!all_is_sent(q))
		return -EAGAIN;
	q->completion.ours = q->tx.ours;
	xts_ring_store(q->completion.consumer, q->completion.ours);
	return give_back_lent(q, rx_chunks, entries);
}
