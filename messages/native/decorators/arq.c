/*
 * The decorator that repeats lost frames; arq.h says what for, arq_inside.h names its parts.
 *
 * Theory of operation
 *
 * A slot is handed out from behind the room for the head, as in headed.c. A submitted frame gets its number and is
 * retained; it leaves with a kick, when the window has room for it, and stays where it is until it has arrived. What is
 * submitted and not sent is bounded by the slots, and those by the link's credits.
 *
 * A session is the two sequences of an epoch. A host's begins when it is attached, and all its frames say OPEN until
 * something of the proxy has come. A proxy's begins with a frame that says OPEN and has an epoch of which it has had no
 * session; so a late frame of an earlier attachment begins none. Everything of the link is in a session, HELLO and
 * GOODBYE included. Without a head come: GOODBYE, of an agent whose process has died, or of a proxy that has been
 * restarted, and refusals.
 *
 * A violation ends the channel by the means that there are: the link above receives a GOODBYE as if the peer had sent
 * it, and the peer receives one.
 */
#include "decorators/arq_queue.h"
#include "common/crc32c.h"
#include "common/own_memory.h"

#include <stdlib.h>
#include <sys/random.h>

/* In the number of a slot: it begins behind the room for the head. headed.c has the bit above. */
#define BEHIND_HEAD (UINT32_C(1) << 30)
/* Slots that are never retained: for acknowledgements and what the queue below sends itself. */
#define SPARE_SLOTS 8u
#define DROPS_MAX 64u /* frames in one call; then the caller has its turn */
#define AGAIN_NS 200000u

static struct arq_queue *arq_of(struct xts_queue *q)
{
	return (struct arq_queue *)q;
}

void arq_sync_stats(struct arq_queue *q)
{
	struct xts_queue_stats *s = &q->base.stats;

	*s = q->base.inner->stats;
	s->rx_foreign += q->stale + q->refused;
	s->rx_invalid += q->corrupt;
	s->rx_early = q->early;
	s->rx_duplicates = q->duplicates;
	s->violations = q->violations;
	s->tx_repeated = q->repeated + q->tx.repeated;
	s->rtt_ns = q->tx.srtt_ns;
	s->window_frames = q->open ? q->tx.window.frames : 0;
}

/* --- sessions ----------------------------------------------------------------------------------------------------- */

/* What was held and retained is free again. */
void arq_session_end(struct arq_queue *q)
{
	if (!q->open)
		return;
	arq_again_end(q);
	for (uint32_t i = 0; i < ARQ_WINDOW; i++)
		if (q->rx.held[i].segments)
			xts_queue_recycle(q->base.inner, &q->rx.held[i]);
	for (; q->tx.released != q->tx.end; q->tx.released++)
		xts_queue_release(q->base.inner, &arq_sender_frame(&q->tx, q->tx.released)->slot);
	q->repeated += q->tx.repeated;
	q->past[q->past_count++ % ARQ_PAST_EPOCHS] = q->epoch;
	q->open = false;
	arq_receiver_begin(&q->rx);
	arq_sender_begin(&q->tx, 0, q->now_ns);
}

void arq_session_begin(struct arq_queue *q, uint64_t epoch)
{
	arq_session_end(q);
	q->open = true;
	q->epoch = epoch;
	arq_receiver_begin(&q->rx);
	arq_sender_begin(&q->tx, (uint32_t)xts_fault_random(&q->random), q->now_ns);
}

/* --- transmit ----------------------------------------------------------------------------------------------------- */

static int arq_acquire(struct xts_queue *base, struct xts_tx_slot *slot)
{
	struct arq_queue *q = arq_of(base);
	uint32_t slots = base->tx_slots ? base->tx_slots : base->frame_window + XTS_CONTROL_RESERVE;
	uint32_t most = slots - SPARE_SLOTS;
	int error = -EAGAIN;

	if (!q->open || q->tx.end - q->tx.released + q->slots_out < most)
		error = xts_queue_acquire(q->base.inner, slot);
	if (error)
		return error;
	q->slots_out++;
	if (q->config.role == XTS_ARQ_PROXY_OFF)
		return 0;
	slot->capacity -= XTS_ARQ_ADDS;
	slot->data += XTS_ARQ_ADDS;
	slot->index |= BEHIND_HEAD;
	return 0;
}

/* The slot as the queue below knows it. */
static struct xts_tx_slot whole(const struct xts_tx_slot *slot)
{
	struct xts_tx_slot all = *slot;

	if (!(all.index & BEHIND_HEAD))
		return all;
	all.data -= XTS_ARQ_ADDS;
	all.capacity += XTS_ARQ_ADDS;
	all.index &= ~BEHIND_HEAD;
	return all;
}

static void arq_submit(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct arq_queue *q = arq_of(base);
	struct xts_tx_slot all = whole(slot);

	q->slots_out--;
	if (!q->open) { /* without a head */
		memmove(all.data, slot->data, bytes);
		xts_queue_submit(q->base.inner, &all, bytes);
		return;
	}
	memcpy(all.data, slot->data, XTS_ETH_BYTES);
	xts_queue_retain(q->base.inner, &all);
	arq_sender_add(&q->tx, &all, bytes + XTS_ARQ_ADDS);
}

static void arq_abandon(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	struct xts_tx_slot all = whole(slot);

	arq_of(base)->slots_out--;
	xts_queue_abandon(arq_of(base)->base.inner, &all);
}

/* Writes the head of a frame of so many bytes, whose Ethernet header is there. */
static void write_head(struct arq_queue *q, uint8_t *frame, uint32_t bytes, struct xts_arq *head)
{
	head->epoch = q->epoch;
	head->first = q->tx.first;
	arq_receiver_acknowledge(&q->rx, head, q->now_ns);
	if (q->config.role == XTS_ARQ_HOST && !q->rx.heard_any)
		head->parts |= XTS_ARQ_OPEN;
	xts_head_encode(frame, XTS_LINK_ARQ, 0, 0, 0);
	xts_put8(frame + XTS_ETH_BYTES + 1, 0);
	xts_put8(frame + XTS_ETH_BYTES + 2, 0);
	xts_arq_encode(frame, head);
	xts_put32(frame + ARQ_CHECKSUM_AT, crc32c(0, frame + XTS_ETH_BYTES, bytes - XTS_ETH_BYTES));
}

/* Sends a frame for the first time or again. False: not now. */
static bool transmit(struct arq_queue *q, uint32_t number)
{
	struct arq_frame *f = arq_sender_frame(&q->tx, number);
	struct xts_arq head = { .parts = XTS_ARQ_NUMBERED, .sequence = number, .transmission = q->tx.transmission };

	/* If the queue still has it from the last time, that copy may leave with half of a new head, and fail its
	 * checksum; this one is lost then, as it was believed to be. */
	write_head(q, f->slot.data, f->bytes, &head);
	if (xts_queue_submit_retained(q->base.inner, &f->slot, f->bytes)) {
		(void)arq_sender_transmission(&q->tx, q->now_ns); /* that copy has this number now, and may be heard */
		q->tx.again_ns = q->now_ns + AGAIN_NS;
		q->tx.copy_ns = ARQ_NEVER;
		return false;
	}
	arq_sender_sent(&q->tx, number, q->now_ns);
	return true;
}

/* An acknowledgement by itself. */
static void acknowledge(struct arq_queue *q)
{
	struct xts_arq head = { .transmission = q->tx.transmission };
	struct xts_tx_slot slot;

	if (xts_queue_acquire(q->base.inner, &slot)) {
		q->tx.again_ns = q->now_ns + AGAIN_NS;
		return;
	}
	arq_write_ethernet(q, slot.data, q->ethertype);
	write_head(q, slot.data, XTS_ARQ_BYTES, &head);
	xts_queue_submit(q->base.inner, &slot, XTS_ARQ_BYTES);
	arq_sender_transmission(&q->tx, q->now_ns);
}

static int arq_kick(struct xts_queue *base)
{
	struct arq_queue *q = arq_of(base);
	uint32_t number;
	int error;

	while (q->open && arq_sender_due(&q->tx, q->now_ns, &number) && transmit(q, number))
		;
	if (q->open && q->rx.due)
		acknowledge(q);
	error = xts_queue_kick(q->base.inner);
	arq_sync_stats(q);
	return error;
}

/* --- receive ------------------------------------------------------------------------------------------------------ */

static bool own_goodbye(struct arq_queue *q, struct xts_rx_frame *frame)
{
	if (!q->goodbye_due)
		return false;
	q->goodbye_due = false;
	frame->bytes = sizeof q->goodbye;
	frame->segments = 1;
	frame->segment[0].iov_base = q->goodbye;
	frame->segment[0].iov_len = sizeof q->goodbye;
	return true;
}

static int arq_receive(struct xts_queue *base, struct xts_rx_frame *frame)
{
	struct arq_queue *q = arq_of(base);

	if (q->again && arq_again_receive(q, frame))
		return 1;
	for (uint32_t dropped = 0; dropped < DROPS_MAX; dropped++) {
		int got;

		if (own_goodbye(q, frame) || arq_receiver_next(&q->rx, frame))
			return 1;
		got = xts_queue_receive(q->base.inner, frame);
		if (got <= 0)
			return got;
		if (arq_admit(q, frame)) {
			arq_sync_stats(q);
			return 1;
		}
	}
	arq_sync_stats(q);
	return 0; /* the rest is found when the caller arms */
}

static void arq_recycle(struct xts_queue *base, const struct xts_rx_frame *frame)
{
	struct arq_queue *q = arq_of(base);

	if (frame->segment[0].iov_base != q->goodbye)
		xts_queue_recycle(q->base.inner, frame);
}

static int arq_arm(struct xts_queue *base)
{
	struct arq_queue *q = arq_of(base);
	int ready = q->again || q->goodbye_due || arq_receiver_ready(&q->rx) ? 1 : xts_queue_arm(q->base.inner);

	arq_sync_stats(q);
	return ready;
}

static void arq_disarm(struct xts_queue *base)
{
	xts_queue_disarm(arq_of(base)->base.inner);
	arq_sync_stats(arq_of(base));
}

static void arq_close(struct xts_queue *base)
{
	struct arq_queue *q = arq_of(base);

	arq_session_end(q);
	xts_queue_close(q->base.inner);
	if (!base->placed)
		xts_release(q);
}

/* --- time --------------------------------------------------------------------------------------------------------- */

static void arq_tick(struct xts_queue *base, uint64_t now_ns)
{
	struct arq_queue *q = arq_of(base);

	q->now_ns = now_ns;
	xts_queue_tick(q->base.inner, now_ns);
	if (!q->open)
		return;
	arq_sender_tick(&q->tx, now_ns);
	arq_receiver_tick(&q->rx, now_ns);
}

static uint64_t arq_deadline_ns(const struct xts_queue *base)
{
	const struct arq_queue *q = (const struct arq_queue *)base;
	uint64_t least_ns = xts_queue_deadline_ns(q->base.inner), ns;

	if (!q->open)
		return least_ns;
	ns = arq_sender_deadline_ns(&q->tx);
	least_ns = ns < least_ns ? ns : least_ns;
	ns = arq_receiver_deadline_ns(&q->rx);
	return ns < least_ns ? ns : least_ns;
}

/* Its session went before (arq_settle()), or ends here. */
static int arq_leave(struct xts_queue *base, int *fds, uint8_t *state)
{
	arq_session_end(arq_of(base));
	return xts_queue_leave(arq_of(base)->base.inner, fds, state);
}

#define ARQ_OPS \
	.kind = "arq", .acquire = arq_acquire, .submit = arq_submit, .abandon = arq_abandon, .kick = arq_kick, \
	.receive = arq_receive, .recycle = arq_recycle, .arm = arq_arm, .disarm = arq_disarm, .close = arq_close, \
	.tick = arq_tick, .deadline_ns = arq_deadline_ns

static const struct xts_queue_ops arq_ops = { ARQ_OPS };
static const struct xts_queue_ops arq_leaving_ops = { ARQ_OPS, .leave = arq_leave, .settle = arq_settle,
						      .struct_bytes = sizeof(struct arq_queue) };

int xts_arq_wrap(struct xts_queue **out, struct xts_queue *inner, const struct xts_arq_config *config)
{
	bool off = config->role == XTS_ARQ_PROXY_OFF;
	struct arq_queue *q;

	if (!off && !(inner->traits & XTS_QUEUE_RETAINS))
		return -EOPNOTSUPP;
	if (config->role == XTS_ARQ_HOST && !config->epoch)
		return -EINVAL;
	q = calloc(1, sizeof *q);
	if (!q)
		return -ENOMEM;
	/* unpredictable to those who do not see the wire; if there is no entropy yet, the epoch is random, too */
	if (getrandom(&q->random, sizeof q->random, GRND_NONBLOCK) != (ssize_t)sizeof q->random)
		q->random = config->epoch ^ (uintptr_t)q;
	q->base = *inner;
	q->base.ops = inner->ops->leave ? &arq_leaving_ops : &arq_ops;
	q->base.traits &= ~(uint32_t)XTS_QUEUE_RETAINS; /* retained slots are our own */
	if (!off) {
		q->base.traits |= XTS_QUEUE_CLOCK;
		q->base.head_bytes += XTS_ARQ_ADDS;
	}
	q->base.inner = inner;
	q->config = *config;
	q->ethertype = XTS_ETHERTYPE;
	arq_receiver_begin(&q->rx);
	if (config->role == XTS_ARQ_HOST)
		arq_session_begin(q, config->epoch);
	*out = &q->base;
	return 0;
}
