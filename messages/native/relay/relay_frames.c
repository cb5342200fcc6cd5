/* Frames through the relay: from the trunk to processes, and from processes to the trunk, one of each in turn.
 * relay_loop.h has the theory of operation. */
#include "relay/relay_inside.h"

#include <errno.h>
#include <string.h>

#include "relay/mux.h"

#define FRAMES_A_ROUND 64u /* each way */

/* --- from the proxy ----------------------------------------------------------------------------------------------- */

static void trunk_delivers(struct relay *r, const struct xts_head *head, const struct xts_rx_frame *frame)
{
	if (head->type == XTS_REPLY_MOVE)
		relay_moves(r, frame);
	if (head->type == XTS_RELAY_CARRIED && xts_mux_take(r->mux, head, frame) == XTS_MUX_TAKEN)
		return; /* xts_mux_close() or its channel recycles it */
	xts_queue_recycle(r->trunk, frame);
	xts_link_recycled(&r->link);
}

bool relay_trunk_receive(struct relay *r)
{
	struct xts_rx_frame frame;
	struct xts_head head;
	uint32_t taken = 0;
	int got = 0;

	while (taken < FRAMES_A_ROUND && r->link.state != XTS_LINK_DOWN &&
	       (got = xts_queue_receive(r->trunk, &frame)) > 0) {
		taken++;
		switch (xts_link_receive(&r->link, frame.segment[0].iov_base, frame.segment[0].iov_len, frame.bytes,
					 r->now_ns, &head)) {
		case XTS_LINK_DELIVER:
			trunk_delivers(r, &head, &frame);
			continue;
		case XTS_LINK_OPENED:
			xts_packets_begin(&r->packets, &r->link);
			r->link.config.dead_ms = r->config->silent_ms;
			if (r->largest_message && r->link.largest_message != r->largest_message)
				xts_link_fail(&r->link, EPROTO); /* not the one that processes know */
			else if (!r->largest_message)
				relay_report(r, XTS_RELAY_UP, 0, 0, 0);
			r->largest_message = r->link.largest_message;
			break;
		default:
			break;
		}
		xts_queue_recycle(r->trunk, &frame);
	}
	if (got < 0)
		xts_link_fail(&r->link, ENETDOWN);
	return taken;
}

void relay_process_end(struct process *p, int error)
{
	if (p->ending)
		return;
	p->ending = true;
	p->error = error;
}

static void gather(uint8_t *to, const struct xts_rx_frame *frame)
{
	for (uint32_t i = 0; i < frame->segments; i++) {
		memcpy(to, frame->segment[i].iov_base, frame->segment[i].iov_len);
		to += frame->segment[i].iov_len;
	}
}

/* Copies frames that have come for a process into its memory. */
bool relay_to_process(struct process *p)
{
	struct xts_rx_frame frame;
	struct xts_tx_slot slot;
	bool any = false;

	while (xts_queue_receive(p->channel, &frame) > 0) {
		if (p->ending || p->last_frames) {
			xts_queue_recycle(p->channel, &frame);
			continue;
		}
		if (frame.bytes > p->shm->largest_message || xts_queue_acquire(p->shm, &slot)) {
			xts_queue_recycle(p->channel, &frame);
			relay_process_end(
				p, EPROTO); /* the process's link allowed a frame that its memory has no room for */
			continue;
		}
		gather(slot.data, &frame);
		xts_queue_submit(p->shm, &slot, frame.bytes);
		xts_queue_recycle(p->channel, &frame);
		p->kick = any = true;
	}
	return any;
}

/* --- to the proxy ------------------------------------------------------------------------------------------------- */

/* May the process send this? The frame is in private memory by now. */
static bool may_pass(const struct process *p, const uint8_t *frame, uint32_t bytes)
{
	struct xts_hello hello;

	if (bytes < XTS_HEAD_BYTES)
		return false;
	switch (frame[XTS_ETH_BYTES]) {
	case XTS_RELAY_CARRIED:
	case XTS_LINK_BUNDLE:
		return false;
	case XTS_LINK_HELLO:
		return !p->hello_of_before && !xts_hello_decode(&hello, frame, bytes) && hello.epoch == p->epoch;
	default:
		return true;
	}
}

/* Passes on the next frame of a process. 1; 0: none, or it cannot leave now; -EPIPE: there will be no more. */
static int pass_one(struct relay *r, struct process *p)
{
	struct xts_tx_slot slot;
	struct xts_rx_frame frame;
	int got;

	if (xts_queue_acquire(p->channel, &slot)) {
		r->slot_missing |= xts_link_credits(&r->link) > 0; /* otherwise an acknowledgement wakes us */
		return 0;
	}
	got = xts_queue_receive(p->shm, &frame);
	p->hello_of_before &= got > 0;
	if (got > 0 && frame.bytes <= p->channel->largest_message) {
		gather(slot.data, &frame);
		if (may_pass(p, slot.data, frame.bytes)) {
			xts_queue_submit(p->channel, &slot, frame.bytes);
			xts_queue_recycle(p->shm, &frame);
			return 1;
		}
	}
	xts_queue_abandon(p->channel, &slot);
	if (got > 0) {
		xts_queue_recycle(p->shm, &frame);
		p->dropped++;
	}
	return got;
}

static bool turn(struct relay *r, struct process *p)
{
	int got;

	if (p->ending)
		return false;
	got = pass_one(r, p);
	if (got < 0)
		relay_process_end(p, 0);
	else if (p->last_frames && (got ? !--p->last_frames : xts_link_credits(&r->link) && !r->slot_missing))
		relay_process_end(p, 0);
	return got > 0;
}

/* Passes on one frame of each process in turn, until none has any or no more may leave. */
bool relay_from_processes(struct relay *r)
{
	uint32_t taken = 0, idle = 0;

	if (r->move.acked)
		return false;
	for (uint32_t i = r->first; r->count && idle < r->count && taken < FRAMES_A_ROUND && xts_link_credits(&r->link);
	     i++) {
		if (turn(r, r->processes[i % r->count])) {
			taken++;
			idle = 0;
		} else {
			idle++;
		}
		r->first = (i + 1) % r->count;
	}
	return taken;
}

void relay_write_ethernet(const struct relay *r, uint8_t *frame)
{
	memcpy(frame, r->trunk->peer_mac, 6);
	memcpy(frame + 6, r->trunk->local_mac, 6);
	xts_put16(frame + 12, r->link.config.ethertype);
}

/* Sends GOODBYE for a process that has ended. False: there is no room for it now. */
bool relay_say_goodbye(struct relay *r, struct process *p)
{
	struct xts_goodbye goodbye = { .epoch = p->epoch };
	struct xts_tx_slot slot;

	if (xts_queue_acquire(p->channel, &slot)) {
		r->slot_missing = true;
		return false;
	}
	memset(slot.data, 0, XTS_GOODBYE_BYTES);
	relay_write_ethernet(r, slot.data);
	xts_head_encode(slot.data, XTS_LINK_GOODBYE, 0, (uint16_t)p->error, 0);
	xts_goodbye_encode(slot.data, &goodbye);
	xts_queue_submit(p->channel, &slot, XTS_GOODBYE_BYTES);
	return true;
}
