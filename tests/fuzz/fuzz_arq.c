/*
 * libFuzzer target: a host and a proxy that repeat lost frames (arq.c), with the input between them.
 *
 * The input is a program: frames are submitted, time goes on, and each frame on its way arrives, is lost, comes twice
 * or waits behind others. As long as none is changed, what is received is what was submitted, in that order and whole.
 * Then some are changed, with a right checksum: fields of the head, or everything. Whatever they say, each byte that is
 * lent out may be read, slots and frames go back once, time does not stand still, and what a frame changes is in its
 * end of the channel.
 */
#include "numbered_frames.h"

#include <sys/random.h>

#include "decorators/arq_queue.h"
#include "common/crc32c.h"
#include "steps.h"

#define EPOCH 0x1122334455667788u
#define HELD_MAX 24u
#define CHECKSUM_AT offsetof(struct xts_wire_arq, checksum)

struct end {
	struct memory_queue *below;
	struct xts_queue_ops ops;
	struct numbered frames;
};

struct run {
	struct end end[2];
	uint64_t now_ns;
	bool hostile;
};

/* First numbers of sessions: what is found is found again. */
ssize_t getrandom(void *out, size_t bytes, unsigned flags)
{
	(void)flags;
	memset(out, 0xfe, bytes);
	return (ssize_t)bytes;
}

/* --- a queue in memory whose slots can be retained ---------------------------------------------------------------- */

static void retain(struct xts_queue *q, const struct xts_tx_slot *slot)
{
	ENSURE(((struct memory_queue *)q)->slot_used[slot->index]);
}

static int submit_retained(struct xts_queue *q, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct memory_queue *m = (struct memory_queue *)q;

	ENSURE(m->slot_used[slot->index] && slot->data == m->slot[slot->index] && bytes <= LARGEST);
	pipe_put(&m->out, slot->data, bytes);
	return 0;
}

static void open_end(struct end *e, bool host)
{
	struct xts_arq_config config = { .role = host ? XTS_ARQ_HOST : XTS_ARQ_PROXY, .epoch = host ? EPOCH : 0 };

	e->below = memory_open(host);
	e->frames.held_max = HELD_MAX;
	e->ops = *e->below->queue.ops;
	e->ops.retain = retain;
	e->ops.submit_retained = submit_retained;
	e->ops.release = e->ops.abandon;
	e->below->queue.ops = &e->ops;
	ENSURE(xts_arq_wrap(&e->frames.queue, &e->below->queue, &config) == -EOPNOTSUPP);
	e->below->queue.traits |= XTS_QUEUE_RETAINS;
	ENSURE(xts_arq_wrap(&e->frames.queue, &e->below->queue, &config) == 0);
}

/* --- what both ends do -------------------------------------------------------------------------------------------- */

/* No more than the link's credits allow, and a proxy nothing before it has heard from its host. */
static void submit(struct run *r, unsigned which)
{
	struct numbered *n = &r->end[which].frames, *peer = &r->end[!which].frames;

	if (!which || n->received)
		numbered_submit(n, n->submitted - peer->received + peer->held_count,
				which ? XTS_REPLY_RECV : XTS_CMD_SEND);
}

static void turn(struct run *r, unsigned which)
{
	struct xts_queue *queue = r->end[which].frames.queue;

	xts_queue_tick(queue, r->now_ns);
	ENSURE(xts_queue_kick(queue) == 0);
	ENSURE(queue->stats.violations == 0 || r->hostile);
	ENSURE(queue->stats.window_frames <= 128);
	for (unsigned i = 0; xts_queue_deadline_ns(queue) <= r->now_ns; i++) {
		ENSURE(i < 16); /* else its owner would never sleep */
		xts_queue_tick(queue, r->now_ns);
		ENSURE(xts_queue_kick(queue) == 0);
	}
}

/* A session of the process before, which may be broken into. */
static void resume(const uint8_t *data, size_t bytes)
{
	struct end end = { 0 };

	open_end(&end, false);
	if (!xts_arq_resume(end.frames.queue, data, (uint32_t)bytes))
		xts_queue_tick(end.frames.queue, 1000000);
	ENSURE(xts_queue_kick(end.frames.queue) == 0);
	xts_queue_close(end.frames.queue);
}

/* A place that the process before has had: a slot, and a byte in it. */
static void *dead_slot(struct xts_queue *q, const void *dead, uint64_t place, uint32_t bytes)
{
	(void)dead;
	if (place / LARGEST >= SLOTS || bytes > LARGEST - place % LARGEST)
		return NULL;
	return ((struct memory_queue *)q)->slot[place / LARGEST] + place % LARGEST;
}

/* What that process has left, if it has died: some frames, and anything. */
static void leave_behind(struct arq_queue *dead, struct input *in)
{
	dead->tx.first = dead->tx.oldest = take(in);
	dead->tx.end = dead->tx.oldest + take(in) % 40u;
	for (uint32_t n = dead->tx.oldest; n != dead->tx.end; n++) {
		struct arq_frame *f = arq_sender_frame(&dead->tx, n);

		f->slot.data = (uint8_t *)(uintptr_t)(take(in) * LARGEST);
		f->bytes = XTS_ARQ_BYTES + take_u16(in) % 2048u;
	}
	for (uint32_t i = take(in) % 16u; i; i--) {
		size_t at = (take_u16(in) << 8 | take(in)) % sizeof *dead;

		((uint8_t *)dead)[at] = take(in);
	}
	dead->epoch = EPOCH;
}

/* It had taken these, and their heads off. */
static void taken_frames_come(struct end *e, struct input *in)
{
	const struct xts_arq head = { .epoch = EPOCH, .sequence = take(in), .transmission = 1 };
	uint8_t frame[XTS_ARQ_BYTES + XTS_HEAD_BYTES] = { 0 };

	for (uint32_t i = 0; i < XTS_ETH_BYTES; i++)
		frame[i] = (uint8_t)i;
	xts_head_encode(frame, XTS_LINK_ARQ, 0, 0, 0);
	xts_arq_encode(frame, &head);
	memcpy(frame + XTS_ARQ_ADDS, frame, XTS_ETH_BYTES - take(in) % 4u / 3u);
	pipe_put(&e->below->in, frame, sizeof frame);
}

static void resume_dead(const uint8_t *data, size_t bytes)
{
	struct arq_queue *dead = calloc(1, sizeof *dead);
	struct input in = { data, bytes };
	struct end end = { 0 };
	uint8_t *session;
	int length;

	ENSURE(dead);
	open_end(&end, false);
	end.ops.dead_slot = dead_slot;
	leave_behind(dead, &in);
	*(uint8_t *)&dead->open = 1;
	length = xts_arq_dead_session(&end.below->queue, NULL, dead, sizeof *dead, EPOCH, &session);
	ENSURE(length >= 0 && !dead->open);
	if (length && !xts_arq_resume_dead(end.frames.queue, session, (uint32_t)length)) {
		while (in.bytes && end.below->in.count < 64)
			taken_frames_come(&end, &in);
		for (uint32_t i = 0; i < 128; i++) {
			numbered_receive(&end.frames, true);
			numbered_recycle(&end.frames, 0);
		}
		ENSURE(!((struct arq_queue *)end.frames.queue)->again);
		xts_queue_tick(end.frames.queue, 1000000);
	}
	ENSURE(xts_queue_kick(end.frames.queue) == 0);
	xts_queue_session_free(session);
	xts_queue_close(end.frames.queue);
	free(dead);
}

/* --- the wire ----------------------------------------------------------------------------------------------------- */

/* Changes a frame, and makes its checksum right. */
static void change(struct run *r, struct memory_frame *f, struct input *in)
{
	uint32_t at = XTS_HEAD_BYTES + take(in) % (XTS_ARQ_BYTES - XTS_HEAD_BYTES);

	if (f->bytes < XTS_ARQ_BYTES || f->data[XTS_ETH_BYTES] != XTS_LINK_ARQ)
		return;
	r->hostile = true;
	switch (take(in) % 4) {
	case 0:
		f->data[at] ^= (uint8_t)(1u << take(in) % 8);
		break;
	case 1:
		f->data[at] = take(in);
		break;
	case 2:
		xts_put32(f->data + offsetof(struct xts_wire_arq, sequence),
			  xts_get32(f->data + offsetof(struct xts_wire_arq, sequence)) + pick_number(in));
		break;
	case 3:
		xts_put32(f->data + offsetof(struct xts_wire_arq, arrived),
			  xts_get32(f->data + offsetof(struct xts_wire_arq, arrived)) + pick_number(in));
		break;
	}
	xts_put32(f->data + CHECKSUM_AT, 0);
	xts_put32(f->data + CHECKSUM_AT, crc32c(0, f->data + XTS_ETH_BYTES, f->bytes - XTS_ETH_BYTES));
}

static void wire(struct run *r, unsigned from, struct input *in)
{
	struct memory_pipe *out = &r->end[from].below->out, *to = &r->end[!from].below->in;
	uint8_t what = take(in);
	struct memory_frame f;

	for (unsigned left = 1 + what / 16; left && pipe_get(out, &f); left--) {
		switch (what % 8) {
		case 0: /* lost */
			break;
		case 1:
			pipe_put(to, f.data, f.bytes);
			pipe_put(to, f.data, f.bytes);
			break;
		case 2: /* behind the others */
			pipe_put(out, f.data, f.bytes);
			break;
		case 3: /* damaged */
			f.data[XTS_ETH_BYTES + 1 + take(in) % (f.bytes - XTS_ETH_BYTES - 1)] ^= 1;
			pipe_put(to, f.data, f.bytes);
			break;
		case 4:
			change(r, &f, in);
			/* fall through */
		default:
			pipe_put(to, f.data, f.bytes);
			break;
		}
		free(f.data);
	}
}

static void peer_sends(struct run *r, unsigned which, struct input *in)
{
	uint8_t frame[200] = { 0 };
	uint32_t bytes = XTS_HEAD_BYTES + take(in) % (sizeof frame - XTS_HEAD_BYTES);

	r->hostile = true;
	for (uint32_t i = XTS_ETH_BYTES; i < bytes; i++)
		frame[i] = take(in);
	pipe_put(&r->end[which].below->in, frame, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input in = { data, bytes };
	struct run r = { .now_ns = 1000000 };

	resume(data, bytes);
	resume_dead(data, bytes);
	open_end(&r.end[0], true);
	open_end(&r.end[1], false);
	turn(&r, 0);
	turn(&r, 1);
	while (in.bytes) {
		uint8_t step, which;

		step_begins(&in, data);
		step = take(&in);
		which = step >> 7;
		switch (step % 8) {
		case 0:
		case 1:
			submit(&r, which);
			break;
		case 2:
			turn(&r, which);
			break;
		case 3:
			wire(&r, which, &in);
			break;
		case 4:
		case 5:
			numbered_receive(&r.end[which].frames, r.hostile);
			break;
		case 6:
			numbered_recycle(&r.end[which].frames, take(&in));
			break;
		case 7:
			if (step & 8)
				r.now_ns += (uint64_t)pick_number(&in) * 10000;
			else if (step & 16)
				peer_sends(&r, which, &in);
			else
				r.now_ns += 50000;
			break;
		}
	}
	steps_ran(data, bytes);
	for (unsigned i = 0; i < 2; i++) {
		while (r.end[i].frames.held_count)
			numbered_recycle(&r.end[i].frames, 0);
		xts_queue_close(r.end[i].frames.queue);
	}
	return 0;
}
