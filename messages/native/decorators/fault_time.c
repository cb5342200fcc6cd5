/*
 * Faults that take time, for tests: frames that arrive late, and frames that are sent again later. The other half of
 * fault.c, and a queue of its own below it.
 *
 * A frame that is delayed holds up those behind it, as on a slow wire: none overtakes another. One that is sent again
 * is the same slot, retained meanwhile. Both by the clock of the caller: what was submitted or received since it last
 * told the time gets its due time when it tells it again, at once (deadline 0).
 *
 * A received frame that is delayed is not copied: it stays lent, and the frames behind it stay where they are.
 */
#include <errno.h>
#include <stdlib.h>

#include "common/time_units.h"
#include "queues/queue.h"

#define LINE_MAX 512u          /* more than any queue has slots */
#define AGAIN_NS (1000 * 1000) /* a repetition whose slot is still on its way */
#define NOT_KNOWN 0

struct late {
	struct xts_tx_slot slot;
	uint32_t bytes;
	uint64_t due_ns; /* NOT_KNOWN: it counts from the next tick */
	bool delayed;    /* else it is due as soon as those before it have left */
	bool repeat;     /* it is sent again after it has left */
};

struct time_queue {
	struct xts_queue base;
	struct xts_faults tx, rx;
	uint64_t tx_state, rx_state; /* of the generators */
	uint64_t now_ns;
	struct late line[LINE_MAX];    /* submitted and not sent yet */
	struct late repeats[LINE_MAX]; /* sent, to be sent again; the slots are retained */
	uint32_t line_first, line_count, repeat_count;
	bool holding; /* a received frame */
	bool rx_timed;
	uint64_t rx_due_ns;
	struct xts_rx_frame held;
};

static struct time_queue *time_of(struct xts_queue *q)
{
	return (struct time_queue *)q;
}

static bool draw(uint64_t *state, const struct xts_faults *f, uint32_t ppm)
{
	return xts_fault_random(state) % 1000000 < ppm && !f->skip_frames;
}

static uint64_t later(const struct time_queue *q, const struct xts_faults *f)
{
	return q->now_ns + (uint64_t)f->delay_us * NS_PER_US;
}

/* --- transmit ----------------------------------------------------------------------------------------------------- */

static void leave(struct time_queue *q, const struct late *l)
{
	struct late *again = &q->repeats[q->repeat_count];

	if (l->repeat && q->repeat_count < LINE_MAX) {
		*again = *l;
		again->due_ns = NOT_KNOWN;
		q->repeat_count++;
		xts_queue_retain(q->base.inner, &l->slot);
		(void)xts_queue_submit_retained(q->base.inner, &l->slot, l->bytes); /* the first time it is ours */
	} else {
		xts_queue_submit(q->base.inner, &l->slot, l->bytes);
	}
}

static int time_acquire(struct xts_queue *base, struct xts_tx_slot *slot)
{
	return xts_queue_acquire(time_of(base)->base.inner, slot);
}

static void time_submit(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct time_queue *q = time_of(base);
	struct late l = { .slot = *slot, .bytes = bytes };

	l.delayed = draw(&q->tx_state, &q->tx, q->tx.delay_ppm);
	l.repeat = draw(&q->tx_state, &q->tx, q->tx.repeat_ppm) && q->base.inner->traits & XTS_QUEUE_RETAINS;
	if (q->tx.skip_frames)
		q->tx.skip_frames--;
	if ((!l.delayed && !q->line_count) || q->line_count == LINE_MAX)
		leave(q, &l);
	else
		q->line[(q->line_first + q->line_count++) % LINE_MAX] = l;
}

static void time_abandon(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	xts_queue_abandon(time_of(base)->base.inner, slot);
}

static int time_kick(struct xts_queue *base)
{
	int error = xts_queue_kick(time_of(base)->base.inner);

	base->stats = time_of(base)->base.inner->stats;
	return error;
}

/* Lets those leave whose time has come, and those behind them that only waited for them. */
static void line_move(struct time_queue *q)
{
	while (q->line_count) {
		struct late *l = &q->line[q->line_first];

		if (l->delayed && l->due_ns == NOT_KNOWN)
			l->due_ns = later(q, &q->tx);
		if (l->due_ns > q->now_ns)
			return;
		leave(q, l);
		q->line_first = (q->line_first + 1) % LINE_MAX;
		q->line_count--;
	}
}

static void repeats_send(struct time_queue *q)
{
	for (uint32_t i = 0; i < q->repeat_count;) {
		struct late *l = &q->repeats[i];

		if (l->due_ns == NOT_KNOWN)
			l->due_ns = later(q, &q->tx);
		if (l->due_ns > q->now_ns) {
			i++;
		} else if (xts_queue_submit_retained(q->base.inner, &l->slot, l->bytes)) {
			l->due_ns = q->now_ns + AGAIN_NS;
			i++;
		} else {
			xts_queue_release(q->base.inner, &l->slot);
			*l = q->repeats[--q->repeat_count];
		}
	}
}

/* --- receive ------------------------------------------------------------------------------------------------------ */

static int time_receive(struct xts_queue *base, struct xts_rx_frame *frame)
{
	struct time_queue *q = time_of(base);
	int got;

	if (q->holding) {
		if (!q->rx_timed || q->rx_due_ns > q->now_ns)
			return 0;
		*frame = q->held;
		q->holding = false;
		return 1;
	}
	got = xts_queue_receive(q->base.inner, frame);
	base->stats = q->base.inner->stats;
	if (got != 1 || !draw(&q->rx_state, &q->rx, q->rx.delay_ppm)) {
		if (got == 1 && q->rx.skip_frames)
			q->rx.skip_frames--;
		return got;
	}
	q->held = *frame;
	q->holding = true;
	q->rx_timed = false;
	return 0;
}

static void time_recycle(struct xts_queue *base, const struct xts_rx_frame *frame)
{
	xts_queue_recycle(time_of(base)->base.inner, frame);
}

/* While a frame is held there is nothing to be woken for. */
static int time_arm(struct xts_queue *base)
{
	struct time_queue *q = time_of(base);

	return q->holding ? q->rx_timed && q->rx_due_ns <= q->now_ns : xts_queue_arm(q->base.inner);
}

static void time_disarm(struct xts_queue *base)
{
	xts_queue_disarm(time_of(base)->base.inner);
}

static void time_close(struct xts_queue *base)
{
	xts_queue_close(time_of(base)->base.inner);
	free(base);
}

/* --- time --------------------------------------------------------------------------------------------------------- */

static void time_tick(struct xts_queue *base, uint64_t now_ns)
{
	struct time_queue *q = time_of(base);

	q->now_ns = now_ns;
	xts_queue_tick(q->base.inner, now_ns);
	repeats_send(q);
	line_move(q);
	if (q->holding && !q->rx_timed) {
		q->rx_due_ns = later(q, &q->rx);
		q->rx_timed = true;
	}
}

static uint64_t time_deadline_ns(const struct xts_queue *base)
{
	const struct time_queue *q = (const struct time_queue *)base;
	uint64_t deadline_ns = xts_queue_deadline_ns(q->base.inner);

	if (q->line_count && q->line[q->line_first].due_ns < deadline_ns)
		deadline_ns = q->line[q->line_first].due_ns;
	for (uint32_t i = 0; i < q->repeat_count; i++)
		if (q->repeats[i].due_ns < deadline_ns)
			deadline_ns = q->repeats[i].due_ns;
	if (q->holding && !q->rx_timed)
		return 0;
	if (q->holding && q->rx_due_ns > q->now_ns && q->rx_due_ns < deadline_ns)
		deadline_ns = q->rx_due_ns;
	return deadline_ns;
}

static const struct xts_queue_ops time_ops = {
	.kind = "fault",
	.acquire = time_acquire,
	.submit = time_submit,
	.abandon = time_abandon,
	.kick = time_kick,
	.receive = time_receive,
	.recycle = time_recycle,
	.arm = time_arm,
	.disarm = time_disarm,
	.close = time_close,
	.tick = time_tick,
	.deadline_ns = time_deadline_ns,
};

int xts_fault_time_wrap(struct xts_queue **out, struct xts_queue *inner, const struct xts_faults *on_transmit,
			const struct xts_faults *on_receive)
{
	struct time_queue *q = calloc(1, sizeof *q);

	if (!q)
		return -ENOMEM;
	q->base = *inner;
	q->base.ops = &time_ops;
	/* retained slots are its own business: a slot that waits here is not one that can be sent again */
	q->base.traits = (inner->traits | XTS_QUEUE_CLOCK) & ~(uint32_t)XTS_QUEUE_RETAINS;
	q->base.inner = inner;
	if (on_transmit)
		q->tx = *on_transmit;
	if (on_receive)
		q->rx = *on_receive;
	q->tx_state = ~(uint64_t)(q->tx.seed << 1);
	q->rx_state = q->rx.seed << 1;
	*out = &q->base;
	return 0;
}
