/*
 * libFuzzer target: a queue of bundles whose peer is the input, or itself.
 *
 * The input is a program: frames from a hostile peer, frames of our own that come back to us as they were sent, frames
 * held and recycled in any order. Whatever it does: each byte that is lent out may be read, what the queue below lent
 * is given back once, and as long as the peer is none but ourselves, what is submitted comes in that order and whole.
 */
#include "memory_queue.h"
#include "steps.h"

struct run {
	struct memory_queue *below;
	struct xts_queue *queue;
	struct xts_rx_frame held[64];
	unsigned held_count;
	uint32_t submitted, received;
	bool hostile;
};

static uint32_t checksum;

/* Of the frame of this number. */
static uint32_t length_of(uint32_t number)
{
	return XTS_SEND_BYTES + number * 37 % 700;
}

static void submit(struct run *r)
{
	struct xts_tx_slot slot;
	uint32_t bytes = length_of(r->submitted);

	if (r->submitted - r->received + r->held_count >= WINDOW || xts_queue_acquire(r->queue, &slot))
		return;
	memset(slot.data, 0, bytes);
	slot.data[XTS_ETH_BYTES] = XTS_CMD_SEND;
	xts_put32(slot.data + XTS_HEAD_BYTES, r->submitted++);
	xts_queue_submit(r->queue, &slot, bytes);
}

static void come_back(struct run *r)
{
	struct memory_frame f;

	while (pipe_get(&r->below->out, &f)) {
		pipe_put(&r->below->in, f.data, f.bytes);
		free(f.data);
	}
}

static void peer_sends(struct run *r, struct input *in)
{
	uint8_t frame[600] = { 0 };
	uint32_t bytes = pick_number(in) % sizeof frame;
	bool bundle = take(in) & 1;

	r->hostile = true;
	for (uint32_t i = XTS_ETH_BYTES; i < bytes; i++)
		frame[i] = take(in);
	if (bundle && bytes >= XTS_BUNDLE_BYTES) {
		frame[XTS_ETH_BYTES] = XTS_LINK_BUNDLE;
		xts_put32(frame + XTS_HEAD_BYTES, bytes - XTS_BUNDLE_BYTES);
	}
	pipe_put(&r->below->in, frame, bytes);
}

static void receive(struct run *r)
{
	struct xts_rx_frame *f = &r->held[r->held_count];
	uint32_t bytes = 0;

	if (r->held_count == sizeof r->held / sizeof r->held[0] || xts_queue_receive(r->queue, f) != 1)
		return;
	for (uint32_t i = 0; i < f->segments; i++) {
		for (size_t at = 0; at < f->segment[i].iov_len; at++)
			checksum += ((const uint8_t *)f->segment[i].iov_base)[at];
		bytes += (uint32_t)f->segment[i].iov_len;
	}
	ENSURE(bytes == f->bytes);
	if (!r->hostile) {
		ENSURE(f->bytes == length_of(r->received));
		ENSURE(xts_get32((const uint8_t *)f->segment[0].iov_base + XTS_HEAD_BYTES) == r->received);
	}
	r->received++;
	r->held_count++;
}

static void recycle(struct run *r, unsigned which)
{
	if (!r->held_count)
		return;
	which %= r->held_count;
	xts_queue_recycle(r->queue, &r->held[which]);
	r->held[which] = r->held[--r->held_count];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input in = { data, bytes };
	struct run r = { .below = memory_open(true) };

	ENSURE(xts_bundle_wrap(&r.queue, &r.below->queue) == 0);
	xts_bundle_send(r.queue, true);
	while (in.bytes) {
		step_begins(&in, data);
		switch (take(&in) % 9) {
		case 0:
			peer_sends(&r, &in);
			break;
		case 1:
		case 2:
			submit(&r);
			break;
		case 3:
			ENSURE(xts_queue_kick(r.queue) == 0);
			break;
		case 4:
			come_back(&r);
			break;
		case 5:
		case 6:
			receive(&r);
			break;
		case 7:
			recycle(&r, take(&in));
			break;
		case 8:
			xts_bundle_send(r.queue, take(&in) % 8);
			break;
		}
	}
	steps_ran(data, bytes);
	while (r.held_count)
		recycle(&r, 0);
	xts_queue_close(r.queue);
	return 0;
}
