/*
 * libFuzzer target: many channels over one queue, at both of its ends: the relay's and the proxy's.
 *
 * The ends are joined back to back, each with a link that is up. The input is a program: channels come and go at either
 * end, send, receive, hold frames and recycle them in any order; and either end sends carried frames as no multiplexer
 * of ours would, within the trunk's link. Whatever it does: memory is safe, what the queue below lent is given back
 * once, the trunk's link stays up and within its window, no channel holds more than it may; and what a channel sends
 * arrives at the channel of its number, whole and in order, unless somebody has forged frames for that number.
 */
#include "wire/wire.h"

#define LARGEST (XTS_FRAME_BYTES_SINGLE + XTS_CARRIED_BYTES)

#include "link/link.h"
#include "memory_queue.h"
#include "relay/mux.h"
#include "steps.h"

#define NUMBERS 6u /* of channels; the last few are seldom added */
#define HELD_MAX 64u

struct held {
	struct xts_rx_frame frame;
	uint32_t number;
};

struct end {
	struct memory_queue *below;
	struct xts_link link;
	struct xts_mux *mux;
	struct xts_queue *channel[NUMBERS];
	uint32_t sent[NUMBERS], received[NUMBERS];
	struct held held[HELD_MAX];
	unsigned held_count;
	unsigned held_of[NUMBERS];
};

struct run {
	struct end end[2];
	bool forged[NUMBERS]; /* not all that comes on it is what its other end has sent */
};

static uint32_t checksum;

static uint32_t length_of(uint32_t count)
{
	return XTS_SEND_BYTES + count * 211 % (XTS_FRAME_BYTES_SINGLE - XTS_SEND_BYTES);
}

/* --- both ends ---------------------------------------------------------------------------------------------------- */

static void control(struct end *e)
{
	struct xts_tx_slot slot;
	size_t bytes;

	while (xts_link_control_due(&e->link) && !xts_queue_acquire(&e->below->queue, &slot)) {
		bytes = xts_link_control(&e->link, slot.data, 1);
		if (bytes)
			xts_queue_submit(&e->below->queue, &slot, (uint32_t)bytes);
		else
			xts_queue_abandon(&e->below->queue, &slot);
	}
}

static void transfer(struct end *from, struct end *to)
{
	struct memory_frame f;

	while (pipe_get(&from->below->out, &f)) {
		pipe_put(&to->below->in, f.data, f.bytes);
		free(f.data);
	}
}

static void add(struct end *e, uint32_t number, uint8_t window)
{
	struct xts_queue *q;
	int error = xts_mux_add(&q, e->mux, number, (uint16_t)(XTS_FRAME_WINDOW_MIN + window % 8));

	ENSURE(error == (e->channel[number] ? -EEXIST : 0));
	if (!error)
		e->channel[number] = q;
}

/* What is on its way to it is lost: so its order is not that of the other end any more. */
static void drop(struct run *r, struct end *e, uint32_t number)
{
	for (unsigned i = 0; i < e->held_count;)
		if (e->held[i].number == number) {
			xts_queue_recycle(e->channel[number], &e->held[i].frame);
			e->held[i] = e->held[--e->held_count];
		} else {
			i++;
		}
	e->held_of[number] = 0;
	xts_queue_close(e->channel[number]);
	e->channel[number] = NULL;
	r->forged[number] = true;
}

/* One frame from below. */
static void take_one(struct run *r, struct end *e, bool adds)
{
	struct xts_rx_frame frame;
	struct xts_head head;
	enum xts_mux_verdict verdict;
	uint32_t head_bytes;

	if (xts_queue_receive(&e->below->queue, &frame) != 1)
		return;
	head_bytes = (uint32_t)frame.segment[0].iov_len;
	if (xts_link_receive(&e->link, frame.segment[0].iov_base, head_bytes, frame.bytes, 1, &head) != XTS_LINK_DELIVER) {
		xts_queue_recycle(&e->below->queue, &frame);
		return;
	}
	ENSURE(head.type == XTS_RELAY_CARRIED);
	verdict = xts_mux_take(e->mux, &head, &frame);
	if (verdict == XTS_MUX_UNKNOWN && adds && head.id < NUMBERS) {
		add(e, head.id, 7);
		verdict = xts_mux_take(e->mux, &head, &frame);
		ENSURE(verdict == XTS_MUX_TAKEN);
	}
	if (verdict == XTS_MUX_TAKEN)
		return;
	if (head.id < NUMBERS)
		r->forged[head.id] = true; /* a frame that has no place is lost to its channel */
	xts_queue_recycle(&e->below->queue, &frame);
	xts_link_recycled(&e->link);
}

/* --- channels ----------------------------------------------------------------------------------------------------- */

static void channel_sends(struct end *e, uint32_t number, bool abandons)
{
	struct xts_tx_slot slot;
	uint32_t bytes = length_of(e->sent[number]);

	if (!e->channel[number] || xts_queue_acquire(e->channel[number], &slot))
		return;
	ENSURE(slot.capacity == e->channel[number]->largest_message && slot.capacity >= bytes);
	memset(slot.data, 0, bytes);
	if (abandons) {
		xts_queue_abandon(e->channel[number], &slot);
		return;
	}
	slot.data[XTS_ETH_BYTES] = XTS_CMD_SEND;
	xts_put32(slot.data + XTS_HEAD_BYTES, e->sent[number]++);
	xts_queue_submit(e->channel[number], &slot, bytes);
	(void)xts_queue_kick(e->channel[number]);
	ENSURE(xts_mux_kick_due(e->mux));
}

static void channel_receives(struct run *r, struct end *e, uint32_t number)
{
	struct held *h = &e->held[e->held_count];
	uint32_t bytes = 0;

	if (!e->channel[number] || e->held_count == HELD_MAX || xts_queue_receive(e->channel[number], &h->frame) != 1)
		return;
	for (uint32_t i = 0; i < h->frame.segments; i++) {
		for (size_t at = 0; at < h->frame.segment[i].iov_len; at++)
			checksum += ((const uint8_t *)h->frame.segment[i].iov_base)[at];
		bytes += (uint32_t)h->frame.segment[i].iov_len;
	}
	ENSURE(bytes == h->frame.bytes && bytes >= XTS_HEAD_BYTES && bytes <= e->channel[number]->largest_message);
	if (!r->forged[number]) {
		ENSURE(bytes == length_of(e->received[number]));
		ENSURE(xts_get32((const uint8_t *)h->frame.segment[0].iov_base + XTS_HEAD_BYTES) == e->received[number]);
	}
	e->received[number]++;
	h->number = number;
	e->held_count++;
	e->held_of[number]++;
	ENSURE(e->held_of[number] <= (uint32_t)e->channel[number]->frame_window + XTS_CONTROL_RESERVE);
}

static void channel_recycles(struct end *e, unsigned which)
{
	struct held *h;

	if (!e->held_count)
		return;
	h = &e->held[which % e->held_count];
	xts_queue_recycle(e->channel[h->number], &h->frame);
	e->held_of[h->number]--;
	*h = e->held[--e->held_count];
}

/* --- somebody who is no multiplexer of ours ----------------------------------------------------------------------- */

/* A carried frame, whatever is in it, in the place that the trunk's link has for the next one. */
static void forge(struct run *r, struct end *e, struct input *in)
{
	uint8_t frame[700] = { 0 };
	uint8_t how = take(in);
	uint32_t number = take(in) % (NUMBERS + 2),
		 bytes = XTS_CARRIED_BYTES + pick_number(in) % (sizeof frame - XTS_CARRIED_BYTES);
	struct xts_carried m = { .length = how & 1 ? pick_number(in) : bytes - XTS_CARRIED_BYTES };
	struct xts_tx_slot slot;

	for (uint32_t i = XTS_CARRIED_BYTES; i < bytes; i++)
		frame[i] = i < XTS_CARRIED_BYTES + 40 ? take(in) : (uint8_t)i;
	if (!xts_link_credits(&e->link) || xts_queue_acquire(&e->below->queue, &slot))
		return;
	xts_head_encode(frame, XTS_RELAY_CARRIED, 0, 0, number);
	if (how & 2 && bytes >= XTS_CARRIED_BYTES + XTS_HEAD_BYTES)
		xts_head_encode(frame + XTS_CARRIED_BYTES, how & 4 ? XTS_LINK_HELLO : XTS_CMD_SEND, 0, 0, 0);
	xts_carried_encode(frame, &m);
	memcpy(slot.data, frame, bytes);
	xts_link_seal(&e->link, slot.data);
	xts_queue_submit(&e->below->queue, &slot, bytes);
	if (number < NUMBERS)
		r->forged[number] = true;
}

/* --- a run -------------------------------------------------------------------------------------------------------- */

static void open_ends(struct run *r)
{
	struct xts_link_config config = {
		.frame_window = WINDOW,
		.largest_message = LARGEST,
		.features = XTS_FEATURE_RELAY,
		.epoch = 1,
		.ethertype = 0x855B,
	};

	for (unsigned i = 0; i < 2; i++) {
		struct end *e = &r->end[i];

		e->below = memory_open(i == 0);
		config.role = i == 0 ? XTS_LINK_HOST : XTS_LINK_PROXY;
		config.required = i == 0 ? XTS_FEATURE_RELAY : 0;
		memcpy(config.local_mac, e->below->queue.local_mac, 6);
		memcpy(config.peer_mac, e->below->queue.peer_mac, 6);
		ENSURE(xts_link_init(&e->link, &config, 1) == 0);
		ENSURE(xts_mux_open(&e->mux, &e->below->queue, &e->link) == 0);
	}
	control(&r->end[0]);
	transfer(&r->end[0], &r->end[1]);
	take_one(r, &r->end[1], false);
	control(&r->end[1]);
	transfer(&r->end[1], &r->end[0]);
	take_one(r, &r->end[0], false);
}

static void close_end(struct run *r, struct end *e)
{
	while (e->held_count)
		channel_recycles(e, 0);
	xts_mux_close(e->mux);
	for (uint32_t i = 0; i < NUMBERS; i++) {
		struct xts_rx_frame frame;

		if (!e->channel[i])
			continue;
		/* what is left of it has ended with the trunk */
		ENSURE(xts_queue_receive(e->channel[i], &frame) == -EPIPE);
		xts_queue_close(e->channel[i]);
	}
	ENSURE(e->link.recycled == e->link.received); /* no credit was kept */
	xts_queue_close(&e->below->queue);
	(void)r;
}

static void step(struct run *r, struct end *e, struct end *other, struct input *in)
{
	uint8_t op = take(in) & 0x7f, argument = take(in);
	uint32_t number = argument % NUMBERS;

	switch (op % 16) {
	case 0:
		add(e, number, argument);
		break;
	case 1:
		if (e->channel[number])
			drop(r, e, number);
		break;
	case 2:
	case 3:
	case 4:
		channel_sends(e, number, argument >= 250);
		break;
	case 5:
		transfer(e, other);
		break;
	case 6:
	case 7:
	case 8:
		take_one(r, e, argument & 1);
		break;
	case 9:
	case 10:
		channel_receives(r, e, number);
		break;
	case 11:
	case 12:
		channel_recycles(e, argument);
		break;
	case 13:
		control(e);
		break;
	default:
		forge(r, e, in);
	}
	ENSURE(e->link.state == XTS_LINK_UP && other->link.state == XTS_LINK_UP);
	ENSURE(e->below->lent <= WINDOW);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input in = { data, bytes };
	struct run r = { 0 };

	open_ends(&r);
	while (in.bytes) {
		unsigned who = *in.data >> 7;

		step_begins(&in, data);
		step(&r, &r.end[who], &r.end[1 - who], &in);
	}
	steps_ran(data, bytes);
	close_end(&r, &r.end[0]);
	close_end(&r, &r.end[1]);
	return 0;
}
