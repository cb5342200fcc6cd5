/*
 * libFuzzer target: a shared-memory queue whose peer is the input.
 *
 * The input is a program of one-byte operations with their arguments: some are what an honest peer would do, so that
 * deep states are reached, others write anything into rings and counters or misuse the bell. Whatever it does: memory
 * is safe, what is received lies within the peer's slots and no slot is lent twice at once, a slot to send in is never
 * one that is taken, retained or on its way, and a queue that is broken stays broken.
 */
#include "ensure.h"
#include "input.h"
#include "queues/shm_inside.h"
#include "steps.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WINDOW 4
#define SLOTS (WINDOW + XTS_CONTROL_RESERVE)

struct run {
	struct shm_queue *q;
	struct shm_direction *to_us, *from_us;
	int peer_bell;
	struct xts_rx_frame held[SLOTS];
	unsigned held_count;
	struct xts_tx_slot retained[SLOTS];
	unsigned retained_count;
	bool broken;
};

/* Values around the limits, and any byte. */
static uint32_t take_value(struct input *in)
{
	static const uint32_t edges[] = { 0,
					  1,
					  SLOTS - 1,
					  SLOTS,
					  SLOTS + 1,
					  SHM_ENTRIES,
					  XTS_FRAME_BYTES_MAX,
					  XTS_FRAME_BYTES_MAX + 1,
					  INT32_MAX,
					  (uint32_t)INT32_MAX + 1,
					  UINT32_MAX };
	uint8_t choice = take(in);

	return choice < 128 ? edges[choice % (sizeof edges / sizeof *edges)] : take(in);
}

static void receive(struct run *r)
{
	struct xts_rx_frame f;
	int got = xts_queue_receive(&r->q->base, &f);

	if (got != 1) {
		ENSURE(got == 0 || got == -EPIPE);
		ENSURE(!r->broken || got == -EPIPE);
		r->broken = r->q->broken;
		return;
	}
	ENSURE(!r->broken);
	ENSURE(f.segments == 1 && f.bytes == f.segment[0].iov_len && f.bytes > 0 && f.bytes <= XTS_FRAME_BYTES_MAX);
	ENSURE((uint8_t *)f.segment[0].iov_base >= r->q->rx_memory);
	ENSURE((uint8_t *)f.segment[0].iov_base + f.bytes <= r->q->rx_memory + (size_t)SLOTS * r->q->slot_bytes);
	for (unsigned i = 0; i < r->held_count; i++)
		ENSURE(r->held[i].segment[0].iov_base != f.segment[0].iov_base);
	ENSURE(r->held_count < SLOTS);
	r->held[r->held_count++] = f;
}

/* One that is retained is sent again, or given up. */
static void use_retained(struct run *r, uint8_t choice)
{
	struct xts_tx_slot *last = &r->retained[r->retained_count - 1];
	int error;

	if (choice & 1) {
		error = xts_queue_submit_retained(&r->q->base, last, 60);
		ENSURE(error == 0 || error == -EAGAIN);
	} else {
		xts_queue_release(&r->q->base, last);
		r->retained_count--;
	}
}

static void transmit(struct run *r, struct input *in)
{
	struct xts_tx_slot slot;
	uint8_t choice;

	if (xts_queue_acquire(&r->q->base, &slot))
		return;
	for (unsigned i = 0; i < r->retained_count; i++)
		ENSURE(r->retained[i].index != slot.index);
	ENSURE(slot.data >= r->q->tx_memory && slot.capacity == XTS_FRAME_BYTES_MAX);
	ENSURE(slot.data + slot.capacity <= r->q->tx_memory + (size_t)SLOTS * r->q->slot_bytes);
	for (unsigned i = 0; i < r->q->free_count; i++)
		ENSURE(r->q->free[i] != slot.index);
	slot.data[0] = slot.data[slot.capacity - 1] = 1;
	choice = take(in);
	if (choice >= 0xf0) {
		xts_queue_retain(&r->q->base, &slot);
		r->retained[r->retained_count++] = slot;
		use_retained(r, 1);
	} else if (choice & 1) {
		xts_queue_submit(&r->q->base, &slot, 60);
	} else {
		xts_queue_abandon(&r->q->base, &slot);
	}
	if (choice >= 0xe0 && choice < 0xf0 && r->retained_count)
		use_retained(r, choice >> 1);
}

/* What an honest peer does: publishes a frame, or returns the slot it has had longest. */
static void behave(struct run *r, struct input *in)
{
	uint32_t published = atomic_load(&r->to_us->published), returned = atomic_load(&r->from_us->returned);

	if (take(in) & 1) {
		r->to_us->descriptor[published % SHM_ENTRIES] = (struct shm_descriptor){ take(in) % SLOTS,
											 take(in) + 1u };
		atomic_store(&r->to_us->published, published + 1);
	} else if (returned != atomic_load(&r->from_us->published)) {
		atomic_store(&r->from_us->back[returned % SHM_ENTRIES],
			     r->from_us->descriptor[returned % SHM_ENTRIES].slot);
		atomic_store(&r->from_us->returned, returned + 1);
	}
}

static void misbehave(struct run *r, struct input *in)
{
	uint32_t word = take(in);

	word = (word << 8 | take(in)) % (sizeof(struct shm_header) / sizeof(uint32_t));
	((volatile uint32_t *)r->q->memory)[word] = take_value(in);
}

static void step(struct run *r, struct input *in)
{
	char bytes[100] = "";

	switch (take(in) % 9) {
	case 0:
		receive(r);
		break;
	case 1:
		transmit(r, in);
		break;
	case 2:
		ENSURE(xts_queue_kick(&r->q->base) == (r->q->broken ? -ENXIO : 0));
		break;
	case 3:
		if (r->held_count)
			xts_queue_recycle(&r->q->base, &r->held[--r->held_count]);
		break;
	case 4:
		if (!xts_queue_arm(&r->q->base))
			xts_queue_disarm(&r->q->base);
		break;
	case 5:
	case 6:
		behave(r, in);
		break;
	case 7:
		misbehave(r, in);
		break;
	case 8:
		if (r->peer_bell >= 0 && take(in) % 4) {
			ENSURE(send(r->peer_bell, bytes, 1 + take(in) % sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) != 0);
		} else if (r->peer_bell >= 0) {
			close(r->peer_bell);
			r->peer_bell = -1;
		}
		break;
	}
	ENSURE(r->q->free_count + r->q->tx_sent_slots <= SLOTS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input in = { data, bytes };
	const struct xts_queue_options options = { .frame_window = WINDOW };
	struct xts_queue_opened area;
	struct xts_queue *queue;
	struct run r = { 0 };

	memset(&area, 0, sizeof area);
	ENSURE(xts_queue_shm.open(&area, &options) == 0);
	ENSURE(xts_queue_shm.adopt(&queue, XTS_QUEUE_PROXY, area.fds[XTS_QUEUE_PROXY], &area.geometry) == 0);
	r.q = shm_of(queue);
	r.to_us = r.q->rx;
	r.from_us = r.q->tx;
	r.peer_bell = area.fds[XTS_QUEUE_HOST][SHM_BELL];
	while (in.bytes) {
		step_begins(&in, data);
		step(&r, &in);
	}
	steps_ran(data, bytes);
	if (r.peer_bell >= 0)
		close(r.peer_bell);
	xts_queue_close(queue);
	return 0;
}
