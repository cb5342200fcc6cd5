/*
 * A queue in memory for fuzz targets: what is under test holds one end, the target plays the other. Frames
 * lie in memory of exactly their length, so that AddressSanitizer sees a step beyond; each is recycled
 * once, each slot given back.
 */
#ifndef XTS_MEMORY_QUEUE_H
#define XTS_MEMORY_QUEUE_H

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ensure.h"
#include "input.h"
#include "queues/queue.h"

#define WINDOW 16u
#ifndef LARGEST /* message; a target may need another */
#define LARGEST XTS_FRAME_BYTES_SINGLE
#endif
#define WAITING_MAX 256u
#define SLOTS (WINDOW + XTS_CONTROL_RESERVE)
#define FIRST_SEGMENT 2048u

struct memory_frame {
	uint32_t bytes;
	uint8_t *data;
};

struct memory_pipe {
	struct memory_frame frame[WAITING_MAX];
	unsigned first, count;
};

struct memory_queue {
	struct xts_queue queue;
	bool at_host;               /* which side is under test */
	struct memory_pipe in, out; /* to what is under test; from it */
	unsigned lent;              /* frames it holds: */
	uint8_t *held[WAITING_MAX];
	void (*kicked)(struct memory_queue *m);
	bool slot_used[SLOTS];
	uint8_t *slot[SLOTS];
};

/* A full pipe loses frames. */
static void pipe_put(struct memory_pipe *pipe, const uint8_t *data, uint32_t bytes)
{
	struct memory_frame *f;

	if (pipe->count == WAITING_MAX || !bytes)
		return;
	f = &pipe->frame[(pipe->first + pipe->count++) % WAITING_MAX];
	f->bytes = bytes;
	f->data = malloc(bytes);
	ENSURE(f->data);
	memcpy(f->data, data, bytes);
}

/* The next frame, whose data the caller frees; false for none. */
static bool pipe_get(struct memory_pipe *pipe, struct memory_frame *out)
{
	if (!pipe->count)
		return false;
	*out = pipe->frame[pipe->first];
	pipe->first = (pipe->first + 1) % WAITING_MAX;
	pipe->count--;
	return true;
}

static int memory_acquire(struct xts_queue *q, struct xts_tx_slot *slot)
{
	struct memory_queue *m = (struct memory_queue *)q;

	for (uint32_t i = 0; i < SLOTS; i++) {
		if (m->slot_used[i])
			continue;
		m->slot_used[i] = true;
		slot->data = m->slot[i];
		slot->capacity = LARGEST;
		slot->index = i;
		return 0;
	}
	return -EAGAIN;
}

static void memory_abandon(struct xts_queue *q, const struct xts_tx_slot *slot)
{
	struct memory_queue *m = (struct memory_queue *)q;

	ENSURE(m->slot_used[slot->index]);
	m->slot_used[slot->index] = false;
}

static void memory_submit(struct xts_queue *q, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct memory_queue *m = (struct memory_queue *)q;
	uint8_t type = slot->data[XTS_ETH_BYTES];

	ENSURE(bytes >= XTS_HEAD_BYTES && bytes <= LARGEST && bytes >= xts_type_bytes(type));
	ENSURE(m->at_host ? xts_type_to_proxy(type) : xts_type_to_host(type));
	pipe_put(&m->out, slot->data, bytes);
	memory_abandon(q, slot);
}

static int memory_kick(struct xts_queue *q)
{
	struct memory_queue *m = (struct memory_queue *)q;

	if (m->kicked)
		m->kicked(m);
	return 0;
}

static int memory_receive(struct xts_queue *q, struct xts_rx_frame *frame)
{
	struct memory_queue *m = (struct memory_queue *)q;
	struct memory_frame f;
	uint32_t first;

	if (!pipe_get(&m->in, &f))
		return 0;
	ENSURE(m->lent < WAITING_MAX);
	m->held[m->lent++] = f.data;
	first = f.bytes < FIRST_SEGMENT ? f.bytes : FIRST_SEGMENT;
	frame->bytes = f.bytes;
	frame->cookie = (uint64_t)(uintptr_t)f.data;
	frame->segments = first < f.bytes ? 2 : 1;
	frame->segment[0] = (struct iovec){ f.data, first };
	frame->segment[1] = (struct iovec){ f.data + first, f.bytes - first };
	return 1;
}

static void memory_recycle(struct xts_queue *q, const struct xts_rx_frame *frame)
{
	struct memory_queue *m = (struct memory_queue *)q;
	unsigned i = 0;

	while (i < m->lent && m->held[i] != (uint8_t *)(uintptr_t)frame->cookie)
		i++;
	ENSURE(i < m->lent); /* nothing is recycled that is not held */
	free(m->held[i]);
	m->held[i] = m->held[--m->lent];
}

static int memory_arm(struct xts_queue *q)
{
	return ((struct memory_queue *)q)->in.count != 0;
}

static void memory_disarm(struct xts_queue *q)
{
	(void)q;
}

static void memory_close(struct xts_queue *q)
{
	struct memory_queue *m = (struct memory_queue *)q;
	struct memory_frame f;

	while (pipe_get(&m->in, &f) || pipe_get(&m->out, &f))
		free(f.data);
	while (m->lent)
		free(m->held[--m->lent]);
	for (unsigned i = 0; i < SLOTS; i++) {
		ENSURE(!m->slot_used[i]);
		free(m->slot[i]);
	}
	close(q->wait_fd);
	free(m);
}

/* It could move to another process, so that MOVE is negotiated; here there is none. */
static int memory_leave(struct xts_queue *q, int *fds, uint8_t *state)
{
	(void)q;
	(void)fds;
	(void)state;
	return -EOPNOTSUPP;
}

static const struct xts_queue_ops memory_ops = {
	.kind = "memory",
	.acquire = memory_acquire,
	.submit = memory_submit,
	.abandon = memory_abandon,
	.kick = memory_kick,
	.receive = memory_receive,
	.recycle = memory_recycle,
	.arm = memory_arm,
	.disarm = memory_disarm,
	.close = memory_close,
	.leave = memory_leave,
};

static const uint8_t host_mac[6] = { 2, 0, 0, 0, 0, 1 }, proxy_mac[6] = { 2, 0, 0, 0, 0, 2 };

static struct memory_queue *memory_open(bool at_host)
{
	struct memory_queue *m = calloc(1, sizeof *m);

	ENSURE(m);
	m->at_host = at_host;
	m->queue.ops = &memory_ops;
	m->queue.largest_message = LARGEST;
	m->queue.frame_window = WINDOW;
	m->queue.traits = XTS_QUEUE_DEATH_SHOWS;
	m->queue.wait_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	memcpy(m->queue.local_mac, at_host ? host_mac : proxy_mac, 6);
	memcpy(m->queue.peer_mac, at_host ? proxy_mac : host_mac, 6);
	for (unsigned i = 0; i < SLOTS; i++) {
		m->slot[i] = malloc(LARGEST);
		ENSURE(m->slot[i]);
	}
	return m;
}

#endif
