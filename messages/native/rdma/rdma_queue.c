/*
 * Frames over a queue pair.
 *
 * Theory of operation
 *
 * A frame is one SEND, and takes one posted buffer of the peer. Buffers that were given back are posted before anything
 * is sent, so a frame credit (link.h) never arrives before its buffer is there, and a peer that obeys its credits never
 * meets a queue pair without one. A frame that is longer than a buffer is the hardware's to refuse: it ends the queue.
 * Nothing here is registered for remote access, so a buffer is written to before we hear of its frame, and by nobody
 * after that.
 *
 * Slots come back when the peer's hardware has the frame, not when its program has read it. One send of
 * XTS_RDMA_SIGNAL_EVERY, and each of a retained slot, says that it is done; that is true of all before it. A kick is
 * one list of sends: one system call at most, or none. Only the last asks the peer to wake up, which is how one event
 * serves many frames.
 *
 * Sleeping: the wait descriptor is an epoll set of the completion channel and of the descriptor of the connection's
 * life. An event is asked for once, and not again before it has come; between asking and sleeping we look once more.
 */
#include "rdma_inside.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#define EVENTS_ACK_EVERY 64u /* acknowledging takes a lock */

static struct rdma_end *end_of(struct xts_queue *q)
{
	return (struct rdma_end *)q;
}

/* The oldest slot that is on its way has been sent. */
static void rdma_came_back(struct rdma_end *e)
{
	uint16_t slot = e->way[e->way_first++ % RDMA_WAY];

	if (e->state[slot] == SLOT_RETAINED_SENT) {
		e->state[slot] = SLOT_RETAINED;
		return;
	}
	e->state[slot] = SLOT_FREE;
	e->free[e->free_count++] = slot;
}

/* Takes back the slots that have been sent. */
static void rdma_reclaim(struct rdma_end *e)
{
	struct ibv_wc done[RDMA_COMPLETIONS];
	int count;

	while (e->way_first != e->way_end && (count = ibv_poll_cq(e->sent, RDMA_COMPLETIONS, done)) != 0) {
		if (count < 0)
			e->broken = true;
		for (int i = 0; i < count; i++) {
			if (done[i].status != IBV_WC_SUCCESS)
				e->broken = true;
			else
				while (e->way_first != e->way_end && e->way_first != (uint32_t)done[i].wr_id)
					rdma_came_back(e);
		}
		if (e->broken)
			return;
	}
}

static int rdma_acquire(struct xts_queue *base, struct xts_tx_slot *slot)
{
	struct rdma_end *e = end_of(base);

	rdma_reclaim(e);
	if (!e->free_count) {
		base->stats.tx_no_slot++;
		return -EAGAIN;
	}
	slot->index = e->free[--e->free_count];
	slot->data = e->memory + (size_t)(e->buffers + slot->index) * e->slot_bytes;
	slot->capacity = base->largest_message;
	e->state[slot->index] = SLOT_TAKEN;
	return 0;
}

static void rdma_submit(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct rdma_end *e = end_of(base);
	uint32_t n = e->submitted++;
	bool retained = e->state[slot->index] == SLOT_RETAINED;

	e->send_part[n] = (struct ibv_sge){
		.addr = (uintptr_t)slot->data,
		.length = bytes,
		.lkey = e->mr->lkey,
	};
	e->send[n] = (struct ibv_send_wr){ .sg_list = &e->send_part[n], .num_sge = 1, .opcode = IBV_WR_SEND };
	if (bytes <= e->inline_max)
		e->send[n].send_flags |= IBV_SEND_INLINE;
	if (++e->unsignalled == XTS_RDMA_SIGNAL_EVERY || retained) {
		e->send[n].send_flags |= IBV_SEND_SIGNALED;
		e->unsignalled = 0;
	}
	e->way[e->way_end++ % RDMA_WAY] = (uint16_t)slot->index;
	e->send[n].wr_id = e->way_end;
	e->state[slot->index] = retained ? SLOT_RETAINED_SENT : SLOT_SENT;
	base->stats.tx_frames++;
	base->stats.tx_bytes += bytes;
}

static void rdma_abandon(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	struct rdma_end *e = end_of(base);

	e->state[slot->index] = SLOT_FREE;
	e->free[e->free_count++] = (uint16_t)slot->index;
}

static void rdma_retain(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	end_of(base)->state[slot->index] = SLOT_RETAINED;
}

static int rdma_submit_retained(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct rdma_end *e = end_of(base);

	rdma_reclaim(e);
	if (e->state[slot->index] != SLOT_RETAINED)
		return -EAGAIN;
	rdma_submit(base, slot, bytes);
	return 0;
}

static void rdma_release(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	struct rdma_end *e = end_of(base);

	if (e->state[slot->index] == SLOT_RETAINED)
		rdma_abandon(base, slot);
	else
		e->state[slot->index] = SLOT_SENT;
}

int rdma_post_buffers(struct rdma_end *e)
{
	struct ibv_recv_wr list[RDMA_BUFFERS_MAX], *refused;
	struct ibv_sge part[RDMA_BUFFERS_MAX];
	uint32_t count = e->returned_count;

	if (!count)
		return 0;
	for (uint32_t i = 0; i < count; i++) {
		part[i] = (struct ibv_sge){
			.addr = (uintptr_t)(e->memory + (size_t)e->returned[i] * e->slot_bytes),
			.length = e->base.largest_message,
			.lkey = e->mr->lkey,
		};
		list[i] = (struct ibv_recv_wr){
			.wr_id = e->returned[i],
			.sg_list = &part[i],
			.num_sge = 1,
			.next = i + 1 < count ? &list[i + 1] : NULL,
		};
	}
	e->returned_count = 0;
	return ibv_post_recv(e->qp, list, &refused) ? -EIO : 0;
}

/* As rdma_post_buffers(), unless nothing can come any more. */
static void rdma_give_buffers(struct rdma_end *e)
{
	if (!e->broken && rdma_post_buffers(e))
		e->broken = true;
}

static int rdma_kick(struct xts_queue *base)
{
	struct rdma_end *e = end_of(base);
	struct ibv_send_wr *refused;
	uint32_t count = e->submitted;

	/* This comes first, so that a buffer is there before the frame_ack for it arrives. */
	rdma_give_buffers(e);
	if (e->broken)
		return -ENXIO;
	if (!count)
		return 0;
	for (uint32_t i = 0; i + 1 < count; i++)
		e->send[i].next = &e->send[i + 1];
	e->send[count - 1].send_flags |= IBV_SEND_SOLICITED;
	e->submitted = 0;
	base->stats.kicks++;
	if (!ibv_post_send(e->qp, e->send, &refused))
		return 0;
	e->broken = true;
	return -ENXIO;
}

static void rdma_give_back(struct rdma_end *e, uint64_t buffer)
{
	e->returned[e->returned_count++] = (uint16_t)buffer;
}

/* There is nothing to receive: posts buffers, and checks whether anything can still come. */
static int rdma_nothing(struct rdma_end *e)
{
	rdma_give_buffers(e);
	return e->broken || e->hung_up ? -EPIPE : 0;
}

static bool rdma_any_done(struct rdma_end *e)
{
	if (e->done_next < e->done_count)
		return true;
	e->done_next = 0;
	e->done_count = ibv_poll_cq(e->received, RDMA_COMPLETIONS, e->done);
	if (e->done_count >= 0)
		return e->done_count > 0;
	e->done_count = 0;
	e->broken = true;
	return false;
}

static int rdma_receive(struct xts_queue *base, struct xts_rx_frame *frame)
{
	struct rdma_end *e = end_of(base);

	while (rdma_any_done(e)) {
		const struct ibv_wc *done = &e->done[e->done_next++];

		if (done->status != IBV_WC_SUCCESS) {
			/* The first may say why, which is the peer's doing; the others that their buffers come back. */
			if (done->status != IBV_WC_WR_FLUSH_ERR)
				base->stats.rx_invalid++;
			e->broken = true;
			continue;
		}
		if (done->opcode != IBV_WC_RECV || !done->byte_len || done->byte_len > base->largest_message) {
			base->stats.rx_invalid++;
			rdma_give_back(e, done->wr_id);
			continue;
		}
		frame->bytes = done->byte_len;
		frame->segments = 1;
		frame->cookie = done->wr_id;
		frame->segment[0].iov_base = e->memory + (size_t)done->wr_id * e->slot_bytes;
		frame->segment[0].iov_len = done->byte_len;
		base->stats.rx_frames++;
		base->stats.rx_bytes += done->byte_len;
		return 1;
	}
	return rdma_nothing(e);
}

static void rdma_recycle(struct xts_queue *base, const struct xts_rx_frame *frame)
{
	rdma_give_back(end_of(base), frame->cookie);
}

static int rdma_arm(struct xts_queue *base)
{
	struct rdma_end *e = end_of(base);

	rdma_give_buffers(e);
	/* A queue pair that has failed makes an event, too, solicited or not. Of iWARP's devices one (siw) did not wake
	 * us when it was asked for solicited events alone. */
	if (!e->asked && !e->broken) {
		if (ibv_req_notify_cq(e->received, e->device->device->transport_type != IBV_TRANSPORT_IWARP))
			e->broken = true;
		else
			e->asked = true;
	}
	if (e->broken || e->hung_up || rdma_any_done(e))
		return 1;
	base->stats.sleeps++;
	return 0;
}

static void rdma_take_event(struct rdma_end *e)
{
	struct ibv_cq *which;
	void *context;

	if (ibv_get_cq_event(e->events, &which, &context))
		return;
	e->asked = false;
	e->base.stats.wakeups++;
	if (++e->events_taken == EVENTS_ACK_EVERY) {
		ibv_ack_cq_events(e->received, e->events_taken);
		e->events_taken = 0;
	}
}

static void rdma_disarm(struct xts_queue *base)
{
	struct rdma_end *e = end_of(base);
	struct epoll_event ready[2];
	int count = epoll_wait(base->wait_fd, ready, 2, 0);

	for (int i = 0; i < count; i++) {
		if (ready[i].data.u32 == XTS_RDMA_EVENTS)
			rdma_take_event(e);
		else
			e->hung_up = true;
	}
}

static void rdma_close(struct xts_queue *base)
{
	rdma_end_leave(end_of(base));
}

const struct xts_queue_ops rdma_ops = {
	.kind = "rdma",
	.acquire = rdma_acquire,
	.submit = rdma_submit,
	.abandon = rdma_abandon,
	.kick = rdma_kick,
	.receive = rdma_receive,
	.recycle = rdma_recycle,
	.arm = rdma_arm,
	.disarm = rdma_disarm,
	.close = rdma_close,
	.retain = rdma_retain,
	.submit_retained = rdma_submit_retained,
	.release = rdma_release,
};
