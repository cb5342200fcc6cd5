/*
 * A decorator that sends several small frames as one (XTS_LINK_BUNDLE), and splits received bundles.
 *
 * If each frame is a packet of the kernel, its path (allocation, driver, XDP program, copy) costs some microseconds
 * however short it is. The frames of one round often come together: requests of many connections, or their answers. So
 * a small frame waits for the next submit or the kick. If it stays alone, it leaves unchanged. If others follow, they
 * are copied behind the first, whose slot becomes the bundle. The link above sees single frames on both sides, and all
 * of its rules are about those.
 *
 * On the receiving side, the frames stay in the bundle that brought them, which goes back to the queue when all of them
 * have been recycled. Received bundles are always split; bundles are sent only to a peer that has announced that it
 * accepts them (xts_bundle_send()).
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "queues/queue.h"
#include "wire/wire.h"

#define SMALL_BYTES 512u  /* for larger frames, the copy and the room cost more than the packet saves */
#define LENGTH_BYTES 2u   /* before each frame */
#define WHOLE_BYTES 2048u /* this many bytes of a frame come in one piece (queue.h): the largest bundle */

/* A bundle needs one of these while it is being split, and as long as the owner still has a frame of it. If a window's
 * frames are out, each from a different bundle, this many are enough for any peer that obeys the link's rules; of
 * frames that are kept longer, each takes a buffer of those. */
#define LENT_MAX (XTS_FRAME_WINDOW_MAX + XTS_CONTROL_RESERVE + 1u + XTS_QUEUE_KEPT_MAX)
#define LENT_COOKIE (UINT64_C(1) << 63) /* marks our cookies; the inner queue's own do not have this bit */

struct lent {
	void *data;
	uint64_t cookie; /* the inner queue's */
	uint32_t bytes;
	uint32_t end;   /* end of its frames */
	uint32_t users; /* how many of its frames are out, plus one while it is being split; 0: free */
};

struct bundle_queue {
	struct xts_queue base;
	struct xts_queue *below; /* that it was wrapped around, and closes */
	bool sending;
	uint32_t most_bytes; /* of a bundle */
	/* Transmit: a frame that waits for others, or for the kick. */
	struct xts_tx_slot waiting;
	uint32_t waiting_bytes, waiting_frames;
	/* Receive: our position in the bundle that is being split. */
	struct lent *current;
	uint32_t at;
	uint64_t invalid;
	struct lent lent[LENT_MAX];
};

static struct bundle_queue *bundle_of(struct xts_queue *q)
{
	return (struct bundle_queue *)q;
}

/* The figures are those of the inner queue, which counts packets. */
static void sync_stats(struct bundle_queue *q)
{
	q->base.stats = q->base.inner->stats;
	q->base.stats.rx_invalid += q->invalid;
}

/* --- transmit ----------------------------------------------------------------------------------------------------- */

static void let_go(struct bundle_queue *q)
{
	uint8_t *data = q->waiting.data;

	if (!q->waiting_frames)
		return;
	if (q->waiting_frames > 1) {
		struct xts_bundle m = { .length = q->waiting_bytes - XTS_BUNDLE_BYTES };

		/* the Ethernet header of the first frame: all go to the same peer */
		memcpy(data, data + XTS_BUNDLE_BYTES + LENGTH_BYTES, XTS_ETH_BYTES);
		xts_head_encode(data, XTS_LINK_BUNDLE, 0, 0, 0);
		xts_put8(data + XTS_ETH_BYTES + 1, 0);
		xts_put8(data + XTS_ETH_BYTES + 2, 0);
		xts_bundle_encode(data, &m);
	}
	xts_queue_submit(q->base.inner, &q->waiting, q->waiting_bytes);
	q->waiting_frames = 0;
}

/* Turns the slot of the first frame into a bundle. */
static void make_bundle(struct bundle_queue *q)
{
	uint8_t *data = q->waiting.data;

	memmove(data + XTS_BUNDLE_BYTES + LENGTH_BYTES, data, q->waiting_bytes);
	xts_put16(data + XTS_BUNDLE_BYTES, (uint16_t)q->waiting_bytes);
	q->waiting_bytes += XTS_BUNDLE_BYTES + LENGTH_BYTES;
}

static void add(struct bundle_queue *q, const struct xts_tx_slot *slot, uint32_t bytes)
{
	uint8_t *end;

	if (q->waiting_frames == 1)
		make_bundle(q);
	end = (uint8_t *)q->waiting.data + q->waiting_bytes;
	xts_put16(end, (uint16_t)bytes);
	memcpy(end + LENGTH_BYTES, slot->data, bytes);
	q->waiting_bytes += LENGTH_BYTES + bytes;
	q->waiting_frames++;
	xts_queue_abandon(q->base.inner, slot);
}

static bool fits(const struct bundle_queue *q, uint32_t bytes)
{
	uint32_t head = q->waiting_frames == 1 ? XTS_BUNDLE_BYTES + LENGTH_BYTES : 0;

	return q->waiting_frames && q->waiting_bytes + head + LENGTH_BYTES + bytes <= q->most_bytes;
}

static int bundle_acquire(struct xts_queue *base, struct xts_tx_slot *slot)
{
	struct bundle_queue *q = bundle_of(base);
	int error = xts_queue_acquire(q->base.inner, slot);

	if (error)
		sync_stats(q);
	return error;
}

static void bundle_submit(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct bundle_queue *q = bundle_of(base);

	if (!q->sending || bytes > SMALL_BYTES) {
		let_go(q);
		xts_queue_submit(q->base.inner, slot, bytes);
		return;
	}
	if (fits(q, bytes)) {
		add(q, slot, bytes);
		return;
	}
	let_go(q);
	q->waiting = *slot;
	q->waiting_bytes = bytes;
	q->waiting_frames = 1;
}

static void bundle_abandon(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	xts_queue_abandon(bundle_of(base)->base.inner, slot);
}

static int bundle_kick(struct xts_queue *base)
{
	struct bundle_queue *q = bundle_of(base);
	int error;

	let_go(q);
	error = xts_queue_kick(q->base.inner);
	sync_stats(q);
	return error;
}

/* --- receive ------------------------------------------------------------------------------------------------------ */

static void lent_drop(struct bundle_queue *q, struct lent *l)
{
	struct xts_rx_frame frame;

	if (--l->users)
		return;
	frame.bytes = l->bytes;
	frame.segments = 1;
	frame.cookie = l->cookie;
	frame.segment[0].iov_base = l->data;
	frame.segment[0].iov_len = l->bytes;
	xts_queue_recycle(q->base.inner, &frame);
}

static bool is_bundle(const struct xts_rx_frame *frame)
{
	struct xts_head head;

	return !xts_head_decode(&head, frame->segment[0].iov_base, frame->segment[0].iov_len) &&
	       head.type == XTS_LINK_BUNDLE;
}

/* Begins to split a bundle. False: it is invalid, or there are too many; it has been recycled. */
static bool begin(struct bundle_queue *q, const struct xts_rx_frame *frame)
{
	struct xts_bundle m;
	struct lent *l = q->lent;

	while (l < q->lent + LENT_MAX && l->users)
		l++;
	if (frame->segments != 1 || l == q->lent + LENT_MAX ||
	    xts_bundle_decode(&m, frame->segment[0].iov_base, frame->bytes)) {
		q->invalid++;
		xts_queue_recycle(q->base.inner, frame);
		return false;
	}
	l->data = frame->segment[0].iov_base;
	l->bytes = frame->bytes;
	l->cookie = frame->cookie;
	l->users = 1;
	q->current = l;
	q->at = XTS_BUNDLE_BYTES;
	l->end = XTS_BUNDLE_BYTES + m.length;
	return true;
}

/* The next frame of the current bundle; false: that was the last, or the rest is invalid. */
static bool take(struct bundle_queue *q, struct xts_rx_frame *frame)
{
	struct lent *l = q->current;
	uint32_t left = l->end - q->at, bytes;

	if (!left)
		return false;
	bytes = left < LENGTH_BYTES ? 0 : xts_get16((const uint8_t *)l->data + q->at);
	if (bytes < XTS_HEAD_BYTES || bytes > left - LENGTH_BYTES) {
		q->invalid++; /* the link will notice that the other frames are missing */
		return false;
	}
	frame->bytes = bytes;
	frame->segments = 1;
	frame->cookie = LENT_COOKIE | (uint64_t)(l - q->lent);
	frame->segment[0].iov_base = (uint8_t *)l->data + q->at + LENGTH_BYTES;
	frame->segment[0].iov_len = bytes;
	q->at += LENGTH_BYTES + bytes;
	l->users++;
	return true;
}

static int bundle_receive(struct xts_queue *base, struct xts_rx_frame *frame)
{
	struct bundle_queue *q = bundle_of(base);
	int got;

	for (;;) {
		if (q->current) {
			if (take(q, frame))
				return 1;
			lent_drop(q, q->current);
			q->current = NULL;
		}
		got = xts_queue_receive(q->base.inner, frame);
		if (!got)
			return 0; /* most calls of a loop that polls end here, without any accounting */
		sync_stats(q);
		if (got < 0 || !is_bundle(frame))
			return got;
		if (!begin(q, frame))
			return 0; /* returns, since the caller has other work too */
	}
}

static void bundle_recycle(struct xts_queue *base, const struct xts_rx_frame *frame)
{
	struct bundle_queue *q = bundle_of(base);

	if (frame->cookie & LENT_COOKIE)
		lent_drop(q, &q->lent[frame->cookie & ~LENT_COOKIE]);
	else
		xts_queue_recycle(q->base.inner, frame);
}

static int bundle_arm(struct xts_queue *base)
{
	struct bundle_queue *q = bundle_of(base);
	int ready;

	if (q->current && q->at < q->current->end)
		return 1;
	ready = xts_queue_arm(q->base.inner);
	sync_stats(q);
	return ready;
}

static void bundle_disarm(struct xts_queue *base)
{
	xts_queue_disarm(bundle_of(base)->base.inner);
	sync_stats(bundle_of(base));
}

static void bundle_close(struct xts_queue *base)
{
	struct bundle_queue *q = bundle_of(base);

	if (q->waiting_frames)
		xts_queue_abandon(q->base.inner, &q->waiting);
	xts_queue_close(q->below);
	free(q);
}

static void bundle_retain(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	xts_queue_retain(bundle_of(base)->base.inner, slot);
}

/* It leaves alone: in a bundle, a slot is not the caller's any more. */
static int bundle_submit_retained(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	let_go(bundle_of(base));
	return xts_queue_submit_retained(bundle_of(base)->base.inner, slot, bytes);
}

static void bundle_release(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	xts_queue_release(bundle_of(base)->base.inner, slot);
}

static const struct xts_queue_ops bundle_ops = {
	.kind = "bundle",
	.acquire = bundle_acquire,
	.submit = bundle_submit,
	.abandon = bundle_abandon,
	.kick = bundle_kick,
	.receive = bundle_receive,
	.recycle = bundle_recycle,
	.arm = bundle_arm,
	.disarm = bundle_disarm,
	.close = bundle_close,
	.retain = bundle_retain,
	.submit_retained = bundle_submit_retained,
	.release = bundle_release,
};

int xts_bundle_wrap(struct xts_queue **out, struct xts_queue *inner)
{
	struct bundle_queue *q = calloc(1, sizeof *q);

	if (!q)
		return -ENOMEM;
	q->base = *inner;
	q->base.ops = &bundle_ops;
	q->base.inner = q->below = inner;
	*out = &q->base;
	return 0;
}

void xts_bundle_use(struct xts_queue *base, struct xts_queue *inner)
{
	let_go(bundle_of(base));
	bundle_of(base)->base.inner = inner;
}

void xts_bundle_send(struct xts_queue *base, bool on, uint32_t most_bytes)
{
	struct bundle_queue *q = bundle_of(base);
	uint32_t whole = WHOLE_BYTES - q->base.head_bytes;

	if (!on)
		let_go(q);
	q->sending = on;
	q->most_bytes = most_bytes && most_bytes < whole ? most_bytes : whole;
}
