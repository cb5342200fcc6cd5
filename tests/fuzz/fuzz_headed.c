/*
 * libFuzzer target: a proxy whose frames have heads (headed.c), and that goes on for one that has left or died.
 *
 * The input is the state that the process before has left, and a program: a peer sends anything, or frames with a head
 * of the right secret or another one, from some of which a process has taken the head. Whatever it does: a state is
 * taken if it can be one; with an epoch nobody is heard but who knows its secret, and what is sent has it; each byte
 * that is lent out may be read, and what the queue below lent is given back once. A frame that was taken is heard once
 * more, until an epoch begins.
 */
#include "numbered_frames.h"

#include "decorators/headed.h"
#include "steps.h"

#define SECRET 0x1122334455667788u
#define NUMBER 3u
#define FRAME_MOST 600u

struct run {
	struct memory_queue *below;
	struct numbered frames;
	bool live, again; /* by the rules, as the target understands them */
	uint8_t state[XTS_HEADED_STATE_BYTES];
};

static const uint8_t *memory_of(const struct xts_rx_frame *f)
{
	return (const uint8_t *)(uintptr_t)f->cookie;
}

static bool is_headed(const struct xts_rx_frame *f)
{
	return (const uint8_t *)f->segment[0].iov_base == memory_of(f) + XTS_HEADED_ADDS;
}

/* What came last is of the epoch. */
static void check_heard(const struct run *r)
{
	const struct xts_rx_frame *f = &r->frames.held[r->frames.held_count - 1];
	uint64_t secret = is_headed(f) ? xts_get64(memory_of(f) + offsetof(struct xts_wire_headed, secret)) : 0;

	if (is_headed(f))
		ENSURE(!memcmp(f->segment[0].iov_base, memory_of(f), XTS_ETH_BYTES));
	if (!r->live)
		return;
	ENSURE(is_headed(f) == r->state[1]);
	if (xts_get64(r->state + 2))
		ENSURE(secret == xts_get64(r->state + 2));
}

static void receive(struct run *r)
{
	unsigned held = r->frames.held_count;

	numbered_receive(&r->frames, true);
	if (r->frames.held_count > held)
		check_heard(r);
}

/* The process has died with this frame in its hands: it comes as it is, and the head's end as it was for some bytes. */
static void comes_again(struct run *r, struct input *in)
{
	const struct xts_rx_frame *f =
		&r->frames.held[take(in) % HELD_MOST % (r->frames.held_count + !r->frames.held_count)];
	uint32_t kept = take(in) % 3u, bytes;
	unsigned held = r->frames.held_count;
	uint8_t copy[FRAME_MOST];

	if (!held || held == r->frames.held_max || !r->again || r->below->in.count || !is_headed(f))
		return;
	bytes = f->bytes + XTS_HEADED_ADDS;
	memcpy(copy, memory_of(f), bytes);
	if (kept && xts_get64(copy + offsetof(struct xts_wire_headed, secret)))
		copy[XTS_HEADED_BYTES - kept] = kept == 1 ? XTS_HEAD_SECRET : 0;
	pipe_put(&r->below->in, copy, bytes);
	receive(r);
	ENSURE(r->frames.held_count == held + 1);
}

static void peer_sends(struct run *r, struct input *in)
{
	static const uint64_t secrets[] = { SECRET, 0, SECRET ^ 1, SECRET };
	struct xts_headed head = { .secret = secrets[take(in) % 4u] };
	uint32_t bytes = pick_number(in) % FRAME_MOST;
	uint8_t frame[FRAME_MOST] = { 0 };
	uint8_t how = take(in);

	for (uint32_t i = 0; i < bytes; i++)
		frame[i] = take(in);
	if (how & 1 && bytes >= XTS_HEADED_BYTES) {
		frame[XTS_ETH_BYTES] = XTS_LINK_HEADED;
		head.parts = head.secret ? XTS_HEAD_SECRET : 0;
		xts_headed_encode(frame, &head);
		if (how & 2)
			memcpy(frame + XTS_HEADED_ADDS, frame, XTS_ETH_BYTES);
	}
	pipe_put(&r->below->in, frame, bytes);
}

static void sends(struct run *r)
{
	struct memory_frame f;

	numbered_submit(&r->frames, 0, XTS_REPLY_RECV);
	ENSURE(xts_queue_kick(r->frames.queue) == 0);
	while (pipe_get(&r->below->out, &f)) {
		if (r->live)
			ENSURE((f.data[XTS_ETH_BYTES] == XTS_LINK_HEADED) == r->state[1]);
		if (r->live && r->state[1])
			ENSURE(xts_get64(f.data + offsetof(struct xts_wire_headed, secret)) == xts_get64(r->state + 2));
		free(f.data);
	}
}

static void step(struct run *r, struct input *in)
{
	switch (take(in) % 8) {
	case 0:
	case 1:
		peer_sends(r, in);
		break;
	case 2:
	case 3:
		receive(r);
		break;
	case 4:
		numbered_recycle(&r->frames, take(in));
		break;
	case 5:
		sends(r);
		break;
	case 6:
		comes_again(r, in);
		break;
	case 7:
		if (take(in) % 8)
			break;
		if (r->live)
			xts_headed_no_epoch(r->frames.queue);
		else
			xts_headed_epoch(r->frames.queue);
		xts_headed_state(r->frames.queue, r->state);
		r->again &= r->live;
		r->live = r->state[0];
		break;
	}
}

static void goes_on(struct run *r, struct input *in)
{
	bool died = take(in) & 1;
	int error;

	for (uint32_t i = 0; i < sizeof r->state; i++)
		r->state[i] = take(in);
	error = (died ? xts_headed_resume_dead : xts_headed_resume)(r->frames.queue, r->state, sizeof r->state);
	ENSURE(!error == xts_headed_state_ok(r->state));
	r->live = !error && r->state[0];
	r->again = !error && died;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const struct xts_headed_config config = { .number = NUMBER, .secrets_fd = -1 };
	struct input in = { data, bytes };
	struct run r = { .below = memory_open(false), .frames = { .held_max = HELD_MOST } };

	ENSURE(xts_headed_wrap(&r.frames.queue, &r.below->queue, &config) == 0);
	goes_on(&r, &in);
	while (in.bytes) {
		step_begins(&in, data);
		step(&r, &in);
	}
	steps_ran(data, bytes);
	while (r.frames.held_count)
		numbered_recycle(&r.frames, 0);
	xts_queue_close(r.frames.queue);
	return 0;
}
