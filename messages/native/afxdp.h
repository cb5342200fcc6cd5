/*
 * AF_XDP queues: opening (privileged) and adopting (not). See queue.h for using one.
 *
 * UMEM: a sealed memfd of rx_chunks * chunk_bytes for receiving, then tx_slots * slot_bytes. A message of up to
 * slot_bytes is sent as a chain of descriptors of one chunk each; received ones come as chunks of 3840 bytes.
 */
#ifndef XTS_AFXDP_H
#define XTS_AFXDP_H

#include "attach.h"
#include "queue.h"

struct xts_afxdp_config {
	uint32_t ifindex;
	uint32_t queue_id;
	uint16_t frame_window; /* decides the number of chunks and slots */
	bool single_chunk;     /* do not ask for multi-buffer */
};

/* An opened socket, before anybody uses it. The descriptors are the caller's to pass on or close. */
struct xts_afxdp_socket {
	int xsk_fd;
	int umem_fd;
	/* kind, sizes and ring entries filled in; epoch and addresses are the caller's */
	struct xts_attach_reply geometry;
};

/*
 * Opens and binds a socket on a queue of an interface of this network namespace: memfd (sealed, populated), UMEM_REG,
 * four rings, SO_SNDBUFFORCE, bind. Falls back to one chunk per frame where the kernel has no XDP_USE_SG
 * (geometry.largest_message says). Needs CAP_NET_RAW and CAP_NET_ADMIN. Returns 0 or -errno (EBUSY: the queue is
 * taken, or was closed less than some 300 ms ago; EINVAL: no such queue; EPERM; ENOBUFS: RLIMIT_MEMLOCK).
 */
int xts_afxdp_socket_open(struct xts_afxdp_socket *out, const struct xts_afxdp_config *config);

/* Could a queue be opened now? 0, EBUSY as above, or another -errno. It binds a socket of one chunk, so that asking
 * takes microseconds where opening takes milliseconds; when the answer is 0, the queue is busy again for a moment. */
int xts_afxdp_probe(uint32_t ifindex, uint32_t queue_id);

/* Makes a queue of an open socket: maps rings and UMEM (MADV_DONTFORK), fills the fill ring. Takes over both
 * descriptors on success. Needs no privilege (Linux 6.4 or later when another process has bound it). */
int xts_afxdp_adopt(struct xts_queue **out, int xsk_fd, int umem_fd, const struct xts_attach_reply *geometry);

/* Maps all of its memory now, which the socket has pinned anyway: what a process holds shows from the start, and no
 * first use waits for it. Without effect before Linux 5.14. */
void xts_afxdp_populate(struct xts_queue *queue);

/* A second, transmit-only socket of the agent on the queue of xsk_fd, for the last word after its owner has died
 * (XDP_SHARED_UMEM). Sends one frame of at most chunk_bytes through it. Returns 0 or -errno. */
int xts_afxdp_last_word_open(int xsk_fd, uint32_t ifindex, uint32_t queue_id);
int xts_afxdp_last_word_send(int last_word_fd, int xsk_fd, int umem_fd, const struct xts_attach_reply *geometry,
			     const void *frame, uint32_t bytes);

#endif
