/*
 * A session that goes to another process of the proxy (arq.h): the end of arq.c here, and its beginning there.
 *
 * Theory of operation
 *
 * The host's session goes on: it hears the same numbers, whoever says them. So the next process needs both sequences,
 * and the frames that have not arrived, which are sent again there. First this end *settles*: it sends what is lost
 * again, and takes nothing but acknowledgements. A frame that comes meanwhile is dropped and not acknowledged, so its
 * host sends it again, and the next process has it. Of a host that is awake nothing is left after a round trip. One
 * that sleeps acknowledges nothing; after a while what it has not heard is handed over, too.
 *
 * Frames that came early are acknowledged, and are in buffers that stay here. So a session that has some does not go
 * on, nor one with more unheard than there is room for: the next process has none then, and its host attaches again.
 *
 * What the next process gets is as good as the process that it comes from, and is checked.
 */
#include "decorators/arq_queue.h"

#include <stdlib.h>

#define VERSION 1u
#define HEAD_BYTES 48u
#define FRAME_BYTES 4u /* in front of each: how long it is */
/* Longer than a host that is awake takes, also if a frame is lost once or twice. */
#define SETTLE_NS 100000000u

/* --- here --------------------------------------------------------------------------------------------------------- */

/* What a frame is without the head of this session, whose place is behind the Ethernet header. */
static uint32_t bare_bytes(const struct arq_frame *f)
{
	return f->bytes - XTS_ARQ_ADDS;
}

static uint32_t unheard_bytes(struct arq_sender *s)
{
	uint32_t bytes = 0;

	for (uint32_t n = s->oldest; n != s->end; n++)
		bytes += FRAME_BYTES + bare_bytes(arq_sender_frame(s, n));
	return bytes;
}

static uint32_t past_of(const struct arq_queue *q)
{
	return q->past_count < ARQ_PAST_EPOCHS ? q->past_count : ARQ_PAST_EPOCHS;
}

static void write_head(const struct arq_queue *q, uint8_t *to)
{
	const struct arq_receiver *r = &q->rx;

	memset(to, 0, HEAD_BYTES);
	xts_put8(to, VERSION);
	xts_put8(to + 1, (uint8_t)past_of(q));
	xts_put16(to + 2, q->ethertype);
	xts_put64(to + 4, q->epoch);
	xts_put32(to + 12, q->tx.first);
	xts_put32(to + 16, q->tx.oldest);
	xts_put32(to + 20, q->tx.end - q->tx.oldest);
	xts_put32(to + 24, q->tx.transmission);
	xts_put32(to + 28, r->expected);
	xts_put32(to + 32, r->heard);
	xts_put16(to + 36, r->duplicates);
	xts_put8(to + 38, r->known);
	xts_put8(to + 39, r->heard_any);
}

int arq_session_write(struct arq_queue *q, uint32_t most, uint8_t **session)
{
	uint32_t past = past_of(q), bytes = HEAD_BYTES + 8 * past + unheard_bytes(&q->tx);
	uint8_t *to;

	if (!q->open || bytes > most)
		return 0;
	to = *session = malloc(bytes);
	if (!to)
		return -ENOMEM;
	write_head(q, to);
	to += HEAD_BYTES;
	for (uint32_t i = 0; i < past; i++, to += 8)
		xts_put64(to, q->past[i]);
	for (uint32_t n = q->tx.oldest; n != q->tx.end; n++) {
		const struct arq_frame *f = arq_sender_frame(&q->tx, n);

		xts_put32(to, bare_bytes(f));
		memcpy(to + FRAME_BYTES, f->slot.data, XTS_ETH_BYTES);
		memcpy(to + FRAME_BYTES + XTS_ETH_BYTES, f->slot.data + XTS_ARQ_BYTES, f->bytes - XTS_ARQ_BYTES);
		to += FRAME_BYTES + bare_bytes(f);
	}
	return (int)bytes;
}

/* Takes acknowledgements from what has come. */
static void hear(struct arq_queue *q)
{
	struct xts_rx_frame frame;

	for (uint32_t i = 0; i < ARQ_WINDOW && xts_queue_receive(q->base.inner, &frame) > 0; i++)
		if (arq_admit(q, &frame))
			xts_queue_recycle(q->base.inner, &frame);
}

int arq_settle(struct xts_queue *base, uint64_t now_ns, uint8_t **session)
{
	struct arq_queue *q = (struct arq_queue *)base;
	int bytes;

	*session = NULL;
	if (!q->settling) {
		q->settling = true;
		q->settled_ns = now_ns + SETTLE_NS;
	}
	xts_queue_tick(base, now_ns);
	if (q->open && q->tx.oldest != q->tx.end) {
		hear(q);
		xts_queue_tick(base, now_ns);
		(void)xts_queue_kick(base);
	}
	if (q->open && q->tx.oldest != q->tx.end && now_ns < q->settled_ns)
		return -EAGAIN;
	bytes = q->rx.held_count ? 0 : arq_session_write(q, XTS_ARQ_SESSION_BYTES_MAX, session);
	arq_session_end(q);
	return bytes;
}

/* --- there -------------------------------------------------------------------------------------------------------- */

/* Those that the host has not heard, to be sent again. */
static int take_frames(struct arq_queue *q, const uint8_t *from, uint32_t bytes, uint32_t count)
{
	for (; count; count--) {
		struct xts_tx_slot slot;
		uint32_t length;

		if (bytes < FRAME_BYTES)
			return -EINVAL;
		length = xts_get32(from);
		from += FRAME_BYTES;
		bytes -= FRAME_BYTES;
		if (length < XTS_ETH_BYTES || length > bytes)
			return -EINVAL;
		if (xts_queue_acquire(q->base.inner, &slot))
			return -EINVAL;
		if (length > slot.capacity - XTS_ARQ_ADDS) {
			xts_queue_abandon(q->base.inner, &slot);
			return -EINVAL;
		}
		/* In the slot of the process before, the head of the layer below may be where this was. */
		arq_write_ethernet(q, slot.data, q->ethertype);
		memcpy(slot.data + XTS_ARQ_BYTES, from + XTS_ETH_BYTES, length - XTS_ETH_BYTES);
		xts_queue_retain(q->base.inner, &slot);
		arq_sender_add(&q->tx, &slot, length + XTS_ARQ_ADDS);
		from += length;
		bytes -= length;
	}
	return bytes ? -EINVAL : 0;
}

static void take_receiver(struct arq_receiver *r, const uint8_t *from)
{
	r->expected = xts_get32(from + 28);
	r->heard = xts_get32(from + 32);
	r->duplicates = xts_get16(from + 36);
	r->known = xts_get8(from + 38);
	r->heard_any = xts_get8(from + 39);
}

uint32_t arq_session_frames(const uint8_t *session, uint32_t bytes)
{
	return bytes < HEAD_BYTES ? 0 : xts_get32(session + 20);
}

int xts_arq_resume(struct xts_queue *queue, const uint8_t *session, uint32_t bytes)
{
	struct arq_queue *q = (struct arq_queue *)queue;
	uint32_t past, count;
	int error;

	if (q->config.role != XTS_ARQ_PROXY || q->open || bytes < HEAD_BYTES || xts_get8(session) != VERSION)
		return -EINVAL;
	past = xts_get8(session + 1);
	count = xts_get32(session + 20);
	if (past > ARQ_PAST_EPOCHS || count >= ARQ_RING || bytes - HEAD_BYTES < 8 * past || !xts_get64(session + 4))
		return -EINVAL;
	arq_session_begin(q, xts_get64(session + 4));
	q->ethertype = xts_get16(session + 2);
	for (q->past_count = 0; q->past_count < past; q->past_count++)
		q->past[q->past_count] = xts_get64(session + HEAD_BYTES + 8 * q->past_count);
	take_receiver(&q->rx, session);
	arq_sender_resume(&q->tx, xts_get32(session + 12), xts_get32(session + 16), xts_get32(session + 24));
	error = take_frames(q, session + HEAD_BYTES + 8 * past, bytes - HEAD_BYTES - 8 * past, count);
	if (error)
		arq_session_end(q);
	else
		arq_sender_lose_all(&q->tx);
	return error;
}
