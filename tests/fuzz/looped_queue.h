/*
 * A program for fuzz targets of decorators that change how frames travel: a queue whose peer is the input, or itself.
 *
 * Frames from a hostile peer, frames of our own that come back to us as they were sent, frames held and recycled in any
 * order. Whatever it does: each byte that is lent out may be read, what the queue below lent is given back once, and as
 * long as the peer is none but ourselves, what is submitted comes in that order and whole.
 */
#ifndef XTS_LOOPED_QUEUE_H
#define XTS_LOOPED_QUEUE_H

#include "numbered_frames.h"
#include "steps.h"

struct looped {
	struct memory_queue *below;
	struct numbered frames;
	bool hostile;
};

/* What the targets do differently. */
struct looped_kind {
	void (*wrap)(struct looped *l);
	/* makes a frame of random bytes one that the decorator takes apart */
	void (*disguise)(uint8_t *frame, uint32_t bytes, struct input *in);
	uint32_t disguise_bytes; /* the least that it takes */
	void (*kick)(struct looped *l);
	void (*turn)(struct looped *l, bool on); /* the peer begins, or ceases, to accept its frames */
};

static void looped_submit(struct looped *l)
{
	struct numbered *n = &l->frames;

	numbered_submit(n, n->submitted - n->received + n->held_count, XTS_CMD_SEND);
}

static void looped_come_back(struct looped *l)
{
	struct memory_frame f;

	while (pipe_get(&l->below->out, &f)) {
		pipe_put(&l->below->in, f.data, f.bytes);
		free(f.data);
	}
}

static void looped_peer_sends(struct looped *l, const struct looped_kind *kind, struct input *in)
{
	uint8_t frame[600] = { 0 };
	uint32_t bytes = pick_number(in) % sizeof frame;
	bool disguised = take(in) & 1;

	l->hostile = true;
	for (uint32_t i = XTS_ETH_BYTES; i < bytes; i++)
		frame[i] = take(in);
	if (disguised && bytes >= kind->disguise_bytes)
		kind->disguise(frame, bytes, in);
	pipe_put(&l->below->in, frame, bytes);
}

static void looped_step(struct looped *l, const struct looped_kind *kind, struct input *in)
{
	switch (take(in) % 9) {
	case 0:
		looped_peer_sends(l, kind, in);
		break;
	case 1:
	case 2:
		looped_submit(l);
		break;
	case 3:
		kind->kick(l);
		break;
	case 4:
		looped_come_back(l);
		break;
	case 5:
	case 6:
		numbered_receive(&l->frames, l->hostile);
		break;
	case 7:
		numbered_recycle(&l->frames, take(in));
		break;
	case 8:
		kind->turn(l, take(in) % 8);
		break;
	}
}

static int looped_run(const struct looped_kind *kind, const uint8_t *data, size_t bytes)
{
	struct input in = { data, bytes };
	struct looped l = { .below = memory_open(true), .frames = { .held_max = HELD_MOST } };

	kind->wrap(&l);
	while (in.bytes) {
		step_begins(&in, data);
		looped_step(&l, kind, &in);
	}
	steps_ran(data, bytes);
	while (l.frames.held_count)
		numbered_recycle(&l.frames, 0);
	xts_queue_close(l.frames.queue);
	return 0;
}

#endif
