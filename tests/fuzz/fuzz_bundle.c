/* libFuzzer target: a queue of bundles. looped_queue.h has what its input is. */
#include "looped_queue.h"

static void wrap(struct looped *l)
{
	ENSURE(xts_bundle_wrap(&l->frames.queue, &l->below->queue) == 0);
	xts_bundle_send(l->frames.queue, true, 0);
}

static void disguise(uint8_t *frame, uint32_t bytes, struct input *in)
{
	(void)in;
	frame[XTS_ETH_BYTES] = XTS_LINK_BUNDLE;
	xts_put32(frame + XTS_HEAD_BYTES, bytes - XTS_BUNDLE_BYTES);
}

static void kick(struct looped *l)
{
	ENSURE(xts_queue_kick(l->frames.queue) == 0);
}

static void turn(struct looped *l, bool on)
{
	xts_bundle_send(l->frames.queue, on, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const struct looped_kind bundles = { wrap, disguise, XTS_BUNDLE_BYTES, kick, turn };

	return looped_run(&bundles, data, bytes);
}
