/*
 * Queues over an AF_XDP socket: the data path.
 *
 * Theory of operation
 *
 * The UMEM begins with rx_chunks chunks for receiving; each is always in exactly one place: the fill ring, the kernel,
 * the receive ring, or lent to the caller. The fill ring has room for all of them, so recycling never fails and needs
 * no list. Behind them lie the transmit slots, contiguous memory that goes out as a chain of descriptors of one chunk
 * each (XDP_PKT_CONTD on all but the last). The completion ring brings the chunks back one by one; a slot is free when
 * its last one is back.
 *
 * A kick is one sendto(MSG_DONTWAIT). EAGAIN and ENOBUFS leave the frames in the ring: kick again. EBUSY means that the
 * kernel took one frame and lost it: afxdp_again.c.
 */
#include "queues/afxdp.h"
#include "queues/afxdp_inside.h"
#include "queues/afxdp_umem.h"
#include "common/own_descriptors.h"
#include "common/own_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* the headers of some distributions on which we build lack it */
#endif
/* Reading the kernel's drop counter costs a system call: done once in this many sleeps. */
#define AFXDP_STATS_EVERY 64u

static struct afxdp_queue *afxdp_of(struct xts_queue *q)
{
	return (struct afxdp_queue *)q;
}

/* Takes back the chunks that the kernel has sent. */
void afxdp_reclaim(struct afxdp_queue *q)
{
	uint32_t end = xts_ring_load(q->completion.producer);

	if (end == q->completion.ours)
		return;
	for (; q->completion.ours != end; q->completion.ours++) {
		uint64_t address = *xts_ring_address(&q->completion, q->completion.ours) - q->rx_bytes_end;
		uint64_t slot = address / q->slot_bytes; /* an address below the slots has wrapped to a huge one */

		if (slot >= q->tx_slots || !q->on_their_way[slot])
			continue;
		if (--q->on_their_way[slot] == 0 && !q->retained[slot])
			q->free[q->free_count++] = (uint16_t)slot;
	}
	xts_ring_store(q->completion.consumer, q->completion.ours);
}

static int afxdp_acquire(struct xts_queue *base, struct xts_tx_slot *slot)
{
	struct afxdp_queue *q = afxdp_of(base);

	afxdp_reclaim(q);
	if (!q->free_count) {
		base->stats.tx_no_slot++;
		return -EAGAIN;
	}
	slot->index = q->free[--q->free_count];
	slot->data = q->umem + q->rx_bytes_end + (size_t)slot->index * q->slot_bytes;
	slot->capacity = base->largest_message;
	return 0;
}

void afxdp_describe(struct afxdp_queue *q, uint32_t slot, uint32_t bytes)
{
	uint64_t address = q->rx_bytes_end + (uint64_t)slot * q->slot_bytes;
	uint8_t chunks = 0;

	while (bytes) {
		struct xdp_desc *d = xts_ring_descriptor(&q->tx, q->tx.ours++);

		d->addr = address;
		d->len = bytes < q->chunk_bytes ? bytes : q->chunk_bytes;
		bytes -= d->len;
		d->options = bytes ? XDP_PKT_CONTD : 0;
		address += q->chunk_bytes;
		chunks++;
	}
	q->on_their_way[slot] = chunks;
}

static void afxdp_submit(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct afxdp_queue *q = afxdp_of(base);

	base->stats.tx_frames++;
	base->stats.tx_bytes += bytes;
	if (__builtin_expect(q->again.count, 0))
		afxdp_again_behind(q, slot->index, bytes);
	else
		afxdp_describe(q, slot->index, bytes);
}

static void afxdp_abandon(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	struct afxdp_queue *q = afxdp_of(base);

	q->free[q->free_count++] = (uint16_t)slot->index;
}

static void afxdp_retain(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	afxdp_of(base)->retained[slot->index] = true;
}

/* Not while it is on its way: the transmit ring has room for each slot once. */
static int afxdp_submit_retained(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct afxdp_queue *q = afxdp_of(base);

	afxdp_reclaim(q);
	if (q->on_their_way[slot->index])
		return -EAGAIN;
	afxdp_submit(base, slot, bytes);
	return 0;
}

static void afxdp_release(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	afxdp_of(base)->retained[slot->index] = false;
	if (!afxdp_of(base)->on_their_way[slot->index])
		afxdp_abandon(base, slot);
}

int afxdp_send(struct afxdp_queue *q)
{
	xts_ring_store(q->tx.producer, q->tx.ours);
	/* The producer before the flags: in zero-copy mode the driver may have gone to sleep. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	/* A card that is polled sends when it is, and so does not ask. */
	if (!(xts_ring_load(q->tx.flags) & XDP_RING_NEED_WAKEUP) && !q->card_known)
		return 0;
	q->base.stats.kicks++;
	return sendto(q->xsk_fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 ? -errno : 0;
}

static int afxdp_kick(struct xts_queue *base)
{
	struct afxdp_queue *q = afxdp_of(base);
	int error;

	if (__builtin_expect(q->again.count, 0)) {
		error = afxdp_again_first(q);
		if (error)
			return error;
	}
	if (q->tx_kicked == q->tx.ours && !q->kick_again)
		return 0;
	q->tx_kicked = q->tx.ours;
	q->kick_again = false;
	error = afxdp_send(q);
	switch (error) {
	case 0:
		q->tx_taken = q->tx.ours;
		return 0;
	case -EBUSY:
		afxdp_again_take_back(q);
		/* fall through */
	case -EAGAIN:
	case -ENOBUFS:
	case -EINTR:
		q->kick_again = true;
		base->stats.kicks_again++;
		return -EAGAIN;
	default: /* ENETDOWN: the device may come back, and the frames are still in the ring; ENXIO: it is gone */
		q->kick_again = true;
		return error;
	}
}

static void afxdp_fill(struct afxdp_queue *q, uint64_t chunk)
{
	*xts_ring_address(&q->fill, q->fill.ours++) = afxdp_chunk_address(q, chunk);
}

/* Is this a part of a receive chunk? */
static bool afxdp_piece_ok(const struct afxdp_queue *q, const struct xdp_desc *d)
{
	uint64_t in_chunk = d->addr & (q->chunk_bytes - 1);

	return d->addr < q->rx_bytes_end && d->len && in_chunk + d->len <= q->chunk_bytes;
}

/* Collects the chain of count descriptors at our index into frame. False: it is not a valid frame; its chunks are
 * free. */
static bool afxdp_gather(struct afxdp_queue *q, uint32_t count, struct xts_rx_frame *frame)
{
	bool ok = count <= XTS_SEGMENTS_MAX;

	frame->bytes = 0;
	frame->segments = 0;
	frame->cookie = 0;
	for (uint32_t i = 0; i < count && ok; i++) {
		struct xdp_desc d = *xts_ring_descriptor(&q->rx, q->rx.ours + i);

		ok = afxdp_piece_ok(q, &d) && frame->bytes + d.len <= q->base.largest_message;
		frame->segment[i].iov_base = q->umem + (ok ? d.addr : 0);
		frame->segment[i].iov_len = d.len;
		frame->bytes += d.len;
		frame->segments++;
	}
	if (ok)
		return true;
	for (uint32_t i = 0; i < count; i++) {
		struct xdp_desc d = *xts_ring_descriptor(&q->rx, q->rx.ours + i);

		if (d.addr < q->rx_bytes_end)
			afxdp_fill(q, afxdp_chunk_at(q, d.addr));
	}
	xts_ring_store(q->fill.producer, q->fill.ours);
	return false;
}

/* The chunk of a piece of a frame that was gathered. */
static uint64_t afxdp_chunk_of(const struct afxdp_queue *q, const struct xts_rx_frame *frame, uint32_t piece)
{
	return afxdp_chunk_at(q, (uint64_t)((uint8_t *)frame->segment[piece].iov_base - q->umem));
}

static int afxdp_receive(struct xts_queue *base, struct xts_rx_frame *frame)
{
	struct afxdp_queue *q = afxdp_of(base);

	for (;;) {
		uint32_t waiting = xts_ring_load(q->rx.producer) - q->rx.ours;
		uint32_t count = 0;
		bool more = true;
		bool ok;

		while (more && count < waiting)
			more = xts_ring_descriptor(&q->rx, q->rx.ours + count++)->options & XDP_PKT_CONTD;
		if (more) { /* nothing has come, or the end of the chain is not here yet */
			if (q->looks && afxdp_look(q))
				continue;
			return 0;
		}
		ok = afxdp_gather(q, count, frame);
		for (uint32_t i = 0; i < frame->segments && ok; i++)
			q->lent[afxdp_chunk_of(q, frame, i)] = true;
		q->rx.ours += count;
		xts_ring_store(q->rx.consumer, q->rx.ours);
		if (ok) {
			base->stats.rx_frames++;
			base->stats.rx_bytes += frame->bytes;
			return 1;
		}
		base->stats.rx_invalid++;
	}
}

static void afxdp_recycle(struct xts_queue *base, const struct xts_rx_frame *frame)
{
	struct afxdp_queue *q = afxdp_of(base);

	q->fill_from = q->fill.ours;
	for (uint32_t i = 0; i < frame->segments; i++)
		afxdp_fill(q, afxdp_chunk_of(q, frame, i));
	xts_ring_store(q->fill.producer, q->fill.ours);
	for (uint32_t i = 0; i < frame->segments; i++)
		q->lent[afxdp_chunk_of(q, frame, i)] = false;
}

static void afxdp_read_drops(struct afxdp_queue *q)
{
	struct xdp_statistics s;
	socklen_t length = sizeof s;

	/* rx_dropped has those that found no buffer. rx_fill_ring_empty_descs has them once more in copy mode, and with
	 * zero copy how often the driver has found none to keep ready, which costs no frame. */
	if (getsockopt(q->xsk_fd, SOL_XDP, XDP_STATISTICS, &s, &length) == 0 && length == sizeof s)
		q->base.stats.rx_dropped = s.rx_dropped + s.rx_ring_full;
}

static int afxdp_arm(struct xts_queue *base)
{
	struct afxdp_queue *q = afxdp_of(base);

	if (q->looks)
		(void)afxdp_look(q);
	if (xts_ring_load(q->rx.producer) != q->rx.ours)
		return 1;
	if (base->stats.sleeps++ % AFXDP_STATS_EVERY == 0)
		afxdp_read_drops(q);
	return 0;
}

static void afxdp_disarm(struct xts_queue *base)
{
	if (xts_ring_load(afxdp_of(base)->rx.producer) != afxdp_of(base)->rx.ours)
		base->stats.wakeups++;
}

static void afxdp_unmap(struct afxdp_queue *q)
{
	xts_ring_unmap(&q->fill);
	xts_ring_unmap(&q->completion);
	xts_ring_unmap(&q->rx);
	xts_ring_unmap(&q->tx);
	if (q->umem != MAP_FAILED)
		munmap(q->umem, q->umem_bytes);
}

static void afxdp_close(struct xts_queue *base)
{
	struct afxdp_queue *q = afxdp_of(base);

	afxdp_unmap(q);
	xts_own_close(q->xsk_fd);
	xts_own_close(q->umem_fd);
	if (!base->placed)
		xts_release(q);
}

/* The descriptors stay the caller's. */
static void afxdp_forget(struct afxdp_queue *q)
{
	afxdp_unmap(q);
	free(q);
}

/* All that another process has to know is in the rings, once the kernel has sent everything. */
static int afxdp_leave(struct xts_queue *base, int *fds, uint8_t *state)
{
	struct afxdp_queue *q = afxdp_of(base);

	(void)state;
	(void)afxdp_kick(base);
	afxdp_reclaim(q);
	if (q->free_count < q->tx_slots)
		return -EAGAIN;
	fds[XTS_AFXDP_SOCKET] = fcntl(q->xsk_fd, F_DUPFD_CLOEXEC, 0);
	fds[XTS_AFXDP_UMEM] = fcntl(q->umem_fd, F_DUPFD_CLOEXEC, 0);
	if (fds[XTS_AFXDP_SOCKET] >= 0 && fds[XTS_AFXDP_UMEM] >= 0)
		return 0;
	for (unsigned i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return -EMFILE;
}

static const struct xts_queue_ops afxdp_ops = {
	.kind = "afxdp",
	.acquire = afxdp_acquire,
	.submit = afxdp_submit,
	.abandon = afxdp_abandon,
	.kick = afxdp_kick,
	.receive = afxdp_receive,
	.recycle = afxdp_recycle,
	.arm = afxdp_arm,
	.disarm = afxdp_disarm,
	.close = afxdp_close,
	.retain = afxdp_retain,
	.submit_retained = afxdp_submit_retained,
	.release = afxdp_release,
	.leave = afxdp_leave,
	.dead_slot = afxdp_dead_slot,
	.struct_bytes = sizeof(struct afxdp_queue),
};

/* Of the largest frame. A received chunk holds XTS_FRAME_BYTES_SINGLE bytes. */
static uint32_t afxdp_frame_chunks(const struct xts_attach_reply *g)
{
	return xts_parts_needed(g->largest_message) ?
		       XTS_PARTS_MAX :
		       (g->largest_message + XTS_FRAME_BYTES_SINGLE - 1) / XTS_FRAME_BYTES_SINGLE;
}

/* The chunks for frames that are kept longer than their credit. */
static int afxdp_kept(const struct xts_attach_reply *g)
{
	return xts_queue_kept_of(g->rx_chunks, g->frame_window, afxdp_frame_chunks(g));
}

/* Those of them that are for keeping: with zero copy the card has as many as the window (afxdp_open.c), unless an older
 * program has opened the queue. */
static uint32_t afxdp_kept_max(const struct xts_attach_reply *g, bool zero_copy)
{
	uint32_t kept = (uint32_t)afxdp_kept(g), cards = zero_copy ? g->frame_window * afxdp_frame_chunks(g) : 0;

	if (kept >= cards)
		kept -= cards;
	return kept < XTS_QUEUE_KEPT_MAX ? kept : XTS_QUEUE_KEPT_MAX;
}

/* A queue with several buffers a frame has them for parts, too, whatever packets the other end can receive. */
static uint32_t afxdp_traits(const struct xts_attach_reply *g)
{
	if (g->largest_message > XTS_FRAME_BYTES_SINGLE)
		return XTS_QUEUE_FRAGMENTS | XTS_QUEUE_PARTS;
	return xts_parts_needed(g->largest_message) ? XTS_QUEUE_PARTS : 0;
}

/* Small chunks are for frames of one. */
static bool afxdp_chunks_ok(const struct xts_attach_reply *g)
{
	if (g->chunk_bytes == XTS_CHUNK_BYTES)
		return g->slot_bytes % XTS_CHUNK_BYTES == 0;
	return g->chunk_bytes == XTS_CHUNK_SMALL_BYTES && g->slot_bytes == XTS_CHUNK_SMALL_BYTES &&
	       g->largest_message <= XTS_CHUNK_SMALL_BYTES - XTS_CHUNK_HEADROOM;
}

static bool afxdp_geometry_ok(const struct xts_attach_reply *g)
{
	uint32_t entries = g->ring_entries;

	return g->kind == XTS_QUEUE_AFXDP && afxdp_chunks_ok(g) && g->frame_window >= XTS_FRAME_WINDOW_MIN &&
	       g->frame_window <= XTS_FRAME_WINDOW_MAX && g->largest_message >= XTS_FRAME_BYTES_LEAST &&
	       g->largest_message <= XTS_FRAME_BYTES_MAX && g->slot_bytes >= g->largest_message &&
	       g->slot_bytes <= XTS_AFXDP_SLOT_BYTES && g->tx_slots >= g->frame_window + XTS_CONTROL_RESERVE &&
	       g->tx_slots <= AFXDP_SLOTS_MAX && entries && entries <= XTS_AFXDP_RING_ENTRIES_MAX &&
	       (entries & (entries - 1)) == 0 && g->rx_chunks <= entries && afxdp_kept(g) >= 0 &&
	       g->tx_slots * (g->slot_bytes / g->chunk_bytes) <= entries;
}

static int afxdp_map(struct afxdp_queue *q, uint32_t entries)
{
	struct xdp_mmap_offsets at;
	int error = xts_ring_offsets(q->xsk_fd, &at);

	if (!error)
		error = xts_ring_map(&q->fill, q->xsk_fd, &at.fr, XDP_UMEM_PGOFF_FILL_RING, entries, sizeof(uint64_t));
	if (!error)
		error = xts_ring_map(&q->completion, q->xsk_fd, &at.cr, XDP_UMEM_PGOFF_COMPLETION_RING, entries,
				     sizeof(uint64_t));
	if (!error)
		error = xts_ring_map(&q->rx, q->xsk_fd, &at.rx, XDP_PGOFF_RX_RING, entries, sizeof(struct xdp_desc));
	if (!error)
		error = xts_ring_map(&q->tx, q->xsk_fd, &at.tx, XDP_PGOFF_TX_RING, entries, sizeof(struct xdp_desc));
	if (error)
		return error;
	q->umem = mmap(NULL, q->umem_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, q->umem_fd, 0);
	if (q->umem == MAP_FAILED || madvise(q->umem, q->umem_bytes, MADV_DONTFORK) < 0)
		return -errno;
	return 0;
}

/* Whoever used the socket has left it: all chunks for receiving are in the fill ring, in the receive ring, or with the
 * kernel, and everything was sent. */
static void afxdp_go_on(struct afxdp_queue *q)
{
	q->fill.ours = *q->fill.producer;
	q->rx.ours = *q->rx.consumer;
	q->tx.ours = q->tx_kicked = *q->tx.producer;
	q->completion.ours = *q->completion.consumer;
}

/* The socket has pinned it anyway. No effect before Linux 5.14. */
static void afxdp_populate(struct xts_queue *queue)
{
	struct afxdp_queue *q = afxdp_of(queue);

	(void)madvise(q->umem, q->umem_bytes, MADV_POPULATE_WRITE);
}

/* Maps the rings and the UMEM (MADV_DONTFORK), and fills the fill ring. Needs no privilege (Linux 6.6 or later if
 * another process has bound the socket). The ends are alike: an interface has one on each side. */
static int afxdp_make(struct xts_queue **out, const int *fds, const struct xts_attach_reply *g, bool used)
{
	int xsk_fd = fds[XTS_AFXDP_SOCKET], umem_fd = fds[XTS_AFXDP_UMEM];
	size_t umem_bytes;
	struct afxdp_queue *q;
	uint32_t filled;
	int error;

	if (!afxdp_geometry_ok(g))
		return -EINVAL;
	umem_bytes = (size_t)g->rx_chunks * g->chunk_bytes + (size_t)g->tx_slots * g->slot_bytes;
	umem_bytes = xts_umem_mapped(umem_fd, umem_bytes);
	if (!umem_bytes)
		return -EBADF;
	q = calloc(1, sizeof *q);
	if (!q)
		return -ENOMEM;
	q->xsk_fd = xsk_fd;
	q->umem_fd = umem_fd;
	q->umem_bytes = umem_bytes;
	q->umem = MAP_FAILED;
	error = afxdp_map(q, g->ring_entries);
	q->zero_copy = xts_afxdp_is_zero_copy(xsk_fd) == 1;
	q->busy_polls = afxdp_busy_polls(xsk_fd);
	q->looks = q->zero_copy || q->busy_polls;
	/* The state of the rings cannot be reset, so a socket that has been used is for who knows how it was left. */
	filled = q->zero_copy ? g->rx_chunks : 0;
	if (!error && !used && (*q->fill.producer != filled || *q->tx.producer || *q->rx.consumer))
		error = -EBUSY;
	if (error) {
		afxdp_forget(q);
		return error;
	}
	q->base.ops = &afxdp_ops;
	q->base.largest_message = g->largest_message;
	q->base.frame_window = g->frame_window;
	q->base.kept_max = afxdp_kept_max(g, q->zero_copy);
	q->base.traits = xts_queue_afxdp.traits | afxdp_traits(g);
	q->base.tx_slots = g->tx_slots;
	q->base.wait_fd = xsk_fd;
	memcpy(q->base.local_mac, g->local_mac, 6);
	memcpy(q->base.peer_mac, g->peer_mac, 6);
	q->chunk_bytes = g->chunk_bytes;
	q->chunk_shift = (uint32_t)__builtin_ctz(g->chunk_bytes);
	q->rx_bytes_end = afxdp_chunk_address(q, g->rx_chunks);
	q->tx_slots = g->tx_slots;
	q->slot_bytes = g->slot_bytes;
	for (q->free_count = 0; q->free_count < q->tx_slots; q->free_count++)
		q->free[q->free_count] = (uint16_t)(q->tx_slots - 1 - q->free_count);
	if (used)
		afxdp_go_on(q);
	else
		q->fill.ours = filled;
	for (uint32_t chunk = filled; chunk < g->rx_chunks && !used; chunk++)
		afxdp_fill(q, chunk);
	xts_ring_store(q->fill.producer, q->fill.ours);
	q->tx_taken = q->tx.ours;
	if (q->looks)
		(void)afxdp_look(q);
	*out = &q->base;
	return 0;
}

static int afxdp_adopt(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g)
{
	(void)end;
	return afxdp_make(out, fds, g, false);
}

static int afxdp_resume(struct xts_queue **out, enum xts_queue_end end, const int *fds,
			const struct xts_attach_reply *g, const uint8_t *state, uint32_t state_bytes)
{
	(void)end;
	(void)state;
	return state_bytes ? -EINVAL : afxdp_make(out, fds, g, true);
}

static int afxdp_adopt_orphan(struct xts_queue **out, enum xts_queue_end end, const int *fds,
			      const struct xts_attach_reply *g)
{
	struct xts_queue *queue;
	int error;

	(void)end;
	error = afxdp_make(&queue, fds, g, true);
	if (error)
		return error;
	error = afxdp_take_orphan(afxdp_of(queue), g->rx_chunks, g->ring_entries);
	if (!error)
		*out = queue;
	else
		afxdp_forget(afxdp_of(queue));
	return error;
}

static int afxdp_resume_dead(struct xts_queue **out, enum xts_queue_end end, const int *fds,
			     const struct xts_attach_reply *g, const void *dead, size_t dead_bytes)
{
	struct afxdp_queue *copy;
	int error;

	(void)end;
	if (dead_bytes < sizeof *copy)
		return -EINVAL;
	copy = malloc(sizeof *copy);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, dead, sizeof *copy);
	error = afxdp_make(out, fds, g, true);
	if (!error)
		afxdp_go_on_dead(afxdp_of(*out), copy, g->rx_chunks, g->ring_entries);
	free(copy);
	return error;
}

const struct xts_queue_kind xts_queue_afxdp = {
	.number = XTS_QUEUE_AFXDP,
	.name = "afxdp",
	.title = "AF_XDP",
	.descriptors = 2,
	.traits = XTS_QUEUE_KICK_COSTS | XTS_QUEUE_PACKETS | XTS_QUEUE_RETAINS,
	.open = xts_afxdp_open,
	.adopt = afxdp_adopt,
	.resume = afxdp_resume,
	.adopt_orphan = afxdp_adopt_orphan,
	.resume_dead = afxdp_resume_dead,
	.populate = afxdp_populate,
};
