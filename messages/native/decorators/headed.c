/*
 * Heads of frames; headed.h says what they are for.
 *
 * A slot is handed out from behind the room for the head. So what is above writes a whole frame, and only its Ethernet
 * header moves, 14 bytes, to the beginning. In a frame that comes the Ethernet header moves back, over the end of the
 * head. The memory is ours until the frame is recycled; cookie and chunk stay.
 *
 * A slot that is retained is sent from where it is, with its head in front. The end of that is where the frame's
 * Ethernet header was, which is kept at the beginning from then on. A copy is sent where the queue below does not
 * retain slots, or frames have another form since the slot was taken.
 */
#include "decorators/headed.h"
#include "common/own_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define SECRETS_BYTES 2048u /* of 256 queues */
/* Frames that are dropped in one call; then the caller has its turn. */
#define DROPS_MAX 64u
/* In the number of a slot: it begins behind the room for the head. */
#define BEHIND_HEAD (UINT32_C(1) << 31)

struct xts_heads {
	struct xts_headed_config config;
	uint64_t *secrets; /* the map, or NULL */
	bool any;          /* the next frame may have any form: a proxy without an epoch */
	bool on;           /* frames have a head */
	bool last_on;      /* the last one had */
	uint64_t secret;   /* 0: they have none */
	uint64_t last;     /* secret of the last one */
	uint64_t foreign;  /* dropped */
	bool left;         /* another process goes on, with this epoch and what the program lets through */
	bool again;        /* a process that has died may have taken frames that come, and their heads off */
};

struct headed_queue {
	struct xts_queue base;
	struct xts_heads heads;
};

static struct headed_queue *headed_of(struct xts_queue *q)
{
	return (struct headed_queue *)q;
}

static void sync_stats(struct headed_queue *q)
{
	q->base.stats = q->base.inner->stats;
	q->base.stats.rx_foreign += q->heads.foreign;
}

/* --- transmit ----------------------------------------------------------------------------------------------------- */

static int headed_acquire(struct xts_queue *base, struct xts_tx_slot *slot)
{
	struct headed_queue *q = headed_of(base);
	int error = xts_queue_acquire(q->base.inner, slot);

	if (error) {
		sync_stats(q);
		return error;
	}
	slot->capacity -= XTS_HEADED_ADDS;
	if (q->heads.on) {
		slot->data += XTS_HEADED_ADDS;
		slot->index |= BEHIND_HEAD;
	}
	return 0;
}

/* The slot as the queue below knows it. */
static struct xts_tx_slot whole(const struct xts_tx_slot *slot)
{
	struct xts_tx_slot all = *slot;

	if (all.index & BEHIND_HEAD)
		all.data -= XTS_HEADED_ADDS;
	all.index &= ~BEHIND_HEAD;
	all.capacity += XTS_HEADED_ADDS;
	return all;
}

/* Behind the Ethernet header, which is there. */
static void write_head(const struct xts_heads *h, uint8_t *frame)
{
	xts_head_encode(frame, XTS_LINK_HEADED, 0, 0, h->config.number);
	xts_put8(frame + XTS_ETH_BYTES + 1, 0);
	xts_put8(frame + XTS_ETH_BYTES + 2, 0);
	xts_headed_encode(frame, &(struct xts_headed){ .secret = h->secret, .parts = h->secret ? XTS_HEAD_SECRET : 0 });
}

static void headed_submit(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct headed_queue *q = headed_of(base);
	struct xts_heads *h = &q->heads;
	struct xts_tx_slot all = whole(slot);
	uint8_t *data = all.data + (h->on ? XTS_HEADED_ADDS : 0);

	if (data != slot->data) /* the form has changed since the slot was taken */
		memmove(data, slot->data, bytes);
	if (h->on) {
		memcpy(all.data, data, XTS_ETH_BYTES);
		write_head(h, all.data);
		bytes += XTS_HEADED_ADDS;
	}
	xts_queue_submit(q->base.inner, &all, bytes);
}

static void headed_abandon(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	struct xts_tx_slot all = whole(slot);

	xts_queue_abandon(headed_of(base)->base.inner, &all);
}

static int headed_kick(struct xts_queue *base)
{
	struct headed_queue *q = headed_of(base);
	int error = xts_queue_kick(q->base.inner);

	sync_stats(q);
	return error;
}

/* Has a retained slot its head in front already? */
static bool has_head_in_front(const struct xts_tx_slot *slot)
{
	return slot->index & BEHIND_HEAD && whole(slot).data[XTS_ETH_BYTES] == XTS_LINK_HEADED;
}

static void headed_retain(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	struct headed_queue *q = headed_of(base);
	struct xts_tx_slot all = whole(slot);

	if (slot->index & BEHIND_HEAD)
		all.data[XTS_ETH_BYTES] = 0;
	if (q->base.inner->traits & XTS_QUEUE_RETAINS)
		xts_queue_retain(q->base.inner, &all);
}

/* -EAGAIN: there is no slot for it. */
static int submit_copy(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct xts_tx_slot copy;
	int error = headed_acquire(base, &copy);

	if (error)
		return error;
	memcpy(copy.data, slot->data, bytes);
	if (has_head_in_front(slot))
		memcpy(copy.data, whole(slot).data, XTS_ETH_BYTES);
	headed_submit(base, &copy, bytes);
	return 0;
}

static int headed_submit_retained(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct headed_queue *q = headed_of(base);
	struct xts_tx_slot all = whole(slot);
	bool behind = slot->index & BEHIND_HEAD;

	if (!(q->base.inner->traits & XTS_QUEUE_RETAINS) || behind != q->heads.on)
		return submit_copy(base, slot, bytes);
	if (!behind)
		return xts_queue_submit_retained(q->base.inner, &all, bytes);
	if (!has_head_in_front(slot))
		memcpy(all.data, slot->data, XTS_ETH_BYTES);
	write_head(&q->heads, all.data);
	return xts_queue_submit_retained(q->base.inner, &all, bytes + XTS_HEADED_ADDS);
}

static void headed_release(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	struct headed_queue *q = headed_of(base);
	struct xts_tx_slot all = whole(slot);

	if (q->base.inner->traits & XTS_QUEUE_RETAINS)
		xts_queue_release(q->base.inner, &all);
	else
		xts_queue_abandon(q->base.inner, &all);
}

/* --- receive ------------------------------------------------------------------------------------------------------ */

/* The end of a head may be where a process that has died has written the Ethernet header, as far as it came: each byte
 * is one or the other. */
static bool has_been_beheaded(const uint8_t *data)
{
	const uint8_t head[] = { 0, XTS_HEAD_SECRET };

	for (uint32_t i = 0; i < sizeof head; i++) {
		uint8_t is = data[XTS_HEADED_BYTES - sizeof head + i];

		if (is != head[i] && is != data[XTS_ETH_BYTES - sizeof head + i])
			return false;
	}
	return true;
}

/* Takes the head off a frame. False: it has one that this version does not know, or none that is whole. */
static bool behead(const struct xts_heads *h, struct xts_rx_frame *frame, uint64_t *secret)
{
	struct iovec *first = &frame->segment[0];
	uint8_t *data = first->iov_base;
	struct xts_headed head;

	if (first->iov_len < XTS_HEADED_ADDS + XTS_HEAD_BYTES || xts_headed_decode(&head, data, first->iov_len))
		return false;
	if (h->again && has_been_beheaded(data))
		head.parts = head.secret ? XTS_HEAD_SECRET : 0;
	if (head.parts & ~XTS_HEAD_SECRET || (head.parts && !head.secret))
		return false;
	*secret = head.parts ? head.secret : 0;
	memcpy(data + XTS_HEADED_ADDS, data, XTS_ETH_BYTES);
	first->iov_base = data + XTS_HEADED_ADDS;
	first->iov_len -= XTS_HEADED_ADDS;
	frame->bytes -= XTS_HEADED_ADDS;
	return true;
}

static bool has_head(const struct xts_rx_frame *frame)
{
	struct xts_head head;

	return !xts_head_decode(&head, frame->segment[0].iov_base, frame->segment[0].iov_len) &&
	       head.type == XTS_LINK_HEADED;
}

/* Is this frame of ours? It has lost its head then. */
static bool admit(struct xts_heads *h, struct xts_rx_frame *frame)
{
	uint64_t secret = 0;
	bool headed = has_head(frame);

	if (headed && !behead(h, frame, &secret))
		return false;
	if (!h->any && (headed != h->on || secret != h->secret))
		return false;
	h->last_on = headed;
	h->last = secret;
	if (h->any) { /* it is answered in its own form */
		h->on = headed;
		h->secret = secret;
	}
	return true;
}

static int headed_receive(struct xts_queue *base, struct xts_rx_frame *frame)
{
	struct headed_queue *q = headed_of(base);

	for (uint32_t dropped = 0; dropped < DROPS_MAX; dropped++) {
		int got = xts_queue_receive(q->base.inner, frame);

		if (got <= 0) {
			sync_stats(q); /* once for all frames of a round: it took a third of the time of each */
			return got;
		}
		if (admit(&q->heads, frame))
			return 1;
		q->heads.foreign++;
		xts_queue_recycle(q->base.inner, frame);
	}
	return 0; /* the rest is found when the caller arms */
}

/* The queue below goes by the chunk that the memory is in, so the frame may begin later in it. */
static void headed_recycle(struct xts_queue *base, const struct xts_rx_frame *frame)
{
	xts_queue_recycle(headed_of(base)->base.inner, frame);
}

static int headed_arm(struct xts_queue *base)
{
	struct headed_queue *q = headed_of(base);
	int ready = xts_queue_arm(q->base.inner);

	sync_stats(q);
	return ready;
}

static void headed_disarm(struct xts_queue *base)
{
	xts_queue_disarm(headed_of(base)->base.inner);
	sync_stats(headed_of(base));
}

/* Behind the state of the queue below. */
static int headed_leave(struct xts_queue *base, int *fds, uint8_t *state)
{
	struct xts_heads *h = &headed_of(base)->heads;
	int bytes = xts_queue_leave(headed_of(base)->base.inner, fds, state);

	if (bytes < 0)
		return bytes;
	xts_headed_state(base, state + bytes);
	h->left = true;
	return bytes + (int)XTS_HEADED_STATE_BYTES;
}

static void headed_close(struct xts_queue *base)
{
	struct headed_queue *q = headed_of(base);

	if (!q->heads.left)
		xts_headed_no_epoch(base);
	if (q->heads.secrets)
		(void)munmap(q->heads.secrets, SECRETS_BYTES);
	xts_queue_close(q->base.inner);
	xts_release(q);
}

static const struct xts_queue_ops headed_ops = {
	.kind = "headed",
	.acquire = headed_acquire,
	.submit = headed_submit,
	.abandon = headed_abandon,
	.kick = headed_kick,
	.receive = headed_receive,
	.recycle = headed_recycle,
	.arm = headed_arm,
	.disarm = headed_disarm,
	.close = headed_close,
	.retain = headed_retain,
	.submit_retained = headed_submit_retained,
	.release = headed_release,
	.leave = headed_leave,
};

/* What the XDP program lets through to this queue, in network order; 0: everything. */
static void tell_program(const struct xts_heads *h, uint64_t secret)
{
	if (h->secrets)
		__atomic_store_n(&h->secrets[h->config.number], htobe64(secret), __ATOMIC_RELEASE);
}

int xts_headed_wrap(struct xts_queue **out, struct xts_queue *inner, const struct xts_headed_config *config)
{
	struct headed_queue *q;

	if (config->secrets_fd >= 0 && config->number >= SECRETS_BYTES / sizeof(uint64_t))
		return -EINVAL;
	q = calloc(1, sizeof *q);
	if (!q)
		return -ENOMEM;
	if (config->secrets_fd >= 0)
		q->heads.secrets = mmap(NULL, SECRETS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, config->secrets_fd, 0);
	if (q->heads.secrets == MAP_FAILED) {
		int error = -errno;

		free(q);
		return error;
	}
	q->base = *inner;
	q->base.ops = &headed_ops;
	q->base.traits |= XTS_QUEUE_RETAINS; /* or a copy is sent */
	q->base.heads = &q->heads;
	q->base.head_bytes = XTS_HEADED_ADDS;
	q->base.inner = inner;
	q->heads.config = *config;
	q->heads.on = config->secret != 0;
	q->heads.secret = config->secret;
	q->heads.any = !config->secret;
	if (!config->secret)
		tell_program(&q->heads, 0); /* a process that has died has left its own there */
	*out = &q->base;
	return 0;
}

/* Is there an epoch; have frames a head; the secret. */
void xts_headed_state(const struct xts_queue *queue, uint8_t *state)
{
	const struct xts_heads *h = queue->heads;

	memset(state, 0, XTS_HEADED_STATE_BYTES);
	if (!h)
		return;
	xts_put8(state, !h->any);
	xts_put8(state + 1, h->on);
	xts_put64(state + 2, h->secret);
}

bool xts_headed_state_ok(const uint8_t *state)
{
	bool live = xts_get8(state) == 1, on = xts_get8(state + 1) == 1;

	if (xts_get8(state) > 1 || xts_get8(state + 1) > 1)
		return false;
	return !live || on || !xts_get64(state + 2);
}

int xts_headed_resume(struct xts_queue *queue, const uint8_t *state, uint32_t bytes)
{
	struct xts_heads *h = queue->heads;

	if (!h || h->config.secret || bytes != XTS_HEADED_STATE_BYTES || !xts_headed_state_ok(state))
		return -EINVAL;
	h->last = xts_get64(state + 2);
	if (!xts_get8(state))
		return 0; /* as one that was opened now */
	h->last_on = xts_get8(state + 1);
	xts_headed_epoch(queue);
	return 0;
}

int xts_headed_resume_dead(struct xts_queue *queue, const uint8_t *state, uint32_t bytes)
{
	int error = xts_headed_resume(queue, state, bytes);

	if (!error)
		queue->heads->again = true;
	return error;
}

void xts_headed_epoch(struct xts_queue *queue)
{
	struct xts_heads *h = queue->heads;

	if (!h || h->config.secret)
		return;
	h->any = h->again = false;
	h->on = h->last_on;
	h->secret = h->last;
	tell_program(h, h->secret);
}

void xts_headed_no_epoch(struct xts_queue *queue)
{
	struct xts_heads *h = queue->heads;

	if (!h || h->config.secret)
		return;
	h->any = true;
	tell_program(h, 0);
}

uint64_t xts_headed_last(const struct xts_queue *queue)
{
	return queue->heads ? queue->heads->last : 0;
}
