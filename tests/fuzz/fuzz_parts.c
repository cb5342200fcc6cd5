/* libFuzzer target: a queue whose frames come in parts. looped_queue.h has what its input is. */
#include "decorators/parts.h"
#include "looped_queue.h"

/* Of eight packets; a numbered frame has up to eight. */
#define PACKET (XTS_PART_BYTES + 100u)

static void wrap(struct looped *l)
{
	ENSURE(xts_parts_wrap(&l->frames.queue, &l->below->queue) == 0);
	xts_parts_use(l->frames.queue, PACKET, PACKET);
}

static void disguise(uint8_t *frame, uint32_t bytes, struct input *in)
{
	struct xts_part m = { .frame_bytes = take(in) * 4u, .offset = take(in) * 4u };

	m.length = bytes - XTS_PART_BYTES;
	frame[XTS_ETH_BYTES] = XTS_LINK_PART;
	xts_part_encode(frame, &m);
}

/* Frames may wait for slots. */
static void kick(struct looped *l)
{
	(void)xts_queue_kick(l->frames.queue);
}

static void turn(struct looped *l, bool on)
{
	l->hostile = true; /* what was on its way is lost */
	xts_parts_use(l->frames.queue, on ? PACKET : 0, PACKET);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const struct looped_kind parts = { wrap, disguise, XTS_PART_BYTES, kick, turn };

	return looped_run(&parts, data, bytes);
}
