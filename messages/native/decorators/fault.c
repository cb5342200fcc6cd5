/*
 * A decorator that does to frames what a bad network, or a bad peer, would do: it drops, duplicates, reorders, corrupts
 * and truncates them, controlled by a seed, for tests.
 *
 * Each direction has a generator of its own, and every frame draws the same five numbers in the same order whatever
 * happens to it. So a seed has the same effect on the same frames in each run. A frame held back for reordering leaves
 * after the next one, or with the next kick (transmit), or when no other frame is there (receive).
 *
 * With faults, a received frame is a private copy, since one inner frame may become two frames or none. Of a slot that
 * is retained a copy is sent, since what happens to a frame must not happen to what its owner keeps.
 *
 * Delays and late repetitions need a clock: fault_time.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "queues/queue.h"

#define FAULT_KEPT_MAX 96u
#define FAULT_PENDING_MAX 4u /* the frame held back, the present one, and a duplicate of each */
/* Two for each frame that may be out, those that are kept longer included. */
#define FAULT_OUT_MAX (XTS_FRAME_WINDOW_MAX + XTS_CONTROL_RESERVE + FAULT_KEPT_MAX)
#define FAULT_COPIES (2u * FAULT_OUT_MAX + FAULT_PENDING_MAX)

enum fault_bits { FAULT_DROP = 1, FAULT_DUPLICATE = 2, FAULT_REORDER = 4, FAULT_CORRUPT = 8, FAULT_TRUNCATE = 16 };

struct fault_generator {
	struct xts_faults faults;
	uint64_t state;
	uint64_t frames;
	uint64_t where; /* drawn together with the faults: which byte, which length */
};

struct fault_copy {
	uint32_t bytes;
	uint8_t *data;
};

struct fault_queue {
	struct xts_queue base;
	struct fault_generator tx, rx;
	bool tx_held;
	struct xts_tx_slot held_slot;
	uint32_t held_bytes;
	/* Copies of received frames: a pool of buffers, a queue of those ready, and one held back. */
	struct fault_copy copy[FAULT_COPIES];
	uint16_t free[FAULT_COPIES], ready[FAULT_COPIES];
	uint32_t free_count, ready_first, ready_count;
	int rx_held; /* index of a copy or -1 */
	uint8_t *memory;
};

static struct fault_queue *fault_of(struct xts_queue *q)
{
	return (struct fault_queue *)q;
}

uint64_t xts_fault_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static unsigned fault_draw(struct fault_generator *g)
{
	const struct xts_faults *f = &g->faults;
	const uint32_t ppm[] = { f->drop_ppm, f->duplicate_ppm, f->reorder_ppm, f->corrupt_ppm, f->truncate_ppm };
	unsigned bits = 0;

	for (unsigned i = 0; i < 5; i++)
		if (xts_fault_random(&g->state) % 1000000 < ppm[i])
			bits |= 1u << i;
	g->where = xts_fault_random(&g->state);
	return g->frames++ < f->skip_frames ? 0 : bits;
}

/* Corrupts and truncates in place; returns the new length. */
static uint32_t fault_damage(const struct fault_generator *g, unsigned bits, uint8_t *data, uint32_t bytes)
{
	if (bits & FAULT_TRUNCATE && bytes > XTS_ETH_BYTES)
		bytes = XTS_ETH_BYTES + (uint32_t)(g->where >> 8) % (bytes - XTS_ETH_BYTES);
	if (bits & FAULT_CORRUPT)
		data[(g->where >> 32) % bytes] ^= (uint8_t)(1u << (g->where & 7));
	return bytes;
}

static int fault_acquire(struct xts_queue *base, struct xts_tx_slot *slot)
{
	return xts_queue_acquire(fault_of(base)->base.inner, slot);
}

static void fault_release_held(struct fault_queue *q)
{
	if (q->tx_held)
		xts_queue_submit(q->base.inner, &q->held_slot, q->held_bytes);
	q->tx_held = false;
}

/* Sends a slot that is ours. */
static void fault_send(struct fault_queue *q, const struct xts_tx_slot *slot, uint32_t bytes)
{
	unsigned bits = fault_draw(&q->tx);
	struct xts_tx_slot twin;

	if (bits & FAULT_DROP) {
		xts_queue_abandon(q->base.inner, slot);
		return;
	}
	bytes = fault_damage(&q->tx, bits, slot->data, bytes);
	if (bits & FAULT_REORDER && !q->tx_held) {
		q->tx_held = true;
		q->held_slot = *slot;
		q->held_bytes = bytes;
		return;
	}
	/* Copied before the original is submitted. If there is no slot for the duplicate, it is left out. */
	if (bits & FAULT_DUPLICATE && xts_queue_acquire(q->base.inner, &twin) == 0) {
		memcpy(twin.data, slot->data, bytes);
		xts_queue_submit(q->base.inner, slot, bytes);
		xts_queue_submit(q->base.inner, &twin, bytes);
	} else {
		xts_queue_submit(q->base.inner, slot, bytes);
	}
	fault_release_held(q);
}

static void fault_submit(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	fault_send(fault_of(base), slot, bytes);
}

/* What is retained stays with us. */
static void fault_retain(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	(void)base;
	(void)slot;
}

/* Sends a copy. Without a slot for it the frame is lost. */
static int fault_submit_retained(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct fault_queue *q = fault_of(base);
	struct xts_tx_slot copy;

	if (xts_queue_acquire(q->base.inner, &copy))
		return 0;
	memcpy(copy.data, slot->data, bytes);
	fault_send(q, &copy, bytes);
	return 0;
}

static void fault_release(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	xts_queue_abandon(fault_of(base)->base.inner, slot);
}

static void fault_abandon(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	xts_queue_abandon(fault_of(base)->base.inner, slot);
}

static int fault_kick(struct xts_queue *base)
{
	struct fault_queue *q = fault_of(base);
	int error;

	fault_release_held(q);
	error = xts_queue_kick(q->base.inner);
	base->stats = q->base.inner->stats;
	return error;
}

static void fault_enqueue(struct fault_queue *q, uint16_t index)
{
	q->ready[(q->ready_first + q->ready_count++) % FAULT_COPIES] = index;
}

/* Turns a received frame into none, one or two copies, perhaps damaged. The pool has room for two copies of every frame
 * that the inner queue can lend. */
static void fault_take(struct fault_queue *q, const struct xts_rx_frame *frame)
{
	unsigned bits = fault_draw(&q->rx);
	uint16_t index, twin;
	struct fault_copy *c;
	uint32_t at = 0;

	if (bits & FAULT_DROP || !q->free_count)
		return;
	index = q->free[--q->free_count];
	c = &q->copy[index];
	for (uint32_t i = 0; i < frame->segments; at += (uint32_t)frame->segment[i++].iov_len)
		memcpy(c->data + at, frame->segment[i].iov_base, frame->segment[i].iov_len);
	c->bytes = fault_damage(&q->rx, bits, c->data, frame->bytes);
	if (bits & FAULT_REORDER && q->rx_held < 0) {
		q->rx_held = index;
		return;
	}
	fault_enqueue(q, index);
	if (bits & FAULT_DUPLICATE && q->free_count) {
		twin = q->free[--q->free_count];
		q->copy[twin].bytes = c->bytes;
		memcpy(q->copy[twin].data, c->data, c->bytes);
		fault_enqueue(q, twin);
	}
	if (q->rx_held >= 0)
		fault_enqueue(q, (uint16_t)q->rx_held);
	q->rx_held = -1;
}

static int fault_receive(struct xts_queue *base, struct xts_rx_frame *frame)
{
	struct fault_queue *q = fault_of(base);
	int got = 1;

	while (!q->ready_count && (got = xts_queue_receive(q->base.inner, frame)) == 1) {
		fault_take(q, frame);
		xts_queue_recycle(q->base.inner, frame);
	}
	base->stats = q->base.inner->stats;
	if (!q->ready_count && q->rx_held >= 0) {
		fault_enqueue(q, (uint16_t)q->rx_held);
		q->rx_held = -1;
	}
	if (!q->ready_count)
		return got;
	frame->cookie = q->ready[q->ready_first];
	q->ready_first = (q->ready_first + 1) % FAULT_COPIES;
	q->ready_count--;
	frame->bytes = q->copy[frame->cookie].bytes;
	frame->segments = 1;
	frame->segment[0].iov_base = q->copy[frame->cookie].data;
	frame->segment[0].iov_len = frame->bytes;
	return 1;
}

static void fault_recycle(struct xts_queue *base, const struct xts_rx_frame *frame)
{
	struct fault_queue *q = fault_of(base);

	q->free[q->free_count++] = (uint16_t)frame->cookie;
}

static int fault_arm(struct xts_queue *base)
{
	struct fault_queue *q = fault_of(base);

	return q->ready_count || q->rx_held >= 0 ? 1 : xts_queue_arm(q->base.inner);
}

static void fault_disarm(struct xts_queue *base)
{
	xts_queue_disarm(fault_of(base)->base.inner);
}

static void fault_close(struct xts_queue *base)
{
	struct fault_queue *q = fault_of(base);

	xts_queue_close(q->base.inner);
	free(q->memory);
	free(q);
}

static const struct xts_queue_ops fault_ops = {
	.kind = "fault",
	.acquire = fault_acquire,
	.submit = fault_submit,
	.abandon = fault_abandon,
	.kick = fault_kick,
	.receive = fault_receive,
	.recycle = fault_recycle,
	.arm = fault_arm,
	.disarm = fault_disarm,
	.close = fault_close,
	.retain = fault_retain,
	.submit_retained = fault_submit_retained,
	.release = fault_release,
};

static bool takes_time(const struct xts_faults *f)
{
	return f && (f->delay_ppm || f->repeat_ppm);
}

int xts_fault_wrap(struct xts_queue **out, struct xts_queue *inner, const struct xts_faults *on_transmit,
		   const struct xts_faults *on_receive)
{
	struct fault_queue *q = calloc(1, sizeof *q);
	uint8_t *memory = calloc(FAULT_COPIES, inner->largest_message);

	if (!q || !memory ||
	    ((takes_time(on_transmit) || takes_time(on_receive)) &&
	     xts_fault_time_wrap(&inner, inner, on_transmit, on_receive))) {
		free(q);
		free(memory);
		return -ENOMEM;
	}
	q->base = *inner;
	q->base.ops = &fault_ops;
	q->base.traits |= XTS_QUEUE_RETAINS; /* a copy is sent */
	q->base.inner = inner;
	q->memory = memory;
	if (on_transmit)
		q->tx.faults = *on_transmit;
	if (on_receive)
		q->rx.faults = *on_receive;
	q->tx.state = q->tx.faults.seed;
	q->rx.state = ~q->rx.faults.seed;
	q->rx_held = -1;
	if (q->base.kept_max > FAULT_KEPT_MAX)
		q->base.kept_max = FAULT_KEPT_MAX;
	for (uint32_t i = 0; i < FAULT_COPIES; i++) {
		q->copy[i].data = memory + (size_t)i * inner->largest_message;
		q->free[q->free_count++] = (uint16_t)i;
	}
	*out = &q->base;
	return 0;
}
