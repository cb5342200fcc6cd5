/*
 * What has come (arq.h). A frame in order goes up at once. One that comes too early is held, in the buffers that it has
 * come in, until those before it have come. There are never more than the sender may have out, whose frame window has
 * its buffers at the receiver: so the frame that is missing always meets one.
 *
 * An acknowledgement goes with a frame of our own where there is one. It is sent by itself after some frames or some
 * time, and at once when a frame comes early or twice, since then one is missing, or the peer does not know enough.
 */
#include "common/time_units.h"
#include "decorators/arq_inside.h"

#include <string.h>

#define ACK_EVERY 8u /* frames */
#define HELD_US_MAX 65535u

void arq_receiver_begin(struct arq_receiver *r)
{
	memset(r, 0, sizeof *r);
	r->ack_ns = ARQ_NEVER;
}

void arq_receiver_first(struct arq_receiver *r, uint32_t first)
{
	if (r->known)
		return;
	r->known = true;
	r->expected = first;
}

void arq_receiver_heard(struct arq_receiver *r, uint32_t transmission)
{
	if (r->heard_any && (int32_t)(transmission - r->heard) <= 0)
		return;
	r->heard = transmission;
	r->heard_any = r->heard_new = true;
}

static void note_unacknowledged(struct arq_receiver *r, bool now)
{
	r->unacked++;
	r->due |= now || r->unacked >= ACK_EVERY;
	if (r->ack_ns == ARQ_NEVER)
		r->ack_ns = 0;
}

enum arq_arrival arq_receiver_take(struct arq_receiver *r, const struct xts_arq *head, const struct xts_rx_frame *frame)
{
	uint32_t ahead = head->sequence - r->expected;
	struct xts_rx_frame *place = &r->held[head->sequence % ARQ_WINDOW];

	if ((int32_t)ahead >= (int32_t)ARQ_WINDOW)
		return ARQ_BEYOND;
	if ((int32_t)ahead < 0 || place->segments) {
		r->duplicates++;
		note_unacknowledged(r, true);
		return ARQ_DUPLICATE;
	}
	note_unacknowledged(r, ahead || r->held_count);
	if (!ahead) {
		r->expected++;
		return ARQ_IN_ORDER;
	}
	*place = *frame;
	r->held_count++;
	return ARQ_EARLY;
}

bool arq_receiver_next(struct arq_receiver *r, struct xts_rx_frame *frame)
{
	struct xts_rx_frame *place = &r->held[r->expected % ARQ_WINDOW];

	if (!r->held_count || !place->segments)
		return false;
	*frame = *place;
	place->segments = 0;
	r->held_count--;
	r->expected++;
	return true;
}

void arq_receiver_tick(struct arq_receiver *r, uint64_t now_ns)
{
	if (r->heard_new)
		r->heard_ns = now_ns;
	r->heard_new = false;
	if (!r->ack_ns)
		r->ack_ns = now_ns + ARQ_ACK_DELAY_NS;
	r->due |= r->ack_ns <= now_ns;
}

void arq_receiver_acknowledge(struct arq_receiver *r, struct xts_arq *head, uint64_t now_ns)
{
	uint64_t held_us = (now_ns - r->heard_ns) / NS_PER_US;

	if (!r->heard_any)
		return;
	head->parts |= XTS_ARQ_ARRIVED;
	head->arrived = r->expected;
	head->heard = r->heard;
	head->held_us = (uint16_t)(r->heard_new ? 0 : held_us < HELD_US_MAX ? held_us : HELD_US_MAX);
	head->duplicates = r->duplicates;
	for (uint32_t i = 0, left = r->held_count; left; i++) {
		if (!r->held[(r->expected + i) % ARQ_WINDOW].segments)
			continue;
		left--;
		if (!i)
			continue; /* its turn has come, and it has not been taken yet */
		if (i <= 64)
			head->selective_low |= UINT64_C(1) << (i - 1);
		else
			head->selective_high |= UINT64_C(1) << (i - 65);
	}
	r->unacked = 0;
	r->due = false;
	r->ack_ns = ARQ_NEVER;
}
