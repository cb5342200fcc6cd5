/*
 * AF_XDP queues: opening them (with privilege) and adopting them (without). queue.h describes their use.
 *
 * UMEM: a sealed memfd of rx_chunks * chunk_bytes for receiving, followed by tx_slots * slot_bytes. A message of up to
 * slot_bytes is sent as a chain of descriptors of one chunk each; received ones come in chunks of 3840 bytes.
 */
#ifndef XTS_AFXDP_H
#define XTS_AFXDP_H

#include "attach.h"
#include "queue.h"

struct xts_afxdp_config {
	uint32_t ifindex;
	uint32_t queue_id;
	uint16_t frame_window; /* determines the number of chunks and slots */
	bool single_chunk;     /* do not ask for multi-buffer */
};

/* An opened socket that is not in use yet. The caller passes the descriptors on, or closes them. */
struct xts_afxdp_socket {
	int xsk_fd;
	int umem_fd;
	/* kind, sizes and ring entries are filled in; the caller sets epoch and addresses */
	struct xts_attach_reply geometry;
};

/*
 * Opens and binds a socket on a queue of an interface of this network namespace: memfd (sealed, populated), UMEM_REG,
 * four rings, SO_SNDBUFFORCE, bind. Falls back to one chunk per frame if the kernel has no XDP_USE_SG
 * (geometry.largest_message shows it). Needs CAP_NET_RAW and CAP_NET_ADMIN. Returns 0 or -errno (EBUSY: the queue is
 * taken, or was closed less than some 300 ms ago; EINVAL: no such queue; EPERM; ENOBUFS: RLIMIT_MEMLOCK).
 */
int xts_afxdp_socket_open(struct xts_afxdp_socket *out, const struct xts_afxdp_config *config);

/* Could a queue be opened now? 0, EBUSY as above, or another -errno. It binds a socket of one chunk, so that it takes
 * microseconds where opening takes milliseconds; if the result is 0, the queue is busy again for a moment. */
int xts_afxdp_probe(uint32_t ifindex, uint32_t queue_id);

/* Makes a queue from an open socket: maps the rings and the UMEM (MADV_DONTFORK), fills the fill ring. Takes over both
 * descriptors on success. Needs no privilege (Linux 6.6 or later if another process has bound the socket). */
int xts_afxdp_adopt(struct xts_queue **out, int xsk_fd, int umem_fd, const struct xts_attach_reply *geometry);

/* Maps all of the queue's memory now, which the socket has pinned anyway: so the process's memory use is visible from
 * the start, and no first access has to wait. No effect before Linux 5.14. */
void xts_afxdp_populate(struct xts_queue *queue);

/* A second, transmit-only socket of the agent on the queue of xsk_fd, for a last frame after the queue's owner has died
 * (XDP_SHARED_UMEM). Sends one frame of at most chunk_bytes through it. Returns 0 or -errno. */
int xts_afxdp_last_word_open(int xsk_fd, uint32_t ifindex, uint32_t queue_id);
int xts_afxdp_last_word_send(int last_word_fd, int xsk_fd, int umem_fd, const struct xts_attach_reply *geometry,
			     const void *frame, uint32_t bytes);

#endif
