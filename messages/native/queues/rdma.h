/*
 * Queues over RDMA: frames over a reliable connection (RC) between two queue pairs, one at each end. Host and Arm cores
 * of a BlueField reach each other so without a flow rule or an XDP program, and the hardware loses nothing.
 *
 * Theory of operation
 *
 * A queue pair cannot be handed to another process, and whoever has the descriptor of its device may talk to anybody.
 * So the process that carries the frames makes it, and keeps it: a relay of the agent, or a process of the proxy, which
 * does so for a worker (native/rdma/rdma_carrier.c). Who
 * connects it is another matter. The RDMA connection manager (xts_messages/queues/rdma_cm.py, by pyverbs) needs only
 * the number of a queue pair, and its answer is numbers, struct xts_rdma_step. So it may run in a process of its own
 * that has no queue pair, and one that has a queue pair needs no address and no rights to connect anything.
 *
 *     open        the end that is at an interface: device, memory, queue pair, buffers to receive into
 *     step        to each state of the queue pair, as the connection manager says
 *     adopt       the queue (queue.h), from the descriptors of open
 *     renew       after the queue was closed, for the next connection: where the end is to be kept
 *
 * A process that may open no file any more keeps its ends: their device and memory stay, and each connection has a
 * queue pair of its own. The kernel takes requests for a device only from the process that has opened it, and only
 * while its credentials are those of then: so an end is opened after the last change of user and of capabilities.
 *
 * Everything that uses libibverbs is in a library of its own (native/rdma/), which xts_rdma_load() loads. It is built
 * where the headers of libibverbs are. Without it, or where libibverbs is not installed, this kind is known by its
 * name, and opening it says -EOPNOTSUPP. The verbs are called through the headers' inline functions, which read
 * structures of libibverbs: declarations of our own could not follow its changes.
 */
#ifndef XTS_RDMA_H
#define XTS_RDMA_H

#include <stdint.h>

#include "queues/queue_kinds.h"

/* The descriptors of an end. Only the process that has opened the end can use the first. The second is any descriptor
 * that hangs up when the connection has ended, as the connection manager says. */
enum xts_rdma_descriptor { XTS_RDMA_EVENTS, XTS_RDMA_LIFE };

/* A state of the queue pair, with the attributes that the connection manager has for it (rdma_init_qp_attr(3)). mask
 * says which of them count: bits IBV_QP_*. What the peer may do to our memory is none of them: nothing. */
struct xts_rdma_step {
	uint32_t state, mask;
	uint32_t path_mtu, dest_qp_num, rq_psn, sq_psn, pkey_index, port_num;
	uint32_t max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, timeout, retry_cnt, rnr_retry;
	uint32_t dlid, sl, src_path_bits, static_rate; /* the path; without a global route */
	uint32_t is_global, flow_label, sgid_index, hop_limit, traffic_class;
	uint8_t dgid[16];
};

/* Of an end that was opened here. */
struct xts_rdma_numbers {
	uint32_t qp_num;     /* of the queue pair, for the connection manager; 0: there is none */
	uint32_t inline_max; /* bytes of a frame that is sent without a buffer of its own */
	uint32_t lkey, rkey; /* of its memory; for tests: the second opens nothing */
	char device[64];
};

/* Every so many sends one says when it is done, and those before it are done by then, too: selective signalling. There
 * are as many slots more, for those that are done and have not said so. */
#define XTS_RDMA_SIGNAL_EVERY 16u

#define XTS_RDMA_MODULE_VERSION 3u
struct xts_rdma_module {
	uint32_t version; /* XTS_RDMA_MODULE_VERSION */
	int (*open)(struct xts_queue_opened *out, const struct xts_queue_options *options);
	int (*numbers)(int events_fd, struct xts_rdma_numbers *out);
	int (*step)(int events_fd, const struct xts_rdma_step *step);
	int (*adopt)(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g);
	void (*discard)(int events_fd);
	int (*keep)(int events_fd);
	int (*renew)(int events_fd);
	int (*carrier)(struct xts_queue_opened *out, const struct xts_queue_options *options);
	int (*carry)(int events_fd, struct xts_queue *queue, void *memory, size_t bytes);
	int (*run)(int events_fd, int life_fd, int word_fd, uint32_t spin_us);
};

/* The addresses in the frames of both ends: locally administered ones. There is no Ethernet, but frames have an
 * Ethernet header all the same. */
void xts_rdma_addresses(struct xts_attach_reply *g);
/* What all ends with these options have: sizes and addresses. For processes that have no end, too. */
void xts_rdma_geometry(struct xts_attach_reply *g, const struct xts_queue_options *options);

/* Loads the library with the verbs. 0, also if it is loaded already; -ENOENT: it, or libibverbs, is not there;
 * -EPROTONOSUPPORT: it is of another version. */
int xts_rdma_load(const char *path);

/* An end that xts_queue_open() has made in this process, by its first descriptor. 0, -EBADF: there is none;
 * -EOPNOTSUPP: nothing is loaded; or another -errno. */
int xts_rdma_numbers(int events_fd, struct xts_rdma_numbers *out);
int xts_rdma_step(int events_fd, const struct xts_rdma_step *step);
/* Closes an end that was not adopted, its first descriptor included. */
void xts_rdma_discard(int events_fd);
/* From now on the end stays when its queue is closed, which any thread may do. Its queue pair goes with the queue, and
 * renewing makes another. -EBUSY: the queue is in use. */
int xts_rdma_keep(int events_fd);
int xts_rdma_renew(int events_fd);

/* --- an end whose frames another queue has (native/rdma/rdma_carrier.c) --- */

/* Opens one, without memory and queue pair. 0 or -errno. */
int xts_rdma_carrier(int *events_fd, const struct xts_queue_options *options);
/* The frames of the next connection, which has a queue pair of its own, are those of this queue over shared memory.
 * Takes it over on success; the one before is closed. 0, -EINVAL: it is of another kind or size; or another -errno. */
int xts_rdma_carry(int events_fd, struct xts_queue *queue);
/* Carries, when it is connected: until life_fd or word_fd is readable or hangs up, the connection ends, or the queue's
 * other end is closed. The queue is closed then. spin_us: for how long it looks before it sleeps. 0, or -errno: it
 * could not begin. */
int xts_rdma_run(int events_fd, int life_fd, int word_fd, uint32_t spin_us);

#endif
