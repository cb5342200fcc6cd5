/*
 * A session of a process that has died (arq.h), at any instruction, and has left its struct in shared memory.
 *
 * Theory of operation. The host's session goes on, as in an upgrade (arq_session.c). What is left of the dead process
 * says the same as what a living one writes down:
 *
 *   - What was sent. A frame is whole before it has a number (arq_sender_add()), and has one before it is given to the
 *     queue below. So of those with a number each can be sent again, and no other has been. They lie in the queue's
 *     slots, which nobody writes to before they are copied here. What has arrived meanwhile comes twice, and the host
 *     drops it.
 *   - What had come. A frame counts as expected no more only when it was taken, and the host hears only of those that
 *     count. Frames that were taken and not given back are received again. They have lost their heads. Those that had
 *     gone up go up again, in the same order; those that had come early are early again.
 *   - The number of a transmission may have been used, and not counted yet: the next one is one more.
 */
#include "decorators/arq_queue.h"

#include <stdlib.h>

/* As many frames as there can be, of the largest size. */
#define DEAD_BYTES_MAX (ARQ_RING * (XTS_FRAME_BYTES_MAX + XTS_ARQ_BYTES))

struct arq_again {
	uint32_t count, next;
	bool collected, has_behind;
	struct xts_rx_frame behind;
	uint32_t number[ARQ_RING];
	struct xts_rx_frame frame[ARQ_RING]; /* with a lower number than what is expected */
};

_Static_assert(sizeof(struct arq_queue) <= 65536, "LEDGER_SESSION_BYTES");

/* Slots are where this process has them. False: some are nowhere. */
static bool find_frames(struct arq_queue *dead, struct xts_queue *below, const void *dead_below)
{
	struct arq_sender *s = &dead->tx;

	if (s->end - s->oldest >= ARQ_RING)
		return false;
	for (uint32_t n = s->oldest; n != s->end; n++) {
		struct arq_frame *f = arq_sender_frame(s, n);

		if (f->bytes < XTS_ARQ_BYTES || f->bytes > XTS_FRAME_BYTES_MAX + XTS_ARQ_BYTES)
			return false;
		f->slot.data = xts_queue_dead_slot(below, dead_below, (uintptr_t)f->slot.data, f->bytes);
		if (!f->slot.data)
			return false;
	}
	return true;
}

int xts_arq_dead_session(struct xts_queue *below, const void *dead_below, void *dead, size_t dead_bytes, uint64_t epoch,
			 uint8_t **session)
{
	struct arq_queue *copy;
	int bytes = 0;

	*session = NULL;
	if (dead_bytes < sizeof *copy)
		return 0;
	copy = malloc(sizeof *copy);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, dead, sizeof *copy);
	*(volatile uint8_t *)&((struct arq_queue *)dead)->open = 0; /* its slots are others' from now on */
	copy->open = *(const uint8_t *)&copy->open == 1;
	copy->tx.transmission++;
	if (epoch && copy->open && copy->epoch == epoch && find_frames(copy, below, dead_below))
		bytes = arq_session_write(copy, DEAD_BYTES_MAX, session);
	free(copy);
	return bytes;
}

/* Has the queue so many slots now? */
static bool has_slots(struct xts_queue *below, uint32_t count)
{
	struct xts_tx_slot slots[ARQ_RING];
	uint32_t taken = 0;

	while (taken < count && !xts_queue_acquire(below, &slots[taken]))
		taken++;
	for (uint32_t i = taken; i--;)
		xts_queue_abandon(below, &slots[i]);
	return taken == count;
}

int xts_arq_resume_dead(struct xts_queue *queue, const uint8_t *session, uint32_t bytes)
{
	struct arq_queue *q = (struct arq_queue *)queue;
	uint32_t count = arq_session_frames(session, bytes);
	struct arq_again *again;
	int error;

	if (count >= ARQ_RING)
		return -EINVAL;
	if (!has_slots(queue->inner, count)) {
		(void)xts_queue_kick(queue->inner);
		return -EAGAIN;
	}
	again = calloc(1, sizeof *again);
	if (!again)
		return -ENOMEM;
	error = xts_arq_resume(queue, session, bytes);
	if (error)
		free(again);
	else
		q->again = again;
	return error;
}

/* --- what had been taken ------------------------------------------------------------------------------------------ */

/* Has the process that has died taken it, and its head off? Then the Ethernet header is where the head's end was, and
 * what that said has been compared. */
static bool was_taken(const struct arq_queue *q, const struct xts_rx_frame *frame, struct xts_arq *head)
{
	const uint8_t *data = frame->segment[0].iov_base;
	size_t bytes = frame->segment[0].iov_len;

	return bytes >= XTS_ARQ_ADDS + XTS_HEAD_BYTES && data[XTS_ETH_BYTES] == XTS_LINK_ARQ &&
	       !memcmp(data + XTS_ARQ_ADDS, data, XTS_ETH_BYTES) && !xts_arq_decode(head, data, bytes) &&
	       head->epoch == q->epoch;
}

/* They have come in any order, and had gone up in that of their numbers. One may have come twice. */
static void sort_in(struct arq_queue *q, uint32_t number, const struct xts_rx_frame *frame)
{
	struct arq_again *a = q->again;
	uint32_t at = a->count, place = at;

	while (place && (int32_t)(a->number[place - 1] - number) > 0)
		place--;
	if (place && a->number[place - 1] == number) {
		xts_queue_recycle(q->base.inner, frame);
		return;
	}
	for (a->count++; at > place; at--) {
		a->number[at] = a->number[at - 1];
		a->frame[at] = a->frame[at - 1];
	}
	a->number[at] = number;
	a->frame[at] = *frame;
}

/* They come first. The one behind them is kept for later. */
static void collect(struct arq_queue *q)
{
	struct arq_again *a = q->again;
	struct xts_rx_frame frame;
	struct xts_arq head;

	a->collected = true;
	while (a->count < ARQ_RING && xts_queue_receive(q->base.inner, &frame) > 0) {
		if (!was_taken(q, &frame, &head)) {
			a->behind = frame;
			a->has_behind = true;
			return;
		}
		arq_take_off(&frame);
		if ((int32_t)(head.sequence - q->rx.expected) < 0 || arq_arrives(q, &frame, &head))
			sort_in(q, head.sequence, &frame);
	}
}

int arq_again_receive(struct arq_queue *q, struct xts_rx_frame *frame)
{
	struct arq_again *a = q->again;

	if (!a->collected)
		collect(q);
	if (a->next < a->count) {
		*frame = a->frame[a->next++];
		return 1;
	}
	q->again = NULL;
	*frame = a->behind;
	if (a->has_behind && arq_admit(q, frame)) {
		free(a);
		return 1;
	}
	free(a);
	return 0;
}

void arq_again_end(struct arq_queue *q)
{
	struct arq_again *a = q->again;

	if (!a)
		return;
	for (; a->next < a->count; a->next++)
		xts_queue_recycle(q->base.inner, &a->frame[a->next]);
	if (a->has_behind)
		xts_queue_recycle(q->base.inner, &a->behind);
	q->again = NULL;
	free(a);
}
