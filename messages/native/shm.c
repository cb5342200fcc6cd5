/*
 * Queues over shared memory.
 *
 * Theory of operation
 *
 * The memory holds two directions. In each, the sender owns `published` and the ring of descriptors, and the receiver
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
#include "shm.h"
#include "own_descriptors.h"
#include "own_memory.h"
#include "sealed_memory.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHM_ENTRIES 256u /* entries of each ring; a power of two, at least XTS_SHM_SLOTS_MAX */
#define SHM_PAGE 4096u
#define CACHE_LINE 64
/* If the peer rang a bell without clearing our flag, the bell is drained after this many disarms at the latest. */
#define SHM_DRAIN_EVERY 16u

struct shm_descriptor {
	uint32_t slot, bytes;
};

struct shm_direction {
	_Alignas(CACHE_LINE) _Atomic uint32_t published; /* sender: number of descriptors ever written */
	_Alignas(CACHE_LINE) _Atomic uint32_t returned;  /* receiver: number of slots ever given back */
	_Alignas(CACHE_LINE) _Atomic uint32_t sleeping;  /* receiver: ring my bell; cleared by the side that rings */
	_Alignas(CACHE_LINE) struct shm_descriptor descriptor[SHM_ENTRIES];
	_Alignas(CACHE_LINE) _Atomic uint32_t back[SHM_ENTRIES];
};

struct shm_header {
	struct shm_direction direction[2]; /* indexed by the sender: enum xts_shm_side */
};
_Static_assert(sizeof(struct shm_header) <= 2 * SHM_PAGE, "header fits its two pages");
_Static_assert(SHM_ENTRIES >= XTS_SHM_SLOTS_MAX && (SHM_ENTRIES & (SHM_ENTRIES - 1)) == 0, "rings hold every slot");
#define SHM_HEADER_BYTES (2 * SHM_PAGE)

enum tx_state { TX_FREE, TX_TAKEN, TX_SENT };

struct shm_queue {
	struct xts_queue base;
	struct shm_direction *tx, *rx;
	uint8_t *tx_memory, *rx_memory;
	uint32_t slots, slot_bytes;
	int bell;
	bool broken;       /* the peer has violated the rules, or it is gone and everything it sent has been taken */
	bool hung_up;      /* the peer's bell is closed */
	bool bell_pending; /* the peer has cleared our flag; its byte may still be on the way */
	uint32_t undrained;
	uint32_t tx_written, tx_published, tx_sent_slots, tx_reclaimed;
	uint32_t rx_taken, rx_written_back, rx_returned;
	uint32_t free_count;
	/* a stack: the slot that came back last goes out first, while it is in the cache */
	uint16_t free[XTS_SHM_SLOTS_MAX];
	uint8_t tx_state[XTS_SHM_SLOTS_MAX];
	bool lent[XTS_SHM_SLOTS_MAX];
	void *memory;
	size_t memory_bytes;
	int memfd;
};

static struct shm_queue *shm_of(struct xts_queue *q)
{
	return (struct shm_queue *)q;
}

/* Takes back the slots with which the receiver has finished. */
static void shm_reclaim(struct shm_queue *q)
{
	uint32_t count = atomic_load_explicit(&q->tx->returned, memory_order_acquire) - q->tx_reclaimed;

	if (count > q->tx_sent_slots) {
		q->broken = true;
		return;
	}
	for (; count; count--) {
		uint32_t slot = atomic_load_explicit(&q->tx->back[q->tx_reclaimed % SHM_ENTRIES], memory_order_relaxed);

		if (slot >= q->slots || q->tx_state[slot] != TX_SENT) {
			q->broken = true;
			return;
		}
		q->tx_state[slot] = TX_FREE;
		q->free[q->free_count++] = (uint16_t)slot;
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
	q->tx_written++;
	q->tx_state[slot->index] = TX_SENT;
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

static void shm_publish_returned(struct shm_queue *q)
{
	if (q->rx_returned != q->rx_written_back) {
		q->rx_returned = q->rx_written_back;
		atomic_store_explicit(&q->rx->returned, q->rx_returned, memory_order_release);
	}
}

static int shm_kick(struct xts_queue *base)
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

static void shm_give_back(struct shm_queue *q, uint32_t slot)
{
	q->lent[slot] = false;
	atomic_store_explicit(&q->rx->back[q->rx_written_back % SHM_ENTRIES], slot, memory_order_relaxed);
	q->rx_written_back++;
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
		q->rx_taken++;
		if (bytes == 0 || bytes > base->largest_message) {
			base->stats.rx_invalid++;
			shm_give_back(q, slot);
			continue;
		}
		q->lent[slot] = true;
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
	xts_release(q);
}

static const struct xts_queue_ops shm_ops = {
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
};

static size_t shm_bytes(const struct xts_attach_reply *g)
{
	return SHM_HEADER_BYTES + 2 * (size_t)g->shm_slots * g->slot_bytes;
}

static bool shm_geometry_ok(const struct xts_attach_reply *g)
{
	return g->kind == XTS_QUEUE_SHM && g->frame_window >= XTS_FRAME_WINDOW_MIN &&
	       g->frame_window <= XTS_FRAME_WINDOW_MAX && g->largest_message >= XTS_FRAME_BYTES_SINGLE &&
	       g->largest_message <= XTS_FRAME_BYTES_MAX && g->slot_bytes >= g->largest_message &&
	       g->slot_bytes <= XTS_FRAME_BYTES_MAX && g->slot_bytes % SHM_PAGE == 0 &&
	       g->shm_slots >= g->frame_window + XTS_CONTROL_RESERVE && g->shm_slots <= XTS_SHM_SLOTS_MAX;
}

int xts_shm_create(struct xts_shm_area *out, uint16_t frame_window, uint32_t largest_message)
{
	struct xts_attach_reply *g = &out->geometry;
	int bells[2];
	int error;

	memset(out, 0, sizeof *out);
	g->magic = XTS_ATTACH_MAGIC;
	g->version = XTS_ATTACH_VERSION;
	g->kind = XTS_QUEUE_SHM;
	g->ethertype = XTS_ETHERTYPE;
	g->frame_window = frame_window;
	g->largest_message = largest_message;
	g->slot_bytes = (largest_message + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
	g->shm_slots = frame_window + XTS_CONTROL_RESERVE;
	/* Locally administered addresses: there is no Ethernet, but frames have an Ethernet header all the same. */
	memcpy(g->local_mac, (const uint8_t[]){ 0x02, 'x', 't', 's', 0, 1 }, 6);
	memcpy(g->peer_mac, (const uint8_t[]){ 0x02, 'x', 't', 's', 0, 2 }, 6);
	if (!shm_geometry_ok(g))
		return -EINVAL;
	out->memfd = memfd_create("xts-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (out->memfd < 0)
		return -errno;
	if (ftruncate(out->memfd, (off_t)shm_bytes(g)) < 0 ||
	    fcntl(out->memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bells) < 0) {
		error = -errno;
		close(out->memfd);
		return error;
	}
	out->host_bell = bells[0];
	out->proxy_bell = bells[1];
	return 0;
}

static void shm_init(struct shm_queue *q, enum xts_shm_side side, const struct xts_attach_reply *g)
{
	struct shm_header *header = q->memory;
	uint8_t *slots = (uint8_t *)q->memory + SHM_HEADER_BYTES;
	size_t half = (size_t)g->shm_slots * g->slot_bytes;

	q->base.ops = &shm_ops;
	q->base.largest_message = g->largest_message;
	q->base.frame_window = g->frame_window;
	q->base.multi_buffer = g->largest_message > XTS_FRAME_BYTES_SINGLE;
	q->base.wait_fd = q->bell;
	memcpy(q->base.local_mac, side == XTS_SHM_HOST ? g->local_mac : g->peer_mac, 6);
	memcpy(q->base.peer_mac, side == XTS_SHM_HOST ? g->peer_mac : g->local_mac, 6);
	q->tx = &header->direction[side];
	q->rx = &header->direction[!side];
	q->tx_memory = slots + (side == XTS_SHM_HOST ? 0 : half);
	q->rx_memory = slots + (side == XTS_SHM_HOST ? half : 0);
	q->slots = g->shm_slots;
	q->slot_bytes = g->slot_bytes;
	for (q->free_count = 0; q->free_count < q->slots; q->free_count++)
		q->free[q->free_count] = (uint16_t)(q->slots - 1 - q->free_count);
}

int xts_shm_open(struct xts_queue **out, enum xts_shm_side side, int memfd, int host_bell, int proxy_bell,
		 const struct xts_attach_reply *geometry)
{
	int other_bell = side == XTS_SHM_HOST ? proxy_bell : host_bell;
	struct shm_queue *q;

	if (!shm_geometry_ok(geometry))
		return -EINVAL;
	if (xts_sealed_bytes(memfd) < shm_bytes(geometry))
		return -EBADF;
	q = calloc(1, sizeof *q);
	if (!q)
		return -ENOMEM;
	q->memfd = memfd;
	q->bell = side == XTS_SHM_HOST ? host_bell : proxy_bell;
	q->memory_bytes = shm_bytes(geometry);
	q->memory = mmap(NULL, q->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	if (q->memory == MAP_FAILED || madvise(q->memory, q->memory_bytes, MADV_DONTFORK) < 0) {
		int error = -errno;

		if (q->memory != MAP_FAILED)
			munmap(q->memory, q->memory_bytes);
		free(q);
		return error;
	}
	shm_init(q, side, geometry);
	if (other_bell >= 0)
		close(other_bell);
	*out = &q->base;
	return 0;
}
