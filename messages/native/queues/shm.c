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
#include "common/own_descriptors.h"
#include "common/own_memory.h"
#include "queues/queue_kinds.h"
#include "queues/sealed_memory.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHM_KEPT_MAX 96u
#define SHM_SLOTS_MAX (XTS_FRAME_WINDOW_MAX + XTS_CONTROL_RESERVE + SHM_KEPT_MAX)
#define SHM_ENTRIES 256u /* entries of each ring; a power of two, at least SHM_SLOTS_MAX */
#define SHM_PAGE 4096u
#define CACHE_LINE 64
/* The descriptors of an end: the memory, and its own end of the pair of bells. */
enum shm_descriptors { SHM_MEMORY, SHM_BELL };
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
	struct shm_direction direction[2]; /* indexed by the sender: enum xts_queue_end */
};
_Static_assert(sizeof(struct shm_header) <= 2 * SHM_PAGE, "header fits its two pages");
_Static_assert(SHM_ENTRIES >= SHM_SLOTS_MAX && (SHM_ENTRIES & (SHM_ENTRIES - 1)) == 0, "rings hold every slot");
#define SHM_HEADER_BYTES (2 * SHM_PAGE)

/* A slot that is retained does not become free when it comes back. */
enum tx_state { TX_FREE, TX_TAKEN, TX_SENT, TX_RETAINED, TX_RETAINED_SENT };

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
	uint16_t free[SHM_SLOTS_MAX];
	uint8_t tx_state[SHM_SLOTS_MAX];
	bool lent[SHM_SLOTS_MAX];
	void *memory;
	size_t memory_bytes;
	uint64_t memory_number;
	int memfd;
};

/* What is before is done before what is behind: a process that goes on when this one has died in between can tell which
 * of the two was the last (shm_agree()). The processor sees to it, since one's own steps never seem out of order. */
static inline void shm_step(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

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

/* --- to another process ------------------------------------------------------------------------------------------- */

/* What the memory does not say: how much each end has taken, and which slots the peer has. */
struct shm_state {
	uint32_t slots, rx_taken, rx_returned, tx_published, tx_reclaimed;
	uint8_t sent[SHM_SLOTS_MAX];
};
_Static_assert(sizeof(struct shm_state) <= XTS_QUEUE_STATE_BYTES_MAX, "the state of a queue");

static int shm_leave(struct xts_queue *base, int *fds, uint8_t *state)
{
	struct shm_queue *q = shm_of(base);
	struct shm_state s = { .slots = q->slots };

	(void)shm_kick(base);
	shm_reclaim(q);
	for (uint32_t slot = 0; slot < q->slots; slot++) {
		if (q->lent[slot] || (q->tx_state[slot] != TX_FREE && q->tx_state[slot] != TX_SENT))
			return -EBUSY;
		s.sent[slot] = q->tx_state[slot] == TX_SENT;
	}
	if (q->broken)
		return -EPIPE;
	s.rx_taken = q->rx_taken;
	s.rx_returned = q->rx_returned;
	s.tx_published = q->tx_published;
	s.tx_reclaimed = q->tx_reclaimed;
	fds[SHM_MEMORY] = fcntl(q->memfd, F_DUPFD_CLOEXEC, 0);
	fds[SHM_BELL] = fcntl(q->bell, F_DUPFD_CLOEXEC, 0);
	if (fds[SHM_MEMORY] < 0 || fds[SHM_BELL] < 0) {
		int error = -errno;

		for (unsigned i = 0; i < 2; i++)
			if (fds[i] >= 0)
				close(fds[i]);
		return error;
	}
	memcpy(state, &s, sizeof s);
	return sizeof s;
}

static int shm_restore(struct shm_queue *q, const uint8_t *state, uint32_t bytes)
{
	struct shm_state s;

	if (bytes != sizeof s)
		return -EINVAL;
	memcpy(&s, state, sizeof s);
	if (s.slots != q->slots)
		return -EINVAL;
	q->rx_taken = s.rx_taken;
	q->rx_returned = q->rx_written_back = s.rx_returned;
	q->tx_written = q->tx_published = s.tx_published;
	q->tx_reclaimed = s.tx_reclaimed;
	q->free_count = 0;
	for (uint32_t slot = q->slots; slot--;) {
		q->tx_state[slot] = s.sent[slot] ? TX_SENT : TX_FREE;
		if (s.sent[slot])
			q->tx_sent_slots++;
		else
			q->free[q->free_count++] = (uint16_t)slot;
	}
	q->bell_pending = true; /* the one before may have been rung */
	return 0;
}

/* Puts right what a process that died in the middle of a step has left: a count and the table of slots are not changed
 * at once (shm_step()). True: they agree. */
static bool shm_agree(const struct shm_queue *q, const struct shm_queue *dead, struct shm_state *s, bool *lent)
{
	bool waiting = atomic_load_explicit(&q->rx->published, memory_order_acquire) != s->rx_taken;
	uint32_t have = 0, sent = 0, next = q->rx->descriptor[s->rx_taken % SHM_ENTRIES].slot,
		 last = atomic_load_explicit(&q->rx->back[(s->rx_returned - 1) % SHM_ENTRIES], memory_order_relaxed),
		 submitting = q->tx->descriptor[s->tx_published % SHM_ENTRIES].slot,
		 came = atomic_load_explicit(&q->tx->back[s->tx_reclaimed % SHM_ENTRIES], memory_order_relaxed);

	for (uint32_t slot = 0; slot < q->slots; slot++) {
		s->sent[slot] = dead->tx_state[slot] == TX_SENT || dead->tx_state[slot] == TX_RETAINED_SENT;
		sent += s->sent[slot];
		lent[slot] = dead->lent[slot];
		have += lent[slot];
	}
	if (have == s->rx_taken - s->rx_returned + 1) { /* it was taking a slot, or giving one back */
		uint32_t slot = waiting && next < q->slots && lent[next] ? next : last;

		if (slot >= q->slots || !lent[slot])
			return false;
		lent[slot] = false;
		have--;
	}
	if (sent == s->tx_published - s->tx_reclaimed + 1 && submitting < q->slots && s->sent[submitting]) {
		s->sent[submitting] = false;
		sent--;
	}
	if (sent + 1 == s->tx_published - s->tx_reclaimed && came < q->slots && !s->sent[came])
		s->tx_reclaimed++;
	return sent == s->tx_published - s->tx_reclaimed && have == s->rx_taken - s->rx_returned && sent <= q->slots;
}

/* Of what the dead process had received and not given back, the last frames, with none missing, are received once more;
 * what is before is given back. */
static void shm_receive_again(struct shm_queue *q, bool *lent)
{
	uint32_t again = 0;

	for (; again < q->slots; again++) {
		volatile const struct shm_descriptor *d = &q->rx->descriptor[(q->rx_taken - again - 1) % SHM_ENTRIES];
		uint32_t slot = d->slot;

		if (slot >= q->slots || !lent[slot])
			break;
		lent[slot] = false;
	}
	for (uint32_t slot = 0; slot < q->slots; slot++)
		if (lent[slot])
			shm_give_back(q, slot);
	q->rx_taken -= again;
}

/* What the dead process has submitted and not published is published: its frames are whole. */
static int shm_restore_dead(struct shm_queue *q, const struct shm_queue *dead)
{
	struct shm_state s = {
		.slots = q->slots,
		.rx_taken = dead->rx_taken,
		.rx_returned = dead->rx_written_back,
		.tx_published = dead->tx_written,
		.tx_reclaimed = dead->tx_reclaimed,
	};
	uint32_t returned = atomic_load_explicit(&q->rx->returned, memory_order_acquire);
	uint32_t published = atomic_load_explicit(&q->tx->published, memory_order_acquire);
	bool lent[SHM_SLOTS_MAX];
	int error;

	if (s.rx_returned - returned > q->slots || s.tx_published - published > q->slots || !shm_agree(q, dead, &s, lent))
		return -EBADMSG;
	error = shm_restore(q, (const uint8_t *)&s, sizeof s);
	if (error)
		return error;
	shm_receive_again(q, lent);
	q->tx_published = published; /* so that the next kick publishes all */
	q->rx_returned = returned;
	return 0;
}

static void *shm_dead_slot(struct xts_queue *base, const void *dead, uint64_t place, uint32_t bytes)
{
	struct shm_queue *q = shm_of(base);
	uint64_t at = place - (uintptr_t)((const struct shm_queue *)dead)->tx_memory,
		 room = (uint64_t)q->slots * q->slot_bytes;

	return at < room && bytes <= room - at ? q->tx_memory + at : NULL;
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
	.retain = shm_retain,
	.submit_retained = shm_submit_retained,
	.release = shm_release,
	.leave = shm_leave,
	.dead_slot = shm_dead_slot,
	.struct_bytes = sizeof(struct shm_queue),
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
	       xts_queue_kept_of(g->shm_slots, g->frame_window, 1) >= 0 && g->shm_slots <= SHM_SLOTS_MAX;
}

static int shm_make(struct xts_queue_opened *out)
{
	struct xts_attach_reply *g = &out->geometry;
	int bells[2], error;
	int memfd = memfd_create("xts-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (memfd < 0)
		return -errno;
	if (ftruncate(memfd, (off_t)shm_bytes(g)) < 0 ||
	    fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bells) < 0) {
		error = -errno;
		close(memfd);
		return error;
	}
	for (unsigned end = 0; end < 2; end++) {
		out->fds[end][SHM_MEMORY] = memfd;
		out->fds[end][SHM_BELL] = bells[end];
	}
	return 0;
}

static int shm_open_pair(struct xts_queue_opened *out, const struct xts_queue_options *options)
{
	struct xts_attach_reply *g = &out->geometry;
	uint32_t largest = options->largest_message ? options->largest_message : XTS_FRAME_BYTES_MAX;

	g->magic = XTS_ATTACH_MAGIC;
	g->version = XTS_ATTACH_VERSION;
	g->kind = XTS_QUEUE_SHM;
	g->ethertype = XTS_ETHERTYPE;
	g->frame_window = options->frame_window;
	g->queue_id = options->queue_id;
	g->largest_message = largest;
	g->slot_bytes = (largest + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
	g->shm_slots = options->frame_window + XTS_CONTROL_RESERVE + options->kept_max;
	/* Locally administered addresses: there is no Ethernet, but frames have an Ethernet header all the same. */
	memcpy(g->local_mac, (const uint8_t[]){ 0x02, 'x', 't', 's', 0, 1 }, 6);
	memcpy(g->peer_mac, (const uint8_t[]){ 0x02, 'x', 't', 's', 0, 2 }, 6);
	return shm_geometry_ok(g) ? shm_make(out) : -EINVAL;
}

static void shm_init(struct shm_queue *q, enum xts_queue_end end, const struct xts_attach_reply *g)
{
	struct shm_header *header = q->memory;
	uint8_t *slots = (uint8_t *)q->memory + SHM_HEADER_BYTES;
	size_t half = (size_t)g->shm_slots * g->slot_bytes;

	q->base.ops = &shm_ops;
	q->base.largest_message = g->largest_message;
	q->base.frame_window = g->frame_window;
	q->base.kept_max = (uint32_t)xts_queue_kept_of(g->shm_slots, g->frame_window, 1);
	q->base.traits = xts_queue_shm.traits | (g->largest_message > XTS_FRAME_BYTES_SINGLE ? XTS_QUEUE_FRAGMENTS : 0);
	q->base.wait_fd = q->bell;
	memcpy(q->base.local_mac, end == XTS_QUEUE_HOST ? g->local_mac : g->peer_mac, 6);
	memcpy(q->base.peer_mac, end == XTS_QUEUE_HOST ? g->peer_mac : g->local_mac, 6);
	q->tx = &header->direction[end];
	q->rx = &header->direction[!end];
	q->tx_memory = slots + (end == XTS_QUEUE_HOST ? 0 : half);
	q->rx_memory = slots + (end == XTS_QUEUE_HOST ? half : 0);
	q->slots = g->shm_slots;
	q->slot_bytes = g->slot_bytes;
	for (q->free_count = 0; q->free_count < q->slots; q->free_count++)
		q->free[q->free_count] = (uint16_t)(q->slots - 1 - q->free_count);
}

static int shm_adopt(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g)
{
	struct shm_queue *q;

	if (!shm_geometry_ok(g))
		return -EINVAL;
	if (xts_sealed_bytes(fds[SHM_MEMORY]) < shm_bytes(g))
		return -EBADF;
	q = calloc(1, sizeof *q);
	if (!q)
		return -ENOMEM;
	q->memfd = fds[SHM_MEMORY];
	q->bell = fds[SHM_BELL];
	q->memory_bytes = shm_bytes(g);
	q->memory_number = xts_memory_number(q->memfd);
	q->memory = mmap(NULL, q->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, q->memfd, 0);
	if (q->memory == MAP_FAILED || madvise(q->memory, q->memory_bytes, MADV_DONTFORK) < 0) {
		int error = -errno;

		if (q->memory != MAP_FAILED)
			munmap(q->memory, q->memory_bytes);
		free(q);
		return error;
	}
	shm_init(q, end, g);
	*out = &q->base;
	return 0;
}

/* An adopted queue was restored, or not (error): then it is freed, and the descriptors stay the caller's. */
static int shm_hand_out(struct xts_queue **out, struct xts_queue *base, int error)
{
	if (error) {
		munmap(shm_of(base)->memory, shm_of(base)->memory_bytes);
		free(base);
		return error;
	}
	*out = base;
	return 0;
}

static int shm_resume(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g,
		      const uint8_t *state, uint32_t state_bytes)
{
	struct xts_queue *base;
	int error = shm_adopt(&base, end, fds, g);

	return error ? error : shm_hand_out(out, base, shm_restore(shm_of(base), state, state_bytes));
}

static int shm_resume_dead(struct xts_queue **out, enum xts_queue_end end, const int *fds,
			   const struct xts_attach_reply *g, const void *dead, size_t dead_bytes)
{
	struct shm_queue copy;
	struct xts_queue *base;
	int error;

	if (dead_bytes < sizeof copy)
		return -EINVAL;
	memcpy(&copy, dead, sizeof copy);
	error = shm_adopt(&base, end, fds, g);
	/* Another queue has had this place before, and the dead process has not had this one: there is nothing to restore. */
	if (!error && copy.memory_number == shm_of(base)->memory_number)
		error = shm_hand_out(&base, base, shm_restore_dead(shm_of(base), &copy));
	if (!error)
		*out = base;
	return error;
}

const struct xts_queue_kind xts_queue_shm = {
	.number = XTS_QUEUE_SHM,
	.name = "shm",
	.title = "shared-memory",
	.descriptors = 2,
	.traits = XTS_QUEUE_DEATH_SHOWS | XTS_QUEUE_PEER_MEMORY | XTS_QUEUE_RETAINS,
	.open = shm_open_pair,
	.adopt = shm_adopt,
	.resume = shm_resume,
	.resume_dead = shm_resume_dead,
};
