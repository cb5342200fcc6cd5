/*
 * libFuzzer target: a queue whose frames come in parts, and whose peer is the input, or itself.
 *
 * The input is a program: frames from a hostile peer, frames of our own that come back to us as they were sent, frames
 * held and recycled in any order. Whatever it does: each byte that is lent out may be read, what the queue below lent
 * is given back once, and as long as the peer is none but ourselves, what is submitted comes in that order and whole.
 */
#include "numbered_frames.h"
#include "decorators/parts.h"
#include "steps.h"

/* Of eight packets; a numbered frame has up to eight. */
#define PACKET (XTS_PART_BYTES + 100u)

struct run {
	struct memory_queue *below;
	struct numbered frames;
	bool hostile;
};

static void submit(struct run *r)
{
	struct numbered *n = &r->frames;

	numbered_submit(n, n->submitted - n->received + n->held_count, XTS_CMD_SEND);
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
	bool part = take(in) & 1;

	r->hostile = true;
	for (uint32_t i = XTS_ETH_BYTES; i < bytes; i++)
		frame[i] = take(in);
	if (part && bytes >= XTS_PART_BYTES) {
		struct xts_part m = { .frame_bytes = take(in) * 4u, .offset = take(in) * 4u };

		m.length = bytes - XTS_PART_BYTES;
		frame[XTS_ETH_BYTES] = XTS_LINK_PART;
		xts_part_encode(frame, &m);
	}
	pipe_put(&r->below->in, frame, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input in = { data, bytes };
	struct run r = { .below = memory_open(true), .frames = { .held_max = HELD_MOST } };

	ENSURE(xts_parts_wrap(&r.frames.queue, &r.below->queue) == 0);
	xts_parts_use(r.frames.queue, PACKET, PACKET);
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
			(void)xts_queue_kick(r.frames.queue);
			break;
		case 4:
			come_back(&r);
			break;
		case 5:
		case 6:
			numbered_receive(&r.frames, r.hostile);
			break;
		case 7:
			numbered_recycle(&r.frames, take(&in));
			break;
		case 8:
			r.hostile = true; /* what was on its way is lost */
			xts_parts_use(r.frames.queue, take(&in) % 8 ? PACKET : 0, PACKET);
			break;
		}
	}
	steps_ran(data, bytes);
	while (r.frames.held_count)
		numbered_recycle(&r.frames, 0);
	xts_queue_close(r.frames.queue);
	return 0;
}
