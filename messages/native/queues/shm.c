/*
 * Queues over shared memory: a memfd with two directions, each a ring of descriptors from sender to receiver, a ring of
 * returned slots back, and slots of slot_bytes; and a pair of bells, rung only for an end that asked to be woken.
 * Either end may be hostile: indexes are checked against private copies, never trusted.
 *
 * The bells are the two ends of a Unix stream socket pair, not eventfds: the file flags of an eventfd are shared by
 * both holders, so that a hostile one could make the other block in read or write. Each end sleeps on its own bell, and
 * rings the other's by sending a byte on it. In addition, when a process ends, the other's bell shows end of file.
 *
 * Theory of operation
 *
 * In each direction the sender owns `published` and the ring of descriptors, and the receiver
 * owns `returned` and the ring of returned slot numbers. Both rings have at least as many entries as there are slots,
 * so neither can overflow and no consumer index needs to be shared: each side counts for itself how much it has taken.
 * Values that the other side wrote are read once, and checked: a counter may run ahead by no more than the number of
 * slots that can be on their way, and a slot must be in the state that its number requires (sent, for one that comes
 * back; not lent, for one that arrives). After a peer has violated this, receive returns -EPIPE and kick -ENXIO for
 * good.
 *
 * Sleeping: the receiver sets `sleeping`, issues a fence, and looks once more; the sender publishes, issues a fence,
 * and looks at `sleeping`. At least one of them sees the other's store, so the receiver never sleeps while a frame is
 * there. The sender clears the flag when it rings: one system call wakes the receiver, however many frames follow.
 */
#include "queues/shm_inside.h"

#include "common/own_descriptors.h"
#include "common/own_memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* If the peer rang a bell without clearing our flag, the bell is drained after this many disarms at the latest. */
#define SHM_DRAIN_EVERY 16u

void shm_reclaim(struct shm_queue *q)
{
	uint32_t count = atomic_load_explicit(&q->tx->returned, memory_order_acquire) - q->tx_reclaimed;

	if (count > q->tx_sent_slots) {
		q->broken = true;
		return;
	}
	for (; count; count--) {
		uint32_t slot = atomic_load_explicit(&q->tx->back[q->tx_reclaimed % SHM_ENTRIES], memory_order_relaxed);

		if (slot < q->slots && q->tx_state[slot] == TX_SENT) {
			q->tx_state[slot] = TX_FREE;
			q->free[q->free_count++] = (uint16_t)slot;
		} else if (slot < q->slots && q->tx_state[slot] == TX_RETAINED_SENT) {
			q->tx_state[slot] = TX_RETAINED;
		} else {
			q->broken = true;
			return;
		}
		shm_step();
		q->tx_sent_slots--;
		q->tx_reclaimed++;
	}
}

static int shm_acquire(struct xts_queue *base, struct xts_tx_slot *slot)
{
	struct shm_queue *q = shm_of(base);

	shm_reclaim(q);
	if (!q->free_count) {
		base->stats.tx_no_slot++;
		return -EAGAIN;
	}
	slot->index = q->free[--q->free_count];
	slot->data = q->tx_memory + (size_t)slot->index * q->slot_bytes;
	slot->capacity = base->largest_message;
	q->tx_state[slot->index] = TX_TAKEN;
	return 0;
}

static void shm_submit(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct shm_queue *q = shm_of(base);
	struct shm_descriptor *d = &q->tx->descriptor[q->tx_written % SHM_ENTRIES];

	d->slot = slot->index;
	d->bytes = bytes;
	q->tx_state[slot->index] = TX_SENT;
	shm_step();
	q->tx_written++;
	q->tx_sent_slots++;
	base->stats.tx_frames++;
	base->stats.tx_bytes += bytes;
}

static void shm_abandon(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	struct shm_queue *q = shm_of(base);

	q->tx_state[slot->index] = TX_FREE;
	q->free[q->free_count++] = (uint16_t)slot->index;
}

static void shm_retain(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	shm_of(base)->tx_state[slot->index] = TX_RETAINED;
}

static int shm_submit_retained(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct shm_queue *q = shm_of(base);

	shm_reclaim(q);
	if (q->tx_state[slot->index] != TX_RETAINED)
		return -EAGAIN;
	shm_submit(base, slot, bytes);
	q->tx_state[slot->index] = TX_RETAINED_SENT;
	return 0;
}

static void shm_release(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	struct shm_queue *q = shm_of(base);

	if (q->tx_state[slot->index] == TX_RETAINED)
		shm_abandon(base, slot);
	else
		q->tx_state[slot->index] = TX_SENT;
}

static void shm_publish_returned(struct shm_queue *q)
{
	if (q->rx_returned != q->rx_written_back) {
		q->rx_returned = q->rx_written_back;
		atomic_store_explicit(&q->rx->returned, q->rx_returned, memory_order_release);
	}
}

int shm_kick(struct xts_queue *base)
{
	struct shm_queue *q = shm_of(base);

	/* This comes first, so that a slot is back before the frame_ack for it arrives. */
	shm_publish_returned(q);
	if (q->broken)
		return -ENXIO;
	if (q->tx_published == q->tx_written)
		return 0;
	q->tx_published = q->tx_written;
	atomic_store_explicit(&q->tx->published, q->tx_published, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&q->tx->sleeping, memory_order_relaxed) &&
	    atomic_exchange_explicit(&q->tx->sleeping, 0, memory_order_relaxed)) {
		base->stats.kicks++;
		/* A full bell is ringing already (EAGAIN); a closed one is noticed when we sleep. */
		if (send(q->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EPIPE)
			q->hung_up = true;
	}
	return 0;
}

void shm_give_back(struct shm_queue *q, uint32_t slot)
{
	atomic_store_explicit(&q->rx->back[q->rx_written_back % SHM_ENTRIES], slot, memory_order_relaxed);
	shm_step();
	q->rx_written_back++;
	shm_step();
	q->lent[slot] = false;
}

/* There is nothing to receive: returns slots, and checks whether anything can still come. */
static int shm_nothing(struct shm_queue *q)
{
	shm_publish_returned(q);
	return q->hung_up ? -EPIPE : 0;
}

static int shm_receive(struct xts_queue *base, struct xts_rx_frame *frame)
{
	struct shm_queue *q = shm_of(base);

	while (!q->broken) {
		uint32_t waiting = atomic_load_explicit(&q->rx->published, memory_order_acquire) - q->rx_taken;
		volatile const struct shm_descriptor *d = &q->rx->descriptor[q->rx_taken % SHM_ENTRIES];
		uint32_t slot, bytes;

		if (!waiting)
			return shm_nothing(q);
		slot = d->slot;
		bytes = d->bytes;
		if (waiting > q->slots || slot >= q->slots || q->lent[slot])
			break;
		q->lent[slot] = true;
		shm_step();
		q->rx_taken++;
		if (bytes == 0 || bytes > base->largest_message) {
			base->stats.rx_invalid++;
			shm_give_back(q, slot);
			continue;
		}
		frame->bytes = bytes;
		frame->segments = 1;
		frame->cookie = slot;
		frame->segment[0].iov_base = q->rx_memory + (size_t)slot * q->slot_bytes;
		frame->segment[0].iov_len = bytes;
		base->stats.rx_frames++;
		base->stats.rx_bytes += bytes;
		return 1;
	}
	if (!q->broken)
		base->stats.rx_invalid++;
	q->broken = true;
	return -EPIPE;
}

static void shm_recycle(struct xts_queue *base, const struct xts_rx_frame *frame)
{
	shm_give_back(shm_of(base), (uint32_t)frame->cookie);
}

static int shm_arm(struct xts_queue *base)
{
	struct shm_queue *q = shm_of(base);

	shm_publish_returned(q);
	atomic_store_explicit(&q->rx->sleeping, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&q->rx->published, memory_order_acquire) != q->rx_taken || q->broken || q->hung_up) {
		if (!atomic_exchange_explicit(&q->rx->sleeping, 0, memory_order_relaxed))
			q->bell_pending = true;
		return 1;
	}
	base->stats.sleeps++;
	return 0;
}

static void shm_disarm(struct xts_queue *base)
{
	struct shm_queue *q = shm_of(base);
	uint8_t bytes[64];
	ssize_t got;

	if (!atomic_exchange_explicit(&q->rx->sleeping, 0, memory_order_relaxed))
		q->bell_pending = true;
	else if (!q->bell_pending && ++q->undrained < SHM_DRAIN_EVERY)
		return;
	q->undrained = 0;
	got = recv(q->bell, bytes, sizeof bytes, MSG_DONTWAIT);
	if (got > 0) {
		q->bell_pending = false;
		base->stats.wakeups++;
		if (got == sizeof bytes) /* many more rings than we asked for */
			q->broken = true;
	} else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
		q->hung_up = true;
	}
}

static void shm_close(struct xts_queue *base)
{
	struct shm_queue *q = shm_of(base);

	munmap(q->memory, q->memory_bytes);
	xts_own_close(q->bell);
	xts_own_close(q->memfd);
	if (!base->placed)
		xts_release(q);
}

const struct xts_queue_ops shm_ops = {
	.kind = "shm",
	.acquire = shm_acquire,
	.submit = shm_submit,
	.abandon = shm_abandon,
	.kick = shm_kick,
	.receive = shm_receive,
	.recycle = shm_recycle,
	.arm = shm_arm,
	.disarm = shm_disarm,
	.close = shm_close,
	.retain = shm_retain,
	.submit_retained = shm_submit_retained,
	.release = shm_release,
	.leave = shm_leave,
	.dead_slot = shm_dead_slot,
	.struct_bytes = sizeof(struct shm_queue),
};
