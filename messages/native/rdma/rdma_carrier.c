/*
 * An end whose frames another queue has: shared memory, of which a worker of the proxy has the other end. The process
 * that has the queue pair does nothing but this, so workers may end, and others go on with what they had.
 *
 * Theory of operation
 *
 * Nothing is copied. The slots in which the queue sends to the worker are posted as buffers of the queue pair, so the
 * device writes a frame to where the worker reads it. A frame of the worker is sent from where it lies, and its slot
 * goes back when the device has sent it. This process reads no byte of a frame.
 *
 * Credits are the worker's and its peer's (link.h). A worker gives a slot back before it sends the credit for it, and
 * slots that have come back are posted before frames that came after them are sent: so a credit never arrives before
 * its buffer is there, as in rdma_queue.c. The last of each list of sends says when it is done, so that no slot waits
 * for a later send.
 *
 * It ends when the connection does, when the worker's end of the queue is closed, or when somebody has a word for the
 * process. What the worker had sent before is sent still, for a bounded time.
 */
#include "rdma_inside.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define LAST_NS 1000000000u /* in which what was sent leaves, at the end */

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* All slots that are free are posted. 0 or -EIO. */
int rdma_carrier_post(struct rdma_end *e)
{
	struct ibv_recv_wr list[RDMA_BUFFERS_MAX], *refused;
	struct ibv_sge part[RDMA_BUFFERS_MAX];
	struct xts_tx_slot slot;
	uint32_t count = 0;

	while (count < RDMA_BUFFERS_MAX && !xts_queue_acquire(e->carried, &slot)) {
		part[count] = (struct ibv_sge){ .addr = (uintptr_t)slot.data,
						.length = slot.capacity,
						.lkey = e->carried_mr->lkey };
		list[count] = (struct ibv_recv_wr){ .wr_id = slot.index, .sg_list = &part[count], .num_sge = 1 };
		if (count)
			list[count - 1].next = &list[count];
		e->posted[slot.index] = slot; /* shared memory numbers its slots from 0 */
		count++;
	}
	return count && ibv_post_recv(e->qp, list, &refused) ? -EIO : 0;
}

/* Frames of the peer. True: there was something. */
static bool carry_in(struct rdma_end *e)
{
	struct ibv_wc done[RDMA_COMPLETIONS];
	bool any = false;
	int count;

	while (!e->broken && (count = ibv_poll_cq(e->received, RDMA_COMPLETIONS, done)) != 0) {
		if (count < 0)
			e->broken = true;
		for (int i = 0; i < count; i++) {
			const struct xts_tx_slot *slot = &e->posted[done[i].wr_id % RDMA_BUFFERS_MAX];

			if (done[i].status != IBV_WC_SUCCESS)
				e->broken = true; /* and so have those behind it */
			else if (done[i].opcode != IBV_WC_RECV || !done[i].byte_len || done[i].byte_len > slot->capacity)
				xts_queue_abandon(e->carried, slot);
			else
				xts_queue_submit(e->carried, slot, done[i].byte_len);
		}
		any = true;
	}
	return any;
}

/* Slots whose frames were sent go back to the worker. True: there were some. */
static bool sent_back(struct rdma_end *e)
{
	struct ibv_wc done[RDMA_COMPLETIONS];
	struct xts_rx_frame frame = { .segments = 1 };
	bool any = false;
	int count;

	while (e->way_first != e->way_end && (count = ibv_poll_cq(e->sent, RDMA_COMPLETIONS, done)) != 0) {
		if (count < 0)
			e->broken = true;
		for (int i = 0; i < count && !e->broken; i++) {
			e->broken = done[i].status != IBV_WC_SUCCESS;
			while (!e->broken && e->way_first != e->way_end && e->way_first != (uint32_t)done[i].wr_id) {
				frame.cookie = e->way[e->way_first++ % RDMA_WAY];
				xts_queue_recycle(e->carried, &frame);
			}
		}
		if (e->broken)
			return true;
		any = true;
	}
	return any;
}

static void frame_to_send(struct rdma_end *e, uint32_t n, const struct xts_rx_frame *frame)
{
	e->send_part[n] = (struct ibv_sge){
		.addr = (uintptr_t)frame->segment[0].iov_base,
		.length = frame->bytes,
		.lkey = e->carried_mr->lkey,
	};
	e->send[n] = (struct ibv_send_wr){ .sg_list = &e->send_part[n], .num_sge = 1, .opcode = IBV_WR_SEND };
	if (frame->bytes <= e->inline_max)
		e->send[n].send_flags |= IBV_SEND_INLINE;
	if (n)
		e->send[n - 1].next = &e->send[n];
	e->way[e->way_end++ % RDMA_WAY] = (uint16_t)frame->cookie;
	e->send[n].wr_id = e->way_end;
}

/* Frames of the worker. True: there was something. */
static bool carry_out(struct rdma_end *e)
{
	struct ibv_send_wr *refused;
	struct xts_rx_frame frame;
	uint32_t count = 0;
	int last = 0;

	while (count < RDMA_COMPLETIONS && (last = xts_queue_receive(e->carried, &frame)) == 1)
		frame_to_send(e, count++, &frame);
	e->left |= last < 0;
	if (rdma_carrier_post(e))
		e->broken = true;
	if (!count || e->broken)
		return count;
	e->send[count - 1].send_flags |= IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
	if (ibv_post_send(e->qp, e->send, &refused))
		e->broken = true;
	return true;
}

static bool carry(struct rdma_end *e)
{
	bool any = carry_in(e);

	any |= sent_back(e);
	any |= carry_out(e);
	if (any && xts_queue_kick(e->carried))
		e->left = true;
	return any;
}

static bool carrier_ends(const struct rdma_end *e)
{
	return e->broken || e->hung_up || e->left || e->told;
}

static void events_take(struct rdma_end *e)
{
	struct ibv_cq *which;
	void *context;

	while (!ibv_get_cq_event(e->events, &which, &context)) {
		if (which == e->received) {
			e->asked = false;
			e->events_taken++;
		} else {
			e->asked_sent = false;
			e->events_sent++;
		}
	}
}

static void events_ask(struct rdma_end *e)
{
	bool solicited = e->device->device->transport_type != IBV_TRANSPORT_IWARP; /* as in rdma_queue.c */

	if (!e->asked) {
		e->broken |= ibv_req_notify_cq(e->received, solicited) != 0;
		e->asked = true;
	}
	/* A worker with few slots may wait for one to come back. Else those are found when there is something to do. */
	if (!e->asked_sent && e->way_end - e->way_first > e->slots / 2) {
		e->broken |= ibv_req_notify_cq(e->sent, 0) != 0;
		e->asked_sent = true;
	}
}

enum carrier_event { CARRIER_EVENTS, CARRIER_LIFE, CARRIER_QUEUE, CARRIER_WORD };

static void carrier_sleep(struct rdma_end *e, int epoll_fd)
{
	struct epoll_event ready[4];
	int count;

	events_ask(e);
	if (carry(e) || carrier_ends(e))
		return;
	count = epoll_wait(epoll_fd, ready, 4, xts_queue_arm(e->carried) ? 0 : -1);
	for (int i = 0; i < count; i++) {
		e->hung_up |= ready[i].data.u32 == CARRIER_LIFE;
		e->told |= ready[i].data.u32 == CARRIER_WORD;
	}
	xts_queue_disarm(e->carried);
	events_take(e);
}

static int carrier_wait_open(const struct rdma_end *e, int life_fd, int word_fd)
{
	int fds[] = {
		[CARRIER_EVENTS] = e->events->fd,
		[CARRIER_LIFE] = life_fd,
		[CARRIER_QUEUE] = e->carried->wait_fd,
		[CARRIER_WORD] = word_fd,
	};
	int fd = epoll_create1(EPOLL_CLOEXEC);

	for (uint32_t i = 0; fd >= 0 && i < 4; i++) {
		struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP, .data.u32 = i };

		if (epoll_ctl(fd, EPOLL_CTL_ADD, fds[i], &event) < 0) {
			int error = -errno;

			close(fd);
			return error;
		}
	}
	return fd < 0 ? -errno : fd;
}

/* What the worker has sent leaves. */
static void carry_rest(struct rdma_end *e)
{
	uint64_t until_ns = clock_ns() + LAST_NS;

	while (!e->broken && e->way_first != e->way_end && clock_ns() < until_ns)
		if (!sent_back(e))
			sched_yield();
}

int rdma_carrier_run(struct rdma_end *e, int life_fd, int word_fd, uint32_t spin_us)
{
	int epoll_fd = carrier_wait_open(e, life_fd, word_fd);
	uint64_t idle_ns = 0, now_ns;

	if (epoll_fd < 0)
		return epoll_fd;
	while (!carrier_ends(e)) {
		if (carry(e)) {
			idle_ns = 0;
			continue;
		}
		now_ns = clock_ns();
		if (!idle_ns)
			idle_ns = now_ns;
		if (now_ns - idle_ns < (uint64_t)spin_us * 1000) {
			sched_yield();
			continue;
		}
		carrier_sleep(e, epoll_fd);
		idle_ns = 0;
	}
	(void)carry(e);
	carry_rest(e);
	close(epoll_fd);
	return 0;
}
