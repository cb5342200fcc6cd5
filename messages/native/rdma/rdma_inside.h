/* An end of an RDMA queue as its own files see it: rdma_end.c (control), rdma_device.c, rdma_queue.c (frames). */
#ifndef XTS_RDMA_INSIDE_H
#define XTS_RDMA_INSIDE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "queues/rdma.h"

#define RDMA_KEPT_MAX 96u
#define RDMA_SLOTS_MAX (XTS_FRAME_WINDOW_MAX + XTS_CONTROL_RESERVE + XTS_RDMA_SIGNAL_EVERY)
#define RDMA_BUFFERS_MAX (XTS_FRAME_WINDOW_MAX + XTS_CONTROL_RESERVE + RDMA_KEPT_MAX)
#define RDMA_WAY 256u       /* a power of two, at least RDMA_SLOTS_MAX */
#define RDMA_COMPLETIONS 16 /* taken at once */
_Static_assert(RDMA_WAY >= RDMA_SLOTS_MAX && (RDMA_WAY & (RDMA_WAY - 1)) == 0, "a ring holds every slot");

/* A slot that is retained does not become free when it comes back. */
enum rdma_slot { SLOT_FREE, SLOT_TAKEN, SLOT_SENT, SLOT_RETAINED, SLOT_RETAINED_SENT };

struct rdma_end {
	struct xts_queue base;
	struct rdma_end *next; /* of this process's */
	int pid;               /* that has opened it: the verbs of another process's end do not work */
	bool adopted, connected;
	bool kept;    /* stays when its queue is closed */
	bool carrier; /* has no memory of its own, and no queue: see rdma_carrier.c */

	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *events;
	struct ibv_cq *sent, *received;
	struct ibv_qp *qp;
	uint8_t port;
	uint32_t inline_max;
	uint8_t *memory; /* buffers, then slots */
	size_t memory_bytes;
	uint32_t slot_bytes, buffers, slots;
	struct xts_attach_reply geometry;
	int life_fd;

	bool broken;  /* the queue pair has failed */
	bool hung_up; /* the connection has ended */
	bool asked;   /* the next frame makes an event */
	unsigned events_taken;

	/* sending: slots that were submitted, then those that are on their way, in order */
	struct ibv_send_wr send[RDMA_SLOTS_MAX];
	struct ibv_sge send_part[RDMA_SLOTS_MAX];
	uint32_t submitted, unsignalled;
	uint16_t way[RDMA_WAY];
	uint32_t way_first, way_end; /* count up for ever */
	uint16_t free[RDMA_SLOTS_MAX];
	uint32_t free_count;
	uint8_t state[RDMA_SLOTS_MAX];

	/* receiving */
	struct ibv_wc done[RDMA_COMPLETIONS];
	int done_count, done_next;
	uint16_t returned[RDMA_BUFFERS_MAX]; /* buffers that are free, and not posted yet */
	uint32_t returned_count;

	/* of a carrier */
	struct xts_queue *carried; /* whose memory is registered */
	struct ibv_mr *carried_mr;
	struct xts_tx_slot posted[RDMA_BUFFERS_MAX];
	bool left;       /* the other end of that queue is closed */
	bool told;       /* somebody has a word for this process */
	bool asked_sent; /* the next frame that was sent makes an event */
	unsigned events_sent;
};

/* --- rdma_queue.c -------------------------------------------------------------------------------------------------- */

extern const struct xts_queue_ops rdma_ops;
/* Posts all free buffers. 0 or -EIO. */
int rdma_post_buffers(struct rdma_end *e);

/* --- rdma_carrier.c ------------------------------------------------------------------------------------------------ */

/* Posts all slots of the carried queue that are free. 0 or -EIO. */
int rdma_carrier_post(struct rdma_end *e);
/* As xts_rdma_run(); the queue stays open. */
int rdma_carrier_run(struct rdma_end *e, int life_fd, int word_fd, uint32_t spin_us);

/* --- rdma_device.c ------------------------------------------------------------------------------------------------- */

/* Opens the device at an interface: e->device and e->port. 0, -ENODEV: there is none; or another -errno. */
int rdma_device_open(struct rdma_end *e, uint32_t ifindex);

/* --- rdma_end.c ---------------------------------------------------------------------------------------------------- */

/* Releases everything. The end is in no list any more. */
void rdma_end_free(struct rdma_end *e);
void rdma_end_forget(struct rdma_end *e);
/* The queue is closed: releases the end, or what it has of the connection if it is kept. */
void rdma_end_leave(struct rdma_end *e);

#endif
