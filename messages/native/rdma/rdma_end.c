/*
 * An end of an RDMA queue: opening it, and its way to a connection. rdma.h has the theory of operation.
 *
 * An end has a context of its device, a protection domain and a queue pair of its own. Its memory is registered for
 * local access alone and the queue pair allows its peer nothing: a peer's key, guessed or told, opens nothing.
 */
#include "rdma_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#define RDMA_PAGE 4096u
#define INLINE_MAX 256u /* a control frame, or a small message */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rdma_end *ends; /* of all threads */

static struct rdma_end *rdma_find(int events_fd)
{
	struct rdma_end *e;

	pthread_mutex_lock(&lock);
	for (e = ends; e; e = e->next)
		if (e->events->fd == events_fd && e->pid == getpid())
			break;
	pthread_mutex_unlock(&lock);
	return e;
}

static void rdma_end_remember(struct rdma_end *e)
{
	pthread_mutex_lock(&lock);
	e->next = ends;
	ends = e;
	pthread_mutex_unlock(&lock);
}

/* Has its queue been adopted, and not closed yet? */
static bool rdma_in_use(const struct rdma_end *e)
{
	bool used;

	pthread_mutex_lock(&lock);
	used = e->adopted;
	pthread_mutex_unlock(&lock);
	return used;
}

void rdma_end_forget(struct rdma_end *e)
{
	pthread_mutex_lock(&lock);
	for (struct rdma_end **at = &ends; *at; at = &(*at)->next) {
		if (*at == e) {
			*at = e->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
}

/* The end has no queue pair, and no descriptor of a connection any more. */
static void connection_free(struct rdma_end *e)
{
	if (e->base.wait_fd >= 0)
		close(e->base.wait_fd);
	if (e->life_fd >= 0)
		close(e->life_fd);
	if (e->received && e->events_taken)
		ibv_ack_cq_events(e->received, e->events_taken);
	if (e->sent && e->events_sent)
		ibv_ack_cq_events(e->sent, e->events_sent);
	if (e->qp)
		(void)ibv_destroy_qp(e->qp);
	if (e->sent)
		(void)ibv_destroy_cq(e->sent);
	if (e->received)
		(void)ibv_destroy_cq(e->received);
	if (e->carried_mr)
		(void)ibv_dereg_mr(e->carried_mr);
	xts_queue_close(e->carried);
	e->base.wait_fd = e->life_fd = -1;
	e->events_taken = e->events_sent = 0;
	e->carried_mr = NULL;
	e->carried = NULL;
	e->qp = NULL;
	e->sent = e->received = NULL;
}

void rdma_end_free(struct rdma_end *e)
{
	connection_free(e);
	if (e->events)
		(void)ibv_destroy_comp_channel(e->events);
	if (e->mr)
		(void)ibv_dereg_mr(e->mr);
	if (e->pd)
		(void)ibv_dealloc_pd(e->pd);
	if (e->device)
		(void)ibv_close_device(e->device);
	if (e->memory)
		munmap(e->memory, e->memory_bytes);
	free(e);
}

void rdma_end_leave(struct rdma_end *e)
{
	if (!e->kept) {
		rdma_end_forget(e);
		rdma_end_free(e);
		return;
	}
	connection_free(e);
	pthread_mutex_lock(&lock);
	e->adopted = false;
	pthread_mutex_unlock(&lock);
}

/* --- the queue pair ------------------------------------------------------------------------------------------------ */

static int memory_open(struct rdma_end *e)
{
	e->memory_bytes = (size_t)(e->buffers + e->slots) * e->slot_bytes;
	e->memory = mmap(NULL, e->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1,
			 0);
	if (e->memory == MAP_FAILED) {
		e->memory = NULL;
		return -errno;
	}
	if (madvise(e->memory, e->memory_bytes, MADV_DONTFORK) < 0)
		return -errno;
	e->mr = ibv_reg_mr(e->pd, e->memory, e->memory_bytes, IBV_ACCESS_LOCAL_WRITE);
	return e->mr ? 0 : -errno;
}

static int queue_pair_open(struct rdma_end *e)
{
	struct ibv_qp_init_attr how = {
		.send_cq = e->sent,
		.recv_cq = e->received,
		.cap = { .max_send_wr = e->slots,
			 .max_recv_wr = e->buffers,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = INLINE_MAX },
		.qp_type = IBV_QPT_RC,
	};

	while (!(e->qp = ibv_create_qp(e->pd, &how)) && how.cap.max_inline_data)
		how.cap.max_inline_data /= 2; /* it has less room than that */
	if (!e->qp)
		return -errno;
	e->inline_max = how.cap.max_inline_data < INLINE_MAX ? how.cap.max_inline_data : INLINE_MAX;
	return 0;
}

static int verbs_open(struct rdma_end *e)
{
	e->pd = ibv_alloc_pd(e->device);
	e->events = e->pd ? ibv_create_comp_channel(e->device) : NULL;
	if (!e->events)
		return errno ? -errno : -EIO;
	if (fcntl(e->events->fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

/* What each connection has of its own, and all buffers and slots free. */
static int connection_open(struct rdma_end *e)
{
	struct xts_queue_stats none = { 0 };

	e->connected = e->broken = e->hung_up = e->asked = e->left = e->told = e->asked_sent = false;
	e->submitted = e->unsignalled = e->way_first = e->way_end = 0;
	e->done_count = e->done_next = 0;
	e->base.stats = none;
	memset(e->state, 0, sizeof e->state);
	for (e->free_count = 0; e->free_count < e->slots; e->free_count++)
		e->free[e->free_count] = (uint16_t)(e->slots - 1 - e->free_count);
	for (e->returned_count = 0; e->returned_count < e->buffers; e->returned_count++)
		e->returned[e->returned_count] = (uint16_t)e->returned_count;
	e->sent = ibv_create_cq(e->device, (int)e->slots, NULL, e->carrier ? e->events : NULL, 0);
	e->received = e->sent ? ibv_create_cq(e->device, (int)e->buffers, NULL, e->events, 0) : NULL;
	if (!e->received)
		return errno ? -errno : -EIO;
	return queue_pair_open(e);
}

static struct rdma_end *end_make(const struct xts_attach_reply *g)
{
	struct rdma_end *e = calloc(1, sizeof *e);

	if (!e)
		return NULL;
	e->pid = getpid();
	e->geometry = *g;
	e->life_fd = e->base.wait_fd = -1;
	e->slots = g->tx_slots;
	e->buffers = g->rx_chunks;
	e->slot_bytes = g->slot_bytes;
	e->base.largest_message = g->largest_message;
	return e;
}

static bool geometry_ok(const struct xts_attach_reply *g)
{
	return g->kind == XTS_QUEUE_RDMA && g->frame_window >= XTS_FRAME_WINDOW_MIN &&
	       g->frame_window <= XTS_FRAME_WINDOW_MAX && g->largest_message >= XTS_FRAME_BYTES_SINGLE &&
	       g->largest_message <= XTS_FRAME_BYTES_MAX && g->slot_bytes >= g->largest_message &&
	       g->slot_bytes <= XTS_FRAME_BYTES_MAX && g->slot_bytes % RDMA_PAGE == 0 &&
	       xts_queue_kept_of(g->rx_chunks, g->frame_window, 1) >= 0 && g->rx_chunks <= RDMA_BUFFERS_MAX &&
	       g->tx_slots >= g->frame_window + XTS_CONTROL_RESERVE + XTS_RDMA_SIGNAL_EVERY &&
	       g->tx_slots <= RDMA_SLOTS_MAX;
}

/* One end, as at an interface: its descriptor is found at either. A carrier gets its memory and its queue pair later. */
static int end_open(struct xts_queue_opened *out, const struct xts_queue_options *options, bool carrier)
{
	struct rdma_end *e;
	int error;

	if (!geometry_ok(&out->geometry))
		return -EINVAL;
	e = end_make(&out->geometry);
	if (!e)
		return -ENOMEM;
	e->carrier = e->kept = carrier;
	error = rdma_device_open(e, options->ifindex);
	if (!error)
		error = verbs_open(e);
	if (!error && !carrier)
		error = memory_open(e);
	if (!error && !carrier)
		error = connection_open(e);
	if (error) {
		rdma_end_free(e);
		return error;
	}
	rdma_end_remember(e);
	out->fds[0][XTS_RDMA_EVENTS] = out->fds[1][XTS_RDMA_EVENTS] = e->events->fd;
	return 0;
}

static int rdma_open(struct xts_queue_opened *out, const struct xts_queue_options *options)
{
	return end_open(out, options, false);
}

static int rdma_carrier(struct xts_queue_opened *out, const struct xts_queue_options *options)
{
	return end_open(out, options, true);
}

/* --- its way to a connection --------------------------------------------------------------------------------------- */

static int rdma_numbers(int events_fd, struct xts_rdma_numbers *out)
{
	struct rdma_end *e = rdma_find(events_fd);

	if (!e)
		return -EBADF;
	*out = (struct xts_rdma_numbers){ .qp_num = e->qp ? e->qp->qp_num : 0, .inline_max = e->inline_max };
	if (e->mr || e->carried_mr) {
		out->lkey = (e->mr ? e->mr : e->carried_mr)->lkey;
		out->rkey = (e->mr ? e->mr : e->carried_mr)->rkey;
	}
	strncpy(out->device, ibv_get_device_name(e->device->device), sizeof out->device - 1);
	return 0;
}

static struct ibv_qp_attr attributes_of(const struct xts_rdma_step *s)
{
	struct ibv_qp_attr a = {
		.qp_state = (enum ibv_qp_state)s->state,
		.path_mtu = (enum ibv_mtu)s->path_mtu,
		.dest_qp_num = s->dest_qp_num,
		.rq_psn = s->rq_psn,
		.sq_psn = s->sq_psn,
		.pkey_index = (uint16_t)s->pkey_index,
		.port_num = (uint8_t)s->port_num,
		.qp_access_flags = 0, /* whatever the peer would like */
		.max_rd_atomic = (uint8_t)s->max_rd_atomic,
		.max_dest_rd_atomic = (uint8_t)s->max_dest_rd_atomic,
		.min_rnr_timer = (uint8_t)s->min_rnr_timer,
		.timeout = (uint8_t)s->timeout,
		.retry_cnt = (uint8_t)s->retry_cnt,
		.rnr_retry = (uint8_t)s->rnr_retry,
		.ah_attr = { .dlid = (uint16_t)s->dlid,
			     .sl = (uint8_t)s->sl,
			     .src_path_bits = (uint8_t)s->src_path_bits,
			     .static_rate = (uint8_t)s->static_rate,
			     .is_global = (uint8_t)s->is_global,
			     .port_num = (uint8_t)s->port_num,
			     .grh = { .flow_label = s->flow_label,
				      .sgid_index = (uint8_t)s->sgid_index,
				      .hop_limit = (uint8_t)s->hop_limit,
				      .traffic_class = (uint8_t)s->traffic_class } },
	};

	memcpy(a.ah_attr.grh.dgid.raw, s->dgid, 16);
	return a;
}

static int rdma_step(int events_fd, const struct xts_rdma_step *step)
{
	struct rdma_end *e = rdma_find(events_fd);
	struct ibv_qp_attr attributes = attributes_of(step);
	uint32_t known = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_AV |
			 IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN |
			 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			 IBV_QP_DEST_QPN;
	int error = 0;

	if (!e)
		return -EBADF;
	if (step->mask & ~known || step->state > IBV_QPS_RTS)
		return -EINVAL;
	if (!e->qp)
		return -ENOTCONN;
	if (step->mask) /* iWARP goes on by itself */
		error = ibv_modify_qp(e->qp, &attributes, (int)step->mask);
	if (!error && step->state == IBV_QPS_INIT)
		error = (e->carrier ? rdma_carrier_post(e) : rdma_post_buffers(e)) ? EIO : 0;
	if (!error && step->state == IBV_QPS_RTS)
		e->connected = true;
	return -error;
}

static void rdma_discard(int events_fd)
{
	struct rdma_end *e = rdma_find(events_fd);

	if (e && !rdma_in_use(e)) {
		rdma_end_forget(e);
		rdma_end_free(e);
	}
}

static int rdma_keep(int events_fd)
{
	struct rdma_end *e = rdma_find(events_fd);

	if (!e)
		return -EBADF;
	if (rdma_in_use(e))
		return -EBUSY;
	e->kept = true;
	return 0;
}

static int rdma_renew(int events_fd)
{
	struct rdma_end *e = rdma_find(events_fd);

	if (!e)
		return -EBADF;
	if (rdma_in_use(e) || e->carrier)
		return -EBUSY;
	connection_free(e); /* of a connection that did not come to a queue */
	return connection_open(e);
}

static int rdma_carry(int events_fd, struct xts_queue *queue, void *memory, size_t bytes)
{
	struct rdma_end *e = rdma_find(events_fd);
	int error;

	if (!e || !e->carrier)
		return -EBADF;
	if (queue->frame_window != e->geometry.frame_window || queue->largest_message != e->geometry.largest_message ||
	    queue->frame_window + XTS_CONTROL_RESERVE + queue->kept_max > RDMA_BUFFERS_MAX)
		return -EINVAL;
	connection_free(e);
	e->carried_mr = ibv_reg_mr(e->pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	error = e->carried_mr ? connection_open(e) : -errno;
	if (error)
		connection_free(e); /* not the queue, which is the caller's */
	else
		e->carried = queue;
	return error;
}

static int rdma_run(int events_fd, int life_fd, int word_fd, uint32_t spin_us)
{
	struct rdma_end *e = rdma_find(events_fd);
	int error;

	if (!e || !e->carried)
		return -EBADF;
	error = e->connected ? rdma_carrier_run(e, life_fd, word_fd, spin_us) : -ENOTCONN;
	connection_free(e);
	return error;
}

/* --- the queue ----------------------------------------------------------------------------------------------------- */

/* An epoll set of what wakes us. */
static int wait_open(struct rdma_end *e, int life_fd)
{
	struct epoll_event events = { .events = EPOLLIN, .data.u32 = XTS_RDMA_EVENTS };
	struct epoll_event life = { .events = EPOLLIN | EPOLLRDHUP, .data.u32 = XTS_RDMA_LIFE };
	int fd = epoll_create1(EPOLL_CLOEXEC), error;

	if (fd < 0)
		return -errno;
	if (epoll_ctl(fd, EPOLL_CTL_ADD, e->events->fd, &events) == 0 &&
	    epoll_ctl(fd, EPOLL_CTL_ADD, life_fd, &life) == 0)
		return fd;
	error = errno == EPERM ? -EBADF : -errno;
	close(fd);
	return error;
}

static int rdma_adopt(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g)
{
	struct rdma_end *e = rdma_find(fds[XTS_RDMA_EVENTS]);
	int fd;

	if (!geometry_ok(g))
		return -EINVAL;
	if (!e || rdma_in_use(e) || e->carrier)
		return -EBADF;
	if (g->frame_window != e->geometry.frame_window || g->largest_message != e->geometry.largest_message ||
	    g->rx_chunks != e->buffers || g->tx_slots != e->slots || g->slot_bytes != e->slot_bytes)
		return -EINVAL;
	if (!e->connected)
		return -ENOTCONN;
	fd = wait_open(e, fds[XTS_RDMA_LIFE]);
	if (fd < 0)
		return fd;
	pthread_mutex_lock(&lock);
	e->adopted = true;
	pthread_mutex_unlock(&lock);
	e->life_fd = fds[XTS_RDMA_LIFE];
	e->base.ops = &rdma_ops;
	e->base.frame_window = g->frame_window;
	e->base.kept_max = (uint32_t)xts_queue_kept_of(e->buffers, g->frame_window, 1);
	e->base.traits = XTS_QUEUE_KICK_COSTS | XTS_QUEUE_PACKETS | XTS_QUEUE_RETAINS |
			 (g->largest_message > XTS_FRAME_BYTES_SINGLE ? XTS_QUEUE_FRAGMENTS : 0);
	e->base.wait_fd = fd;
	memcpy(e->base.local_mac, end == XTS_QUEUE_HOST ? g->local_mac : g->peer_mac, 6);
	memcpy(e->base.peer_mac, end == XTS_QUEUE_HOST ? g->peer_mac : g->local_mac, 6);
	*out = &e->base;
	return 0;
}

extern const struct xts_rdma_module xts_rdma_module;
__attribute__((visibility("default"))) const struct xts_rdma_module xts_rdma_module = {
	.version = XTS_RDMA_MODULE_VERSION,
	.open = rdma_open,
	.numbers = rdma_numbers,
	.step = rdma_step,
	.adopt = rdma_adopt,
	.discard = rdma_discard,
	.keep = rdma_keep,
	.renew = rdma_renew,
	.carrier = rdma_carrier,
	.carry = rdma_carry,
	.run = rdma_run,
};
